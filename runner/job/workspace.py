"""A temporary folder for one run: a home, a temporary folder, and the request's tree if its code is to run.

The tree is written from git objects, file by file: no checkout, no ``.git``, no hook, no filter, no submodule.
"""

import errno
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bridge.bus import objects, wire
from bridge.presets import Inputs, Preset
from bridge.presets.params import PathParam, Value
from bridge.system.git import Git
from bridge.system.git_output import Entry
from runner.job import request_tree
from runner.lfs.pointer import Pointer, parse_pointer
from runner.policy import Limits
from runner.refusal import Refusal, Unable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BATCH_FILES = 2_000
_BATCH_BYTES = 32 << 20
_LINK_BYTES = 4_095
_PIECE_BYTES = 1 << 20
# How many files below the inputs' folder are examined, whatever their names.
_INPUT_ENTRIES = 100_000
_SHOWN_CHARS = 80
# Bound on links and submodules, which are held in memory; honest trees have few of them.
_MOST_ODD = 20_000
# Errors that show that no file system could store the tree, on any host.
_OF_THE_TREE = frozenset(
    (errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.EILSEQ, errno.EINVAL)
)


@dataclass(frozen=True)
class Workspace:
    """A job's folders: ``tree`` is its working directory, ``home`` its home."""

    tree: Path
    home: Path


@contextmanager
def workspace(state_folder: Path, name: str) -> Iterator[Workspace]:
    """Create a folder for one run, and remove it with its content afterwards."""
    parent = state_folder / "work"
    parent.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
    try:
        space = Workspace(root / "tree", root / "home")
        (space.home / "tmp").mkdir(parents=True)
        (space.tree / wire.REPORTS).mkdir(parents=True)
        yield space
    finally:
        remove(root)


def remove_leftovers(state_folder: Path) -> None:
    """Remove the folders of killed runs."""
    for leftover in (state_folder / "work").glob("*"):
        remove(leftover)


@contextmanager
def _refusing_what_no_disk_holds() -> Iterator[None]:
    """Convert errors that the tree itself causes into a Refusal."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_THE_TREE:
            raise
        named = ascii(error.filename)[:_SHOWN_CHARS]
        raise Refusal("hostile_tree", f"the tree cannot be written: {named}: {error.strerror}") from error


@_refusing_what_no_disk_holds()
def export_tree(
    git: Git, commit: str, root: Path, limits: Limits, attend: Callable[[], None] = lambda: None
) -> list[Pointer]:
    """Write a commit's tree below ``root``, and return the files that are Git LFS pointers.

    Symbolic links are written only if they stay inside the tree; submodules become empty folders. ``attend`` is called
    regularly meanwhile, and may raise. Refusal if it is too large or has forbidden entries.
    """
    others = _check(git, commit, root, limits, attend)
    pointers: list[Pointer] = []
    entries = request_tree.tree_entries(git, commit, limits.tree_files)
    for batch in _batches(entry for entry in entries if entry.is_file):
        pointers += _write_files(git, batch, root)
        attend()
    for entry in others:
        if entry.kind == "commit":
            (root / entry.path).mkdir(parents=True, exist_ok=True)
    _write_links(git, [entry for entry in others if entry.mode == "120000"], root)
    return pointers


def _check(git: Git, commit: str, root: Path, limits: Limits, attend: Callable[[], None]) -> list[Entry]:
    """Check a whole tree before any of it is written. Returns its links and submodules."""
    names, size, others = request_tree.TreeNameChecker(root, limits.tree_files), 0, []
    for i, entry in enumerate(request_tree.tree_entries(git, commit, limits.tree_files)):
        size += entry.size
        names.check(entry.path)
        others += [] if entry.is_file else [entry]
        if len(others) > _MOST_ODD:
            raise Unable("tree_too_large", f"the tree holds more than {_MOST_ODD} links and submodules")
        if i % _BATCH_FILES == 0:
            attend()
    if size > limits.tree_mb << 20:
        raise Unable("tree_too_large", f"the tree holds {size >> 20} MiB; {limits.tree_mb} are the most")
    submodules = [entry for entry in others if entry.kind == "commit"]
    request_tree.check_modes(git, commit, submodules, limits.tree_files)
    return others


@_refusing_what_no_disk_holds()
def export_inputs(git: Git, commit: str, inputs: Inputs, root: Path) -> None:
    """Write only the files that a job reads as data.

    The rest of the commit is not written, and none of it is run. Refusal if there are irregular files, or they are too
    large.
    """
    entries, count = [], 0
    for entry in request_tree.tree_entries(git, commit, _INPUT_ENTRIES, inputs.under):
        if entry.path.endswith(inputs.endings):
            count += 1
            entries += [entry] if count <= inputs.files else []
    if count > inputs.files:
        files = f"files {' or '.join(inputs.endings)}"
        message = f"{inputs.under} holds {count} {files}; {inputs.files} are the most"
        raise Refusal("inputs_too_large", message)
    for entry in entries:
        if not entry.is_file:
            kind = "a symbolic link" if entry.mode == "120000" else "not a file"
            raise Refusal("bad_inputs", f"{entry.path!a} is {kind}: commit the file itself")
        if entry.size > inputs.file_mb << 20:
            message = f"{entry.path!a} holds {entry.size >> 20} MiB; {inputs.file_mb} are the most"
            raise Refusal("inputs_too_large", message)
    if sum(entry.size for entry in entries) > inputs.total_mb << 20:
        message = f"its files below {inputs.under} hold more than {inputs.total_mb} MiB together"
        raise Refusal("inputs_too_large", message)
    names = request_tree.TreeNameChecker(root, _INPUT_ENTRIES)
    for entry in entries:
        names.check(entry.path)
    for batch in _batches(entries):
        _write_files(git, batch, root)


def check_paths(preset: Preset, params: Mapping[str, Value], root: Path) -> None:
    """Raise Refusal for a path parameter that, with links resolved, is not below one of its allowed folders."""
    for name, param in preset.params.items():
        if not isinstance(param, PathParam):
            continue
        file = str(params[name]).partition("::")[0]
        try:
            real = (root / file).resolve()
        except (OSError, RuntimeError) as error:
            message = f"{name}: {file} cannot be resolved: its links form a loop"
            raise Refusal("path_escape", message) from error
        if not real.exists():
            raise Refusal("no_such_path", f"{name}: the request's tree has no {file}")
        if real.is_dir() and not any(real.iterdir()):
            message = f"{name}: {file} is a submodule, and requests do not include submodules"
            raise Refusal("no_such_path", message)
        inside = any(real.is_relative_to((root / folder).resolve()) for folder in param.under)
        if not inside or not real.is_relative_to(root.resolve()):
            raise Refusal("path_escape", f"{name}: {file} leads out of {' or '.join(param.under)}")


def _batches(files: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Yield batches of files that fit into memory together. A larger file is a batch of its own."""
    batch: list[Entry] = []
    size = 0
    for file in files:
        if batch and (len(batch) == _BATCH_FILES or size + file.size > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch


def _write_files(git: Git, files: list[Entry], root: Path) -> list[Pointer]:
    """Write files, and return those that are Git LFS pointers. A large file is written in pieces."""
    if len(files) == 1 and files[0].size > _BATCH_BYTES:
        for _, pieces in objects.each_in_pieces(git, [files[0].oid], _PIECE_BYTES):
            with _create(root, files[0]) as file:
                file.writelines(pieces)
        return []
    largest = max((entry.size for entry in files), default=0)
    blobs = objects.read_many(git, [entry.oid for entry in files], max_bytes=largest)
    pointers = []
    for entry, blob in zip(files, blobs, strict=True):
        with _create(root, entry) as file:
            file.write(blob or b"")
        if pointer := parse_pointer(entry.path, blob or b""):
            pointers.append(pointer)
    return pointers


def _create(root: Path, entry: Entry) -> IO[bytes]:
    """Create a file for an entry, never through a link."""
    target = root / entry.path
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o755 if entry.mode == "100755" else 0o644
    return os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb")


def _write_links(git: Git, links: list[Entry], root: Path) -> None:
    """Write links last, so that no file is written through one. Then check that each stays inside the tree."""
    targets = objects.read_many(git, [link.oid for link in links], max_bytes=_LINK_BYTES)
    for link, target in zip(links, targets, strict=True):
        if not target or target.startswith(b"/") or b"\0" in target:
            raise Refusal("hostile_tree", f"the link {link.path!a} leads out of the tree")
        path = root / link.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.fsdecode(target))
    inside = Path(os.path.realpath(root))
    for link in links:
        if not Path(os.path.realpath(root / link.path)).is_relative_to(inside):
            raise Refusal("hostile_tree", f"the link {link.path!a} leads out of the tree")
        if _goes_in_a_circle(root / link.path):
            raise Refusal("hostile_tree", f"the link {link.path!a} is part of a loop")


def _goes_in_a_circle(link: Path) -> bool:
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def remove(root: Path) -> None:
    """Remove a folder with its content. Anything that cannot be removed stays until the next removal of leftovers.

    Nested folders are moved up to the top, one level at a time, so that neither paths nor the stack grow with the
    depth. Links are removed and not followed.
    """
    with suppress(OSError):
        root.chmod(0o700)
        _empty_all(os.open(root, _FOLDER))
        root.rmdir()


def _empty_all(folder: int, top: int | None = None) -> None:
    """Remove a folder's content, and close the folder."""
    try:
        while _empty(folder, folder if top is None else top):
            pass
    finally:
        os.close(folder)


def _empty(folder: int, top: int) -> bool:
    """Remove a folder's files, and move its folders up to ``top``. Returns whether anything was removed or moved."""
    went = False
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if not stat.S_ISDIR(os.lstat(entry.name, dir_fd=folder).st_mode):
                    os.unlink(entry.name, dir_fd=folder)
                else:
                    os.chmod(entry.name, 0o700, dir_fd=folder)  # moving a folder needs write permission on it
                    if folder != top:
                        new = f"left-{secrets.token_hex(8)}"
                        os.rename(entry.name, new, src_dir_fd=folder, dst_dir_fd=top)
                    else:
                        _empty_all(os.open(entry.name, _FOLDER, dir_fd=top), top)
                        os.rmdir(entry.name, dir_fd=top)
                went = True
    return went
