"""What a sandbox shows and hides of the host's file system."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import ProcessError
from bridge.system.process import run

_ASK_S = 60
# Everything from which this interpreter may import, and the sources of what is installed in place.
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
    """A path that is shown to the job, or hidden within what is shown. The later, the higher."""

    path: Path
    shown: bool


def needed_by(interpreter: Path) -> list[Path]:
    """Return what an interpreter reads to start and to import: its prefixes, its packages, editable sources.

    Of a folder of sources only what can be imported counts, so that a checkout's `.git` and `.env` do not. An
    interpreter that cannot be asked needs nothing.
    """
    try:
        told = json.loads(
            run(str(interpreter), "-I", "-c", _ASK, env={"LC_ALL": "C.UTF-8"}, timeout=_ASK_S).stdout
        )
    except (ProcessError, ValueError):
        return []
    homes = [Path(home) for home in told["homes"]]
    found = dict.fromkeys(homes)
    for path in map(Path, told["path"]):
        if path.name in ("site-packages", "dist-packages") or not path.is_dir():
            found[path] = None
        elif not any(path.is_relative_to(home) for home in homes):
            found |= dict.fromkeys(_importable(path))
    return list(found)


def layers(readable: Iterable[Path], hidden: Iterable[Path], system: Iterable[str]) -> list[Layer]:
    """Put what is shown and what is hidden in an order in which each lies upon what contains it.

    What is already as wanted is left out, and so is what does not exist. What is named both ways is hidden.
    Paths count as they are written and as they really are.
    """
    wanted = dict.fromkeys(_both_ways(readable), True) | dict.fromkeys(_both_ways(hidden), False)
    wanted.pop(Path("/"), None)
    below = [Layer(Path(path), shown=True) for path in system]
    found: list[Layer] = []
    for path in sorted(wanted, key=lambda p: (len(p.parts), p)):
        under = [layer.shown for layer in (*below, *found) if path.is_relative_to(layer.path)]
        if wanted[path] != (under[-1] if under else False) and _is_there(path):
            found.append(Layer(path, wanted[path]))
    return found


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
    except OSError:  # it lies where this user may not look
        return False


def with_hub(path: Path) -> Path:
    """Return what a model needs: in a hub's cache a snapshot is made of links to the blobs beside it."""
    for parent in path.parents:
        if parent.name == "snapshots" and parent.parent.name.startswith("models--"):
            return parent.parent
    return path
