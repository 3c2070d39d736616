"""Which parts of the host's file system a sandbox shows and hides."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import ProcessError
from bridge.system.process import run
from runner.job.sandbox.private_files import REPOSITORY

_ASK_S = 60
# Prints all folders from which this interpreter imports, including the sources of editable installs.
_ASK = (
    "import glob,json,os,sys,urllib.parse as u\n"
    "e=[]\n"
    "for f in [g for p in sys.path for g in glob.glob(p+'/*.dist-info/direct_url.json')]:\n"
    "    d=json.load(open(f,encoding='utf-8'))\n"
    "    if d.get('dir_info',{}).get('editable'): e.append(u.unquote(u.urlsplit(d['url']).path))\n"
    "h=[sys.prefix,sys.base_prefix,sys.exec_prefix,sys.base_exec_prefix]\n"
    "print(json.dumps({'homes':h,'path':[p for p in sys.path if os.path.isabs(p)]+e}))\n"
)
_MODULES = (".py", ".so", ".pyd", ".zip", ".egg")


@dataclass(frozen=True)
class Layer:
    """A path that the job sees, or that is hidden inside such a path. Later layers cover earlier ones."""

    path: Path
    shown: bool


@dataclass(frozen=True)
class Needed:
    """The paths that an interpreter needs: what an installer wrote, and sources that are installed in place.

    ``roots`` are the folders of the sources. Of these, only importable entries are ``sources``.
    """

    installed: tuple[Path, ...] = ()
    sources: tuple[Path, ...] = ()
    roots: tuple[Path, ...] = ()

    @property
    def paths(self) -> list[Path]:
        """All paths that are shown."""
        return [*self.installed, *self.sources]


def needed_by(interpreter: Path) -> Needed:
    """Return the paths that an interpreter needs: its prefixes, its packages, and editable sources.

    Of a source folder, only importable entries are included, so a checkout's ``.git`` and ``.env`` stay hidden. The
    result is empty if the interpreter does not answer.
    """
    argv = (str(interpreter), "-I", "-c", _ASK)
    try:
        answer = json.loads(run(*argv, env={"LC_ALL": "C.UTF-8"}, timeout=_ASK_S).stdout)
    except (ProcessError, ValueError):
        return Needed()
    homes = [Path(home) for home in answer["homes"]]
    installed = dict.fromkeys(homes)
    roots: dict[Path, None] = {}
    for path in map(Path, answer["path"]):
        if path.name in ("site-packages", "dist-packages") or not path.is_dir():
            installed[path] = None
        elif not any(path.is_relative_to(home) for home in homes):
            roots[path] = None
    sources = dict.fromkeys(entry for root in roots for entry in _importable(root))
    return Needed(tuple(installed), tuple(sources), tuple(roots))


def layers(readable: Iterable[Path], hidden: Iterable[Path], system: Iterable[str]) -> list[Layer]:
    """Sort visible and hidden paths so that each comes after the paths that contain it.

    Paths that do not exist or would change nothing are left out. A path in both lists is hidden. Each path is included
    as written and with its links resolved.
    """
    wanted = dict.fromkeys(both_ways(readable), True) | dict.fromkeys(both_ways(hidden), False)
    wanted.pop(Path("/"), None)
    shown = dict.fromkeys(map(Path, system), True)
    sorted_layers: list[Layer] = []
    for path in sorted(wanted, key=lambda p: (len(p.parts), p)):
        above = next((shown[folder] for folder in (path, *path.parents) if folder in shown), False)
        if wanted[path] != above and _is_there(path):
            shown[path] = wanted[path]
            sorted_layers.append(Layer(path, wanted[path]))
    return sorted_layers


def both_ways(paths: Iterable[Path]) -> list[Path]:
    """Return absolute paths in their given form, and with all links resolved."""
    return [way for path in paths if path.is_absolute() for way in (path, path.resolve())]


def _importable(folder: Path) -> list[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [e for e in entries if e.suffix in _MODULES or (e.name.isidentifier() and e.is_dir())]


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # this user may not read the folder
        return False


def model_path_with_blobs(path: Path) -> Path:
    """Return the folders that a model needs: in a Hugging Face cache, a snapshot's links lead to blobs beside it."""
    for parent in path.parents:
        if parent.name == "snapshots" and REPOSITORY.fullmatch(parent.parent.name):
            return parent.parent
    return path
