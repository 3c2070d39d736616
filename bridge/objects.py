"""Git objects made and read by plumbing: no index, no working tree, no hook and no filter takes part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bridge import limits
from bridge.errors import GitError, InfrastructureError
from bridge.git import Git


@dataclass(frozen=True)
class Existing:
    """A blob that is stored already."""

    oid: str


Files = Mapping[str, bytes | Existing | None]

# The tree with nothing in it, under SHA-1 and under SHA-256. Git keeps no empty folders.
EMPTY_TREES = (
    "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
)


@dataclass(frozen=True)
class Entry:
    """One line of a tree."""

    mode: str
    kind: str
    oid: str
    size: int
    path: str

    @property
    def is_file(self) -> bool:
        """Say whether it is a regular file, executable or not."""
        return self.mode in ("100644", "100755")


@dataclass(frozen=True)
class Identity:
    """Who a commit is by."""

    name: str
    email: str


def list_tree(
    git: Git, tree: str, *paths: str, recursive: bool = False, folders: bool = False, most: int | None = None
) -> list[Entry]:
    """Return the entries of a tree (or of a commit's tree), or just those at `paths`; with `folders` no files.

    Raises GitError past `most` bytes: a few objects can unfold to more files than fit anywhere.
    """
    flags = ["-r"] if recursive else []
    flags += ["-d"] if folders else []
    raw = git("ls-tree", "-z", "-l", *flags, "--full-tree", tree, "--", *paths, most=most).stdout
    entries = []
    for line in raw.split(b"\0")[:-1]:
        meta, _, path = line.partition(b"\t")
        mode, kind, oid, size = meta.decode().split()
        name = path.decode("utf-8", "surrogateescape")
        entries.append(Entry(mode, kind, oid, 0 if size == "-" else int(size), name))
    return entries


def read_blob(git: Git, commit: str, path: str, *, max_bytes: int) -> bytes | None:
    """Return a regular file's content in a commit, or None where there is no regular file at `path`.

    Raises InfrastructureError with code `too_large` past `max_bytes`; the content is then not read.
    """
    entries = list_tree(git, commit, path)
    if not entries or not entries[0].is_file:
        return None
    if entries[0].size > max_bytes:
        raise InfrastructureError(f"{path} is larger than {max_bytes} bytes", code="too_large")
    return git("cat-file", "blob", entries[0].oid).stdout


def read_many(git: Git, names: Sequence[str], *, max_bytes: int, kind: str = "blob") -> list[bytes | None]:
    """Return the contents of many blobs, named as `<commit>:<path>`, in one call; None for the missing and the large.

    With another `kind` these are objects of that kind and no other.

    A symbolic link counts as its target's name, so what is read must still be parsed strictly.
    """
    # git takes one name a line; a stranger's path with a line break in it would shift all that follow.
    asked = [name for name in dict.fromkeys(names) if "\n" not in name]
    if not asked:
        return [None] * len(names)
    sizes = git(
        "cat-file", "--batch-check=%(objecttype) %(objectsize) %(objectname)", stdin="\n".join(asked) + "\n"
    )
    wanted: dict[str, str] = {}
    for name, line in zip(asked, sizes.stdout.split(b"\n"), strict=False):
        found_kind, _, rest = line.decode("utf-8", "replace").partition(" ")
        size, _, oid = rest.partition(" ")
        if found_kind == kind and int(size) <= max_bytes:
            wanted[name] = oid
    found = dict(_contents(git, list(dict.fromkeys(wanted.values()))))
    return [found[wanted[name]] if name in wanted else None for name in names]


def _contents(git: Git, oids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    if not oids:
        return
    raw = git("cat-file", "--batch", stdin="\n".join(oids) + "\n").stdout
    at = 0
    for oid in oids:
        end = raw.index(b"\n", at)
        size = int(raw[at:end].split()[2])
        yield oid, raw[end + 1 : end + 1 + size]
        at = end + 2 + size


def sizes(git: Git, oids: Sequence[str]) -> dict[str, int]:
    """Return how many bytes stored objects have, without reading any. Those that are missing are left out."""
    asked = "".join(f"{oid}\n" for oid in dict.fromkeys(oids))
    if not asked:
        return {}
    said = git("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=asked).stdout
    pairs = (line.split(b" ") for line in said.split(b"\n")[:-1])
    return {oid.decode(): int(size) for oid, size in pairs if size.isdigit()}


class Reader:
    """Reads objects one after the other, each in pieces, so that a large one takes no more memory than a small one."""

    def __init__(self, git: Git) -> None:
        self._child = git.start("cat-file", "--batch")

    def pieces(self, oid: str, most: int) -> Iterator[bytes]:
        """Yield an object's content in pieces of at most `most` bytes. Raises GitError where it is missing."""
        source, sink = self._child.stdout, self._child.stdin
        assert source is not None  # noqa: S101 - both are pipes
        assert sink is not None  # noqa: S101
        sink.write(f"{oid}\n".encode())
        sink.flush()
        head = source.readline().split()
        if len(head) != 3:  # noqa: PLR2004 - id, kind, size
            raise GitError(("git", "cat-file"), None, message=f"the object {oid} is missing")
        left = int(head[2])
        while left:
            piece = source.read(min(left, most))
            if not piece:
                raise GitError(("git", "cat-file"), None, message=f"the object {oid} cannot be read")
            left -= len(piece)
            yield piece
        source.read(1)

    def close(self) -> None:
        """End."""
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._child.wait()


def write_blob(git: Git, content: bytes) -> str:
    """Store a blob and return its id."""
    return git("hash-object", "-w", "--stdin", stdin=content).text


def overlay(git: Git, base: str | None, files: Files) -> str:
    """Return a tree like `base` with some files replaced, added, or (where None) removed with all below them.

    Only the folders on the way to a changed file are read and written, so a large tree costs no more than a small one.
    Submodules, links and modes of everything else stay as they are.
    """
    here: dict[str, bytes | Existing | None] = {}
    below: dict[str, dict[str, bytes | Existing | None]] = {}
    for path, content in files.items():
        head, _, rest = path.partition("/")
        if rest:
            below.setdefault(head, {})[rest] = content
        else:
            here[head] = content
    lines = {e.path: (e.mode, e.kind, e.oid) for e in list_tree(git, base)} if base else {}
    for name, content in here.items():
        lines.pop(name, None)
        if content is not None:
            oid = content.oid if isinstance(content, Existing) else write_blob(git, content)
            lines[name] = ("100644", "blob", oid)
    for name, inner in below.items():
        old = lines.get(name)
        start = old[2] if old and old[1] == "tree" and name not in here else None
        if start is None and all(content is None for content in inner.values()):
            continue
        tree = overlay(git, start, inner)
        lines.pop(name, None)
        if tree not in EMPTY_TREES:
            lines[name] = ("040000", "tree", tree)
    text = b"".join(
        f"{mode} {kind} {oid}\t".encode() + name.encode("utf-8", "surrogateescape") + b"\0"
        for name, (mode, kind, oid) in lines.items()
    )
    # --missing: a partial clone need not hold what it only passes on.
    return git("mktree", "-z", "--missing", stdin=text).text


def commit(
    git: Git, tree: str, parents: Iterable[str], message: str, who: Identity | None, *, sign: bool = False
) -> str:
    """Store a commit and return its id. Without `who` git's own configuration says who it is by.

    With `sign` it is signed with the user's SSH key, whatever format git would choose.
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
    """Return the id of the commit that a name stands for, or None."""
    try:
        return git.maybe("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    except GitError:
        return None


def is_commit(git: Git, name: str) -> bool:
    """Say whether a name is the whole id of a commit that is here."""
    return resolve(git, name) == name


def parent_of(git: Git, commit_id: str) -> str | None:
    """Return a commit's first parent, read from the commit itself, so that it works in a shallow clone too."""
    return next(iter(parents_of(git, commit_id)), None)


def parents_of(git: Git, commit_id: str) -> list[str]:
    """Return the parents that a commit names."""
    (raw,) = read_many(git, [commit_id], max_bytes=limits.COMMIT_BYTES, kind="commit")
    if raw is None:
        message = f"the commit {commit_id[:12]} is missing, or larger than {limits.COMMIT_BYTES} bytes"
        raise InfrastructureError(message, code="too_large")
    header = raw.split(b"\n\n", 1)[0]
    return [line[7:].decode() for line in header.split(b"\n") if line.startswith(b"parent ")]
