"""Git objects made and read by plumbing: no index, no working tree, no hook and no filter takes part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from bridge import limits
from bridge.errors import GitError, InfrastructureError
from bridge.system import git_output
from bridge.system.git import Git
from bridge.system.git_output import Entry, Found


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
class Identity:
    """Who a commit is by."""

    name: str
    email: str


def list_tree(
    git: Git,
    tree: str,
    *paths: str,
    recursive: bool = False,
    folders: bool = False,
    sizes: bool = True,
    most: int | None = None,
) -> list[Entry]:
    """Return the entries of a tree (or of a commit's tree), or just those at `paths`; with `folders` no files.

    Raises GitError past `most` bytes: a few objects can unfold to more files than fit anywhere. Raises
    InfrastructureError with code `too_large` for a commit or a top folder beyond the limits: git would read it whole.
    """
    top = locate(git, [f"{tree}:"]).get(f"{tree}:")
    if top is None or top.size > limits.TREE_BYTES:
        raise InfrastructureError(
            f"{tree[:12]} is no commit or folder of up to {limits.TREE_BYTES} bytes", code="too_large"
        )
    flags = ["-r"] if recursive else []
    flags += ["-d"] if folders else []
    flags += ["-l"] if sizes else []
    return git_output.entries(
        git("ls-tree", "-z", *flags, "--full-tree", top.oid, "--", *paths, most=most).stdout
    )


def read_blob(git: Git, commit: str, path: str, *, max_bytes: int) -> bytes | None:
    """Return a regular file's content in a commit, or None where there is no regular file at `path`.

    Raises InfrastructureError with code `too_large` past `max_bytes`; the content is then not read.
    """
    folder, _, name = path.rpartition("/")
    place = f"{commit}:{folder}"
    there = locate(git, [place]).get(place)
    if there is None or there.kind != "tree" or there.size > limits.TREE_BYTES:
        return None
    listed = git_output.entries(git("ls-tree", "-z", "-l", "--full-tree", there.oid, "--", name).stdout)
    if not listed or not listed[0].is_file:
        return None
    if listed[0].size > max_bytes:
        raise InfrastructureError(f"{path} is larger than {max_bytes} bytes", code="too_large")
    return git("cat-file", "blob", listed[0].oid).stdout


def read_many(git: Git, names: Sequence[str], *, max_bytes: int, kind: str = "blob") -> list[bytes | None]:
    """Return the contents of many blobs, named as `<commit>:<path>`, at once; None for the missing and the large.

    With another `kind` these are objects of that kind and no other. See `locate` for the bounds on the way to them.

    A symbolic link counts as its target's name, so what is read must still be parsed strictly.
    """
    there = locate(git, names)
    wanted = [
        found.oid if (found := there.get(name)) and found.kind == kind and found.size <= max_bytes else None
        for name in names
    ]
    contents = dict(each_content(git, list(dict.fromkeys(oid for oid in wanted if oid))))
    return [contents[oid] if oid else None for oid in wanted]


def locate(git: Git, names: Iterable[str], too_large: dict[str, Found] | None = None) -> dict[str, Found]:
    """Return id, kind and size of what each name stands for: an object, `<commit>:<path>`, or `<commit>^:<path>`.

    Left out is what does not exist, and what lies behind a commit or a folder that is larger than the limits: git
    reads these whole, so each is weighed before it is stepped through. What stood in the way goes into `too_large`.
    """
    steps = {name: _steps(name) for name in dict.fromkeys(names)}
    at: dict[str, str] = {name: parts[0] for name, parts in steps.items() if parts}
    there: dict[str, Found] = {}
    if not at:
        return there
    with _Asker(git) as asker:
        depth = 1
        while at:
            found = asker.ask(at.values())
            following: dict[str, str] = {}
            for name, asked in at.items():
                here, parts = found.get(asked), steps[name]
                if here is None:
                    continue
                if depth == len(parts):
                    there[name] = here
                elif here.size <= _STEPPED_THROUGH.get(here.kind, -1):
                    following[name] = f"{here.oid}{parts[depth]}"
                elif too_large is not None and here.kind in _STEPPED_THROUGH:
                    too_large[name] = here
            at, depth = following, depth + 1
    return there


_STEPPED_THROUGH = {"commit": limits.COMMIT_BYTES, "tree": limits.TREE_BYTES, "tag": limits.COMMIT_BYTES}


def _steps(name: str) -> list[str]:
    """Take a name apart into what to ask git for in turn: each step is put behind the id that the last one had."""
    root, colon, path = name.partition(":")
    # Git takes one name a line; a stranger's path with a line break in it would shift all that follow.
    if not root or "\n" in name or "\0" in name:
        return []
    steps = [root[:-1], "^"] if root.endswith("^") else [root]
    if colon:
        parts = path.split("/") if path else []
        if len(parts) > limits.PATH_PARTS or any(part in ("", ".", "..") for part in parts):
            return []
        steps += ["^{tree}", *(f":{part}" for part in parts)]
    return steps


class _Asker:
    """One `git cat-file --batch-check`, asked as often as there are steps to take."""

    # Names and answers of one portion fit into the pipes, so neither side waits for the other.
    _PORTION_BYTES = 16 * 1024

    def __init__(self, git: Git) -> None:
        self._known: dict[str, Found | None] = {}
        self._child = git.start("cat-file", "--batch-check")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._child.close()

    def ask(self, names: Iterable[str]) -> dict[str, Found | None]:
        """Return what git knows of each name."""
        new = [name for name in dict.fromkeys(names) if name not in self._known]
        for portion in portions(new, self._PORTION_BYTES):
            self._child.write("".join(f"{name}\n" for name in portion))
            lines = self._child.lines(len(portion))
            self._known.update(
                (name, git_output.found(line)) for name, line in zip(portion, lines, strict=True)
            )
        return self._known


def portions(names: Sequence[str], most_bytes: int) -> Iterator[list[str]]:
    """Split names into lists that are at most so long as lines; a longer name goes alone."""
    portion: list[str] = []
    size = 0
    for name in names:
        if portion and size + len(name) * 4 > most_bytes:
            yield portion
            portion, size = [], 0
        portion.append(name)
        size += len(name) * 4
    if portion:
        yield portion


def each_content(git: Git, oids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the content of each object, one at a time: all must exist, and their sizes must have been looked at."""
    if not oids:
        return
    child = git.start("cat-file", "--batch")
    try:
        for portion in portions(oids, _Asker._PORTION_BYTES):  # noqa: SLF001 - of this module
            child.write("".join(f"{oid}\n" for oid in portion))
            for oid in portion:
                found = git_output.found(child.line())
                if found is None:
                    raise InfrastructureError(f"the object {oid[:12]} is missing", code="missing_object")
                yield oid, child.read(found.size + 1)[:-1]
    finally:
        child.close()


def sizes(git: Git, oids: Sequence[str]) -> dict[str, int]:
    """Return how many bytes stored objects have, without reading any. Those that are missing are left out."""
    return {oid: found.size for oid, found in locate(git, oids).items()}


class Reader:
    """Reads objects one after the other, each in pieces, so that a large one takes no more memory than a small one."""

    def __init__(self, git: Git) -> None:
        self._child = git.start("cat-file", "--batch")

    def pieces(self, oid: str, most: int) -> Iterator[bytes]:
        """Yield an object's content in pieces of at most `most` bytes. Raises InfrastructureError if it is missing."""
        self._child.write(f"{oid}\n")
        found = git_output.found(self._child.line())
        if found is None:
            raise InfrastructureError(f"the object {oid[:12]} is missing", code="missing_object")
        for start in range(0, found.size, most):
            yield self._child.read(min(most, found.size - start))
        self._child.read(1)

    def close(self) -> None:
        """End."""
        self._child.close()


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
    lines = {e.path: (e.mode, e.kind, e.oid) for e in list_tree(git, base, sizes=False)} if base else {}
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
        f"{mode} {kind} {oid}\t".encode() + git_output.encode(name) + b"\0"
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
    """Return the parents that a commit names. Raises InfrastructureError where it is missing or too large."""
    (raw,) = read_many(git, [commit_id], max_bytes=limits.COMMIT_BYTES, kind="commit")
    if raw is None:
        raise InfrastructureError(
            f"{commit_id[:12]} is no commit of up to {limits.COMMIT_BYTES} bytes", code="too_large"
        )
    return git_output.parents(raw)
