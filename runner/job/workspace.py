"""A throw-away folder for one run: a home, a temporary folder, and the request's tree where its code is to run.

The tree is written from git objects, file by file: no checkout, no `.git`, no hook, no filter, no submodule.
"""

from __future__ import annotations

import errno
import os
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bridge.bus import objects, wire
from bridge.errors import GitError
from bridge.presets import Inputs, Preset
from bridge.presets.params import PathParam, Value
from bridge.system.git import Git
from bridge.system.git_output import Entry
from runner.job.remove import remove
from runner.lfs.pointer import Pointer, parse_pointer
from runner.policy import Limits
from runner.refusal import Refusal

_BATCH_FILES = 2_000
_BATCH_BYTES = 32 << 20
_ENTRY_BYTES = 512
_LINK_BYTES = 4_095
# Looked through for a job's inputs: all files below their folder, whatever they are called.
_INPUT_ENTRIES = 100_000
_SPARE_BYTES = 64
_SHOWN_CHARS = 80
# Errors whose cause is a tree that a file system cannot hold, whatever host it is.
_OF_THE_TREE = frozenset(
    (errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.EILSEQ, errno.EINVAL)
)
_TREE_BYTES = 64 << 20
# What an entry's mode says that it is: a folder, a file, a link, a submodule.
_KINDS = (0o040000, 0o100000, 0o120000, 0o160000)
# Folders that are there before anything is written.
_TAKEN = [str(parent) for parent in (PurePosixPath(wire.REPORTS), *PurePosixPath(wire.REPORTS).parents)][:-1]


@dataclass(frozen=True)
class Workspace:
    """Where a job runs: `tree` is its working directory, `home` its home."""

    tree: Path
    home: Path


@contextmanager
def workspace(state: Path, name: str) -> Iterator[Workspace]:
    """Make a folder for one run and remove it with all it holds afterwards."""
    parent = state / "work"
    parent.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
    try:
        place = Workspace(root / "tree", root / "home")
        place.tree.mkdir()
        (place.home / "tmp").mkdir(parents=True)
        (place.tree / wire.REPORTS).mkdir(parents=True)
        yield place
    finally:
        remove(root)


def sweep(state: Path) -> None:
    """Remove what runs that were killed left behind."""
    for left in (state / "work").glob("*"):
        remove(left)


def export_tree(git: Git, commit: str, root: Path, limits: Limits) -> list[Pointer]:
    """Write a commit's tree below `root`. Raises Refusal where it is too large or holds what no tree should.

    Symbolic links are written only where they point inside the tree; submodules stay empty folders. Returns the files
    that are only pointers of Git LFS.
    """
    with _refusing_what_no_disk_holds():
        return _export(git, commit, root, limits)


@contextmanager
def _refusing_what_no_disk_holds() -> Iterator[None]:
    """Turn the errors whose cause is the tree into a Refusal."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_THE_TREE:
            raise
        named = ascii(error.filename)[:_SHOWN_CHARS]
        raise Refusal("hostile_tree", f"the tree cannot be written: {named}: {error.strerror}") from error


def _export(git: Git, commit: str, root: Path, limits: Limits) -> list[Pointer]:
    entries = _list(git, commit, limits.tree_files)
    size = sum(entry.size for entry in entries)
    if size > limits.tree_mb << 20:
        raise Refusal("tree_too_large", f"the tree holds {size >> 20} MiB; {limits.tree_mb} are the most")
    _check_lengths(entries, root)
    _check_names(entries)
    submodules = [entry for entry in entries if entry.kind == "commit"]
    _check_modes(git, commit, submodules, limits.tree_files)
    pointers: list[Pointer] = []
    for batch in _batches(entry for entry in entries if entry.is_file):
        pointers += _write_files(git, batch, root)
    for entry in submodules:
        (root / entry.path).mkdir(parents=True, exist_ok=True)
    _write_links(git, [entry for entry in entries if entry.mode == "120000"], root)
    return pointers


def export_inputs(git: Git, commit: str, inputs: Inputs, root: Path) -> None:
    """Write the files of a commit that a job reads as data. Raises Refusal for what is no plain file, and for too much.

    Everything else of the tree stays where it is: nothing of it is run.
    """
    below = _list(git, commit, _INPUT_ENTRIES, inputs.under)
    entries = [entry for entry in below if entry.path.endswith(inputs.ending)]
    if len(entries) > inputs.files:
        message = f"{inputs.under} holds {len(entries)} files {inputs.ending}; {inputs.files} are the most"
        raise Refusal("inputs_too_large", message)
    for entry in entries:
        if not entry.is_file:
            kind = {"120000": "a symbolic link"}.get(entry.mode, "not a file")
            raise Refusal("bad_inputs", f"{entry.path!a} is {kind}: commit the file itself")
        if entry.size > inputs.file_mb << 20:
            message = f"{entry.path!a} holds {entry.size >> 20} MiB; {inputs.file_mb} are the most"
            raise Refusal("inputs_too_large", message)
    if sum(entry.size for entry in entries) > inputs.total_mb << 20:
        message = (
            f"the files {inputs.ending} below {inputs.under} hold more than {inputs.total_mb} MiB together"
        )
        raise Refusal("inputs_too_large", message)
    _check_lengths(entries, root)
    _check_names(entries)
    with _refusing_what_no_disk_holds():
        for batch in _batches(entries):
            _write_files(git, batch, root)


def check_paths(preset: Preset, params: Mapping[str, Value], root: Path) -> None:
    """Check that each path parameter names something that really lies below its folder. Raises Refusal."""
    for name, param in preset.params.items():
        if isinstance(param, PathParam):
            file = str(params[name]).partition("::")[0]
            try:
                real = (root / file).resolve()
            except (OSError, RuntimeError) as error:
                raise Refusal(
                    "path_escape", f"{name}: {file} leads nowhere: its links go round in a circle"
                ) from error
            if not real.exists():
                raise Refusal("no_such_path", f"{name}: the request's tree has no {file}")
            if real.is_dir() and not any(real.iterdir()):
                raise Refusal("no_such_path", f"{name}: {file} is a submodule, and a request brings none")
            if not any(real.is_relative_to((root / folder).resolve()) for folder in param.under) or (
                not real.is_relative_to(root.resolve())
            ):
                raise Refusal("path_escape", f"{name}: {file} leads out of {' or '.join(param.under)}")


def _list(git: Git, commit: str, most: int, *paths: str) -> list[Entry]:
    try:
        entries = objects.list_tree(git, commit, *paths, recursive=True, most=(most + 1) * _ENTRY_BYTES)
    except GitError as error:
        if error.returncode is not None:
            raise
        raise Refusal("tree_too_large", f"the tree holds far more than {most} files") from error
    if len(entries) > most:
        raise Refusal("tree_too_large", f"the tree holds {len(entries)} files; {most} are the most")
    return entries


def _batches(files: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Yield files that may be held in memory together; a larger one goes alone."""
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


def _check_lengths(entries: Iterable[Entry], root: Path) -> None:
    """Refuse names and paths that are longer than this host's file system takes."""
    # Somewhat less than it takes: jobs write beside these files.
    there = root if root.exists() else root.parent
    longest_path = os.pathconf(there, "PC_PATH_MAX") - len(os.fsencode(root)) - _SPARE_BYTES
    longest_name = os.pathconf(there, "PC_NAME_MAX")
    for entry in entries:
        path = os.fsencode(entry.path)
        if len(path) > longest_path or max(map(len, path.split(b"/"))) > longest_name:
            raise Refusal(
                "hostile_tree", f"the tree holds a name that is too long: {entry.path[:_SHOWN_CHARS]!a}..."
            )


def _check_names(entries: Iterable[Entry]) -> None:
    """Refuse names that a file system could fold into `.git`, or into another file or folder of the tree."""
    seen: dict[str, tuple[str, bool]] = {}
    for path in (entry.path for entry in entries):
        parts = path.split("/")
        if any(_is_forbidden(part) for part in parts):
            raise Refusal("hostile_tree", f"the tree holds {path!a}")
        for n in range(1, len(parts) + 1):
            here, is_folder = "/".join(parts[:n]), n < len(parts)
            if not is_folder and _fold(here) in _TAKEN:
                raise Refusal("hostile_tree", f"the tree holds {path!a}, where the folder of reports is")
            known = seen.setdefault(_fold(here), (here, is_folder))
            if known != (here, is_folder):
                message = f"the tree holds {path!a} in two spellings that a file system may take for one"
                raise Refusal("hostile_tree", message)


def _check_modes(git: Git, commit: str, submodules: list[Entry], most: int) -> None:
    """Refuse what git shows as a submodule because its mode is none that git knows: a device, a FIFO, a socket."""
    if not submodules:
        return
    holders = {entry.path.rpartition("/")[0] for entry in submodules}
    folders = objects.list_tree(git, commit, recursive=True, folders=True, most=(most + 1) * _ENTRY_BYTES)
    oids = [git.text("rev-parse", f"{commit}^{{tree}}")] if "" in holders else []
    oids += [entry.oid for entry in folders if entry.kind == "tree" and entry.path in holders]
    for oid, raw in zip(oids, objects.read_many(git, oids, max_bytes=_TREE_BYTES, kind="tree"), strict=True):
        if raw is None or any(mode & 0o170000 not in _KINDS for mode in _modes(raw, len(oid) // 2)):
            raise Refusal("hostile_tree", "the tree holds an entry of a kind that git does not know")


def _modes(tree: bytes, id_bytes: int) -> Iterator[int]:
    """Yield the mode of each entry of a tree object: mode in octal, space, name, NUL, id."""
    at = 0
    while at < len(tree):
        yield int(tree[at : tree.index(b" ", at)], 8)
        at = tree.index(b"\0", at) + 1 + id_bytes


def _is_forbidden(part: str) -> bool:
    """Say whether a name is none, leads elsewhere or is git's own, also as other systems read it."""
    pieces = [_fold(piece.partition(":")[0]) for piece in part.split("\\")]
    return not _fold(part) or any(piece in (".git", "git~1") for piece in pieces)


def _fold(name: str) -> str:
    """Return a name as case-insensitive file systems that normalise and skip zero-width characters see it."""
    ignored = {*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF}
    plain = "".join(c for c in unicodedata.normalize("NFD", name) if ord(c) not in ignored)
    return unicodedata.normalize("NFD", plain.casefold()).rstrip(" .")


def _write_files(git: Git, files: list[Entry], root: Path) -> list[Pointer]:
    """Write files, and return those that are pointers of Git LFS."""
    largest = max((entry.size for entry in files), default=0)
    blobs = objects.read_many(git, [entry.oid for entry in files], max_bytes=largest)
    for entry, blob in zip(files, blobs, strict=True):
        target = root / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = 0o755 if entry.mode == "100755" else 0o644
        with os.fdopen(
            os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb"
        ) as file:
            file.write(blob or b"")
    return [
        pointer
        for entry, blob in zip(files, blobs, strict=True)
        if (pointer := parse_pointer(entry.path, blob or b""))
    ]


def _write_links(git: Git, links: list[Entry], root: Path) -> None:
    """Links come last, so that no file is ever written through one; then each must lead to somewhere inside."""
    targets = objects.read_many(git, [link.oid for link in links], max_bytes=_LINK_BYTES)
    for link, target in zip(links, targets, strict=True):
        if not target or target.startswith(b"/") or b"\0" in target:
            raise Refusal("hostile_tree", f"the link {link.path!a} leads out of the tree")
        place = root / link.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.fsdecode(target))
    inside = Path(os.path.realpath(root))
    for link in links:
        if not Path(os.path.realpath(root / link.path)).is_relative_to(inside):
            raise Refusal("hostile_tree", f"the link {link.path!a} leads out of the tree")
        if _goes_in_a_circle(root / link.path):
            raise Refusal("hostile_tree", f"the link {link.path!a} goes round in a circle")


def _goes_in_a_circle(link: Path) -> bool:
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False
