"""Finds damage in the runner's store, as after a power cut, and makes a new store from the intact objects.

Git does not sync single objects by default, so a power cut can leave them empty. Git takes such a file
for an object that it has, and never fetches it again. The store is a cache of the bus, so its content can be fetched
again; only answers that were not pushed yet cannot, and these are synced when they are written.
"""

import hashlib
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bridge.common import limits
from bridge.errors import GitError
from bridge.system.git import Git

_OBJECT = re.compile(r"[0-9a-f]{38}")
_HEAD = re.compile(rb"ref: refs/\S+\n?|[0-9a-f]{40}\n?")
_SUM_BYTES = hashlib.sha1(usedforsecurity=False).digest_size
_PIECE = 1 << 20
# A quick search reads the objects written within this time before the newest one: they may not be synced yet.
_LAST_S = 600.0
# How long git may look for objects that are missing. A history that takes longer counts as whole.
_WALK_S = 20.0


def replace_damaged_store(store: Path, tell: Callable[[str], None]) -> None:
    """Move a damaged store aside, and create a new one. Call it while the state folder is locked."""
    finish_replacing(store)
    if not store.exists() or not (reason := damage(store)):
        return
    aside, new = (store.with_name(f"{store.name}.{suffix}") for suffix in ("damaged", "new"))
    shutil.rmtree(aside, ignore_errors=True)
    salvage(store, new)
    replace(store, aside, new)
    tell(f"the store is damaged: {reason}; it was moved to {aside} and is filled again from the bus")


def replace(store: Path, aside: Path, new: Path) -> None:
    """Move a repository aside, and move the complete ``new`` repository to its path."""
    store.rename(aside)
    new.rename(store)


def finish_replacing(store: Path) -> None:
    """Finish a ``replace`` that was killed. If ``store`` is missing, the new repository is complete."""
    new = store.with_name(f"{store.name}.new")
    if new.is_dir() and not store.exists():
        new.rename(store)


def salvage(store: Path, new: Path, *, unpacks: bool = False) -> None:
    """Make a bare repository of the intact objects, without references. With ``unpacks``, search damaged packs too."""
    shutil.rmtree(new, ignore_errors=True)
    git = _isolated(new)
    git("init", "--bare", "--quiet", "--template=", str(new))
    whole = [path for path, is_whole in _objects(store, quick=False) if is_whole]
    for path in whole:
        copy = new / path.relative_to(store)
        copy.parent.mkdir(exist_ok=True)
        try:
            copy.hardlink_to(path)
        except OSError:  # not every file system has hard links
            shutil.copy2(path, copy)
    for pack in {*store.glob("objects/pack/pack-*.pack")} - {*whole} if unpacks else ():
        git("unpack-objects", "-r", "-q", stdin=pack.read_bytes(), ok=range(256))


def damage(store: Path, *, quick: bool = True, is_walked: bool = True) -> str:
    """Return the damage in a bare repository, or an empty string. A quick search reads only the last objects.

    With ``is_walked``, git also looks for missing objects. A file that this user may not read does not count as damage,
    nor does a full disk.
    """
    head = store / "HEAD"
    if not head.is_file() or not _HEAD.fullmatch(head.read_bytes()):
        return f"{head} is missing or no reference"
    for path, is_whole in _objects(store, quick=quick):
        if not is_whole:
            return f"{path} is not what it was when it was written"
    return _complaint(_isolated(store), is_walked=is_walked)


def _complaint(git: Git, *, is_walked: bool) -> str:
    """Return git's message about the references and their objects, if anything is wrong with them."""
    try:
        listed = git("for-each-ref", "--format=%(objectname)")
        if b"broken ref" in listed.stderr:
            return listed.stderr.decode("utf-8", "replace").strip()
        if is_walked:
            git("rev-list", "--objects", "--quiet", "--all", timeout=_WALK_S)
    except GitError as error:
        return "" if error.returncode is None else error.summary()
    return ""


def _objects(store: Path, *, quick: bool) -> Iterator[tuple[Path, bool]]:
    """Yield each file with objects, and whether it is whole. A pack counts as whole only together with its index."""
    loose = [path for path in store.glob("objects/[0-9a-f][0-9a-f]/*") if _OBJECT.fullmatch(path.name)]
    written = {path: path.stat().st_mtime for path in loose}
    last = max(written.values(), default=0.0)
    for path in loose:
        is_read = not quick or written[path] >= last - _LAST_S
        yield path, _holds(partial(_is_whole_object, path)) if is_read else path.stat().st_size > 0
    # A pack without an index is not used yet.
    for index in store.glob("objects/pack/pack-*.idx"):
        pack = index.with_suffix(".pack")
        is_whole = _holds(partial(_is_whole_pack, pack, index, quick=quick))
        yield from ((pack, is_whole), (index, is_whole))


def _holds(check: Callable[[], bool]) -> bool:
    """Return whether a check of files succeeds. Files that this user may not read count as whole."""
    try:
        return check()
    except PermissionError:
        return True
    except (OSError, zlib.error):
        return False


def _is_whole_object(path: Path) -> bool:
    """Return whether a loose object's content matches its name."""
    name, unpack = hashlib.sha1(usedforsecurity=False), zlib.decompressobj()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            while piece:
                name.update(unpack.decompress(piece, _PIECE))
                piece = unpack.unconsumed_tail
    return unpack.eof and name.hexdigest() == path.parent.name + path.name


def _is_whole_pack(pack: Path, index: Path, *, quick: bool) -> bool:
    """Return whether pack and index end with the checksums of their content, and agree on the pack's checksum."""
    if _end(pack, _SUM_BYTES) != _end(index, 2 * _SUM_BYTES)[:_SUM_BYTES]:
        return False
    return quick or (_is_summed(pack) and _is_summed(index))


def _end(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(-size, os.SEEK_END)
        return file.read()


def _is_summed(path: Path) -> bool:
    total, remaining = hashlib.sha1(usedforsecurity=False), path.stat().st_size - _SUM_BYTES
    with path.open("rb") as file:
        while remaining > 0 and (piece := file.read(min(remaining, _PIECE))):
            total.update(piece)
            remaining -= len(piece)
        return file.read() == total.digest()


def _isolated(store: Path) -> Git:
    return Git.isolated(store, memory=limits.GIT_MEMORY_BYTES)
