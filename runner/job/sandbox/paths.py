"""Which parts of the host's file system a sandbox shows and hides."""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import InfrastructureError, ProcessError
from bridge.system.process import run

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
# How many entries of a visible folder are searched for sockets. A search of this many takes about a second.
MAX_ENTRIES = 1_000_000
_MODULES = (".py", ".so", ".pyd", ".zip", ".egg")


@dataclass(frozen=True)
class Layer:
    """A path that the job sees, or that is hidden inside such a path. Later layers cover earlier ones."""

    path: Path
    shown: bool


def interpreter_paths(interpreter: Path) -> list[Path]:
    """Return the paths that an interpreter needs: its prefixes, its packages, and editable sources.

    Of a source folder, only importable entries are included, so a checkout's ``.git`` and ``.env`` stay hidden. The
    result is empty if the interpreter does not answer.
    """
    argv = (str(interpreter), "-I", "-c", _ASK)
    try:
        answer = json.loads(run(*argv, env={"LC_ALL": "C.UTF-8"}, timeout=_ASK_S).stdout)
    except (ProcessError, ValueError):
        return []
    homes = [Path(home) for home in answer["homes"]]
    paths = dict.fromkeys(homes)
    for path in map(Path, answer["path"]):
        if path.name in ("site-packages", "dist-packages") or not path.is_dir():
            paths[path] = None
        elif not any(path.is_relative_to(home) for home in homes):
            paths |= dict.fromkeys(_importable(path))
    return list(paths)


def layers(readable: Iterable[Path], hidden: Iterable[Path], system: Iterable[str]) -> list[Layer]:
    """Sort visible and hidden paths so that each comes after the paths that contain it.

    Paths that do not exist or would change nothing are left out. A path in both lists is hidden. Each path is included
    as written and with its links resolved.
    """
    wanted = dict.fromkeys(_both_ways(readable), True) | dict.fromkeys(_both_ways(hidden), False)
    wanted.pop(Path("/"), None)
    below = [Layer(Path(path), shown=True) for path in system]
    sorted_layers: list[Layer] = []
    for path in sorted(wanted, key=lambda p: (len(p.parts), p)):
        under = [layer.shown for layer in (*below, *sorted_layers) if path.is_relative_to(layer.path)]
        if wanted[path] != (under[-1] if under else False) and _is_there(path):
            sorted_layers.append(Layer(path, wanted[path]))
    return sorted_layers


def sockets_and_pipes(folders: Iterable[Path]) -> list[Path]:
    """Return the sockets and named pipes below some folders, because processes of the host may listen on them.

    Links are not followed. InfrastructureError if the folders have too many entries.
    """
    paths, count = [], 0
    waiting = [folder for folder in dict.fromkeys(_both_ways(folders)) if folder.is_dir()]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif not (entry.is_file(follow_symlinks=False) or entry.is_symlink()):
                    paths.append(Path(entry.path))
        if count > MAX_ENTRIES:
            message = f"a folder that the policy's env shows to jobs holds more than {MAX_ENTRIES} entries"
            raise InfrastructureError(message, fix="Name a smaller folder in the policy.")
    return paths


def _both_ways(paths: Iterable[Path]) -> list[Path]:
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
        if parent.name == "snapshots" and parent.parent.name.startswith("models--"):
            return parent.parent
    return path
