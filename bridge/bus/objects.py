"""Creates and reads git objects with plumbing commands: no index, working tree, hook or filter is involved."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bridge.bus.writer import Identity as Identity  # noqa: PLC0414 - for callers that make commits
from bridge.bus.writer import Writer
from bridge.bus.writer import write_blob as write_blob  # noqa: PLC0414
from bridge.common import limits
from bridge.errors import GitError, InfrastructureError
from bridge.system import batch, git_output
from bridge.system.git import Git
from bridge.system.git_output import Entry, ObjectInfo


@dataclass(frozen=True)
class BlobId:
    """A blob that is stored already."""

    oid: str
    mode: str = "100644"


Files = Mapping[str, bytes | BlobId | None]

# A reference's whole name, not an expression. If it is missing, git takes another one with a similar name.
_REF = re.compile(r"refs/[^\s~^:?*\[\\@]+")

# The empty tree. Git stores no empty folders.
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

MAX_BYTES_BY_KIND = {"commit": limits.COMMIT_BYTES, "tree": limits.TREE_BYTES, "tag": limits.COMMIT_BYTES}


def locate(
    git: Git,
    names: Iterable[str],
    too_large: dict[str, ObjectInfo] | None = None,
    known: dict[str, ObjectInfo | None] | None = None,
) -> dict[str, ObjectInfo]:
    """Return id, kind and size of the object of each name: an id, ``<commit>:<path>``, or ``<commit>^:<path>``.

    Names of missing objects are left out, and names that lead through a commit or folder beyond the limits: git reads
    these whole, so the size of each is checked first. ``too_large`` gets the oversized object for each such name.
    """
    steps = {name: _steps(name) for name in dict.fromkeys(names)}
    at: dict[str, str] = {name: parts[0] for name, parts in steps.items() if parts}
    there: dict[str, ObjectInfo] = {}
    if not at:
        return there
    with batch.releasing(git.acquire("cat-file", "--batch-check")) as process:
        objects: dict[str, ObjectInfo | None] = {} if known is None else known
        depth = 1
        while at:
            new = [revision for revision in dict.fromkeys(at.values()) if revision not in objects]
            process.ask(new)
            objects |= {revision: git_output.object_of(process.child.line()) for revision in new}
            following: dict[str, str] = {}
            for name, revision in at.items():
                here, parts = objects.get(revision), steps[name]
                if here is None:
                    continue
                if depth == len(parts):
                    there[name] = here
                elif here.size <= MAX_BYTES_BY_KIND.get(here.kind, -1):
                    following[name] = f"{here.oid}{parts[depth]}"
                elif too_large is not None and here.kind in MAX_BYTES_BY_KIND:
                    too_large[name] = here
            at, depth = following, depth + 1
    return there


def _steps(name: str) -> list[str]:
    """Split a name into steps for git: each step is appended to the id that the previous one gave."""
    root, colon, path = name.partition(":")
    # Git takes one name per line. A line break in a stranger's path would shift all names after it.
    if not root or "\n" in name or "\0" in name:
        return []
    steps = [root[:-1], "^"] if root.endswith("^") else [root]
    if colon:
        parts = path.split("/") if path else []
        if len(parts) > limits.PATH_PARTS or any(part in ("", ".", "..") for part in parts):
            return []
        steps += ["^{tree}", *(f":{part}" for part in parts)]
    return steps


def entry_at(git: Git, commit: str, path: str) -> Entry | None:
    """Return the entry at a path of a commit, without its size; None if there is none, or more than one."""
    folder, _, name = path.rpartition("/")
    (raw,) = read_many(git, [f"{commit}:{folder}"], max_bytes=limits.TREE_BYTES, kind="tree")
    # There may be a hundred thousand entries, of which one is kept.
    named = [entry for entry in git_output.tree(raw or b"") if entry.path == name]
    return named[0] if len(named) == 1 else None


def read_blob(git: Git, commit: str, path: str, *, max_bytes: int) -> bytes | None:
    """Return a regular file's content in a commit, or None if there is no regular file at ``path``.

    Raises:
        InfrastructureError: with code ``too_large`` past ``max_bytes``; the content is then not read.
    """
    entry = entry_at(git, commit, path)
    if entry is None or not entry.is_file:
        return None
    if object_sizes(git, [entry.oid]).get(entry.oid, 0) > max_bytes:
        raise InfrastructureError(f"{path} is larger than {max_bytes} bytes", code="too_large")
    ((_, content),) = each_content(git, [entry.oid])
    return content


def read_many(git: Git, names: Sequence[str], *, max_bytes: int, kind: str = "blob") -> list[bytes | None]:
    """Return the contents of many blobs, named as ``<commit>:<path>``, at once; None for missing or large ones.

    With another ``kind`` these are objects of that kind and no other. ``locate`` bounds the way to them. A symbolic
    link counts as its target's name, so what is read must still be parsed strictly.
    """
    there = locate(git, names)
    wanted = [
        entry.oid if (entry := there.get(name)) and entry.kind == kind and entry.size <= max_bytes else None
        for name in names
    ]
    contents = dict(each_content(git, list(dict.fromkeys(oid for oid in wanted if oid))))
    return [contents[oid] if oid else None for oid in wanted]


def each_content(git: Git, oids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the content of each object, one at a time. All must exist, and their sizes must have been checked."""
    for oid, pieces in each_in_pieces(git, oids, sys.maxsize):
        yield oid, b"".join(pieces)


def each_in_pieces(git: Git, oids: Sequence[str], most: int) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield each object with its content in pieces of at most ``most`` bytes. Read each object before the next one.

    So a large object takes no more memory than a small one.

    Raises:
        InfrastructureError: one is missing.
    """
    if not oids:
        return
    process, remaining = git.acquire("cat-file", "--batch"), len(oids)
    child = process.child

    def pieces(size: int) -> Iterator[bytes]:
        nonlocal remaining
        for start in range(0, size, most):
            yield child.read(min(most, size - start))
        child.read(1)
        remaining -= 1
        if not remaining:
            # Release it now: callers that know the number of objects do not exhaust this generator.
            batch.release(process)

    try:
        process.ask(oids)
        for oid in oids:
            entry = git_output.object_of(child.line())
            if entry is None:
                raise InfrastructureError(f"the object {oid[:12]} is missing", code="missing_object")
            yield oid, pieces(entry.size)
    finally:
        if remaining:
            child.close()


def object_sizes(git: Git, oids: Sequence[str]) -> dict[str, int]:
    """Return the sizes of stored objects in bytes, without reading any. Missing objects are left out."""
    return {oid: entry.size for oid, entry in locate(git, oids).items()}


def overlay(git: Git, base: str | None, files: Files, writer: Writer | None = None) -> str:
    """Return a tree like ``base`` with some files replaced, added, or (if None) removed with everything below them.

    Only the folders on the way to a changed file are read and written, so a large tree costs no more than a small one.
    Everything else stays as it is. With a ``writer``, which stores it with what else is made, nothing is stored yet.
    """
    builder = writer or Writer(git)
    tree = _overlay(git, base, files, builder)
    if writer is None:
        builder.store()
    return tree


def _overlay(git: Git, base: str | None, files: Files, writer: Writer) -> str:
    here: dict[str, bytes | BlobId | None] = {}
    below: dict[str, dict[str, bytes | BlobId | None]] = {}
    for path, content in files.items():
        head, _, rest = path.partition("/")
        if rest:
            below.setdefault(head, {})[rest] = content
        else:
            here[head] = content
    # A large folder is kept as git stores it, once per level, not as one object per entry.
    (raw,) = read_many(git, [f"{base}:"], max_bytes=limits.TREE_BYTES, kind="tree") if base else [b""]
    if raw is None:
        message = f"{str(base)[:12]} is no commit or folder of up to {limits.TREE_BYTES} bytes"
        raise InfrastructureError(message, code="too_large")
    touched = here.keys() | below.keys()
    changed = (entry for entry in git_output.tree(raw) if entry.path in touched)
    entries = {entry.path: (entry.mode, entry.oid) for entry in changed}
    for name, content in here.items():
        entries.pop(name, None)
        if content is not None:
            blob = content if isinstance(content, BlobId) else BlobId(writer.blob(content))
            entries[name] = (blob.mode, blob.oid)
    for name, inner in below.items():
        mode, start = entries.get(name, ("", None))
        if mode != "040000" or name in here:
            start = None
        if start is None and all(content is None for content in inner.values()):
            continue
        tree = _overlay(git, start, inner, writer)
        entries.pop(name, None)
        if tree != EMPTY_TREE:
            entries[name] = ("040000", tree)
    return writer.tree(entries, raw, touched)


def commit(
    git: Git, tree: str, parents: Iterable[str], message: str, who: Identity | None, *, sign: bool = False
) -> str:
    """Store a commit and return its id. Without ``who``, git's own configuration names the author.

    With ``sign`` it is signed with the user's SSH key, whatever format git would choose.
    """
    env = {}
    if who:
        env = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER")
               for part, value in (("NAME", who.name), ("EMAIL", who.email))}  # fmt: skip
    flags = [flag for parent in parents for flag in ("-p", parent)]
    options = ("-c", "gpg.format=ssh") if sign else ()
    signing = ("--gpg-sign",) if sign else ()
    return git.with_env(**env).text(*options, "commit-tree", tree, *signing, *flags, stdin=message)


def resolve(git: Git, name: str) -> str | None:
    """Return the id of the commit that a name stands for, or None. A full reference name is not completed."""
    if _REF.fullmatch(name):
        name = git.maybe("show-ref", "--verify", "--hash", "--", name) or ""
    commit = f"{name}^{{commit}}"
    try:
        entry = locate(git, [commit]).get(commit)
    except GitError:
        return None
    return entry.oid if entry else None


def is_commit(git: Git, name: str) -> bool:
    """Return whether a name is the full id of a commit in this repository."""
    entry = locate(git, [name]).get(name)
    return entry is not None and entry.kind == "commit" and entry.oid == name


def read_commit(git: Git, commit_id: str | None) -> bytes | None:
    """Return a commit as git stores it; None if it is missing, too large, or no commit."""
    (raw,) = read_many(git, [commit_id or ""], max_bytes=limits.COMMIT_BYTES, kind="commit")
    return raw


def parents_of(git: Git, commit_id: str) -> list[str]:
    """Return a commit's parents, even in a shallow clone; InfrastructureError if the commit is missing or too large."""
    raw = read_commit(git, commit_id)
    if raw is None:
        message = f"{commit_id[:12]} is no commit of up to {limits.COMMIT_BYTES} bytes"
        raise InfrastructureError(message, code="too_large")
    return git_output.parents(raw)
