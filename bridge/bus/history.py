"""Reads a request branch: which commit is the request, its current state, and what was committed on top.

Files of an earlier run may have been merged into the workload. So a state or a cancellation counts only if it names
this branch, and a state counts only in the commit that changed its file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bridge.bus import objects, wire
from bridge.bus.objects import Identity
from bridge.bus.wire import CancelFile, State, StateFile
from bridge.common import limits
from bridge.errors import InfrastructureError
from bridge.system import git_output
from bridge.system.git import Git
from bridge.system.git_output import ObjectInfo

_AT_ONCE = 64
# How many commits of a branch are read directly before git walks its history; most requests have fewer.
_NEAR = 24


@dataclass(frozen=True)
class RequestBranch:
    """One request branch at its commit ``tip``."""

    name: str
    tip: str
    request: str
    state: StateFile | None = None
    cancel: CancelFile | None = None
    # Whether commits that no runner made lie on top of the last state.
    has_foreign_commits: bool = False
    # Why the branch is too large to be read, as text; None if it is not.
    too_large: str | None = None
    # Set only if keys decide which states count (verify/signed_history.py): the commit of `state`, and the topmost
    # unsigned state.
    state_commit: str | None = None
    unsigned: State | None = None

    @property
    def current_state(self) -> State:
        """The request's current state."""
        return self.state.state if self.state else State.REQUESTED

    @property
    def is_withdrawn(self) -> bool:
        """Return whether the requester cancelled the request before a runner took it: a runner only confirms that."""
        return self.cancel is not None and self.current_state is State.REQUESTED

    @property
    def token(self) -> int:
        """The highest fencing token given out so far; 0 before the first claim."""
        return self.state.token if self.state else 0

    @property
    def sequence(self) -> int:
        """The number of states so far."""
        return self.state.sequence if self.state else 0


def read_branches(git: Git, tips: Mapping[str, str], *, ended_whole: bool = True) -> dict[str, RequestBranch]:
    """Read many branches, given as ``{branch: commit id}``, in two calls of git.

    Objects beyond the limits are not read. Such a branch counts as one without a state, and `too_large` says why. With
    ``ended_whole=False``, only the state of a branch that has ended is read. It then never shows foreign commits or a
    cancellation.
    """
    known: dict[str, ObjectInfo | None] = {}
    branches = {branch.name: branch for branch in _ended(git, tips, known)} if not ended_whole else {}
    places = {
        name: (f"{tip}:{wire.STATE}", f"{tip}^:{wire.STATE}", f"{tip}:{wire.CANCEL}")
        for name, tip in tips.items()
        if name not in branches
    }
    oversized: dict[str, ObjectInfo] = {}
    there = objects.locate(git, [file for files in places.values() for file in files], oversized, known)
    wanted = {name: [_readable(there.get(file)) for file in files] for name, files in places.items()}
    read = [oid for state, _, cancel in wanted.values() for oid in (state, cancel) if oid]
    # Only one file's content is in memory at a time.
    contents = objects.each_content(git, read)
    for name, (state, before, cancel) in wanted.items():
        state_blob = next(contents)[1] if state else None
        cancel_blob = next(contents)[1] if cancel else None
        branch = _branch(name, tips[name], state_blob, cancel_blob, changed=state != before)
        blocked = next((oversized[file] for file in places[name] if file in oversized), None)
        branches[name] = replace(branch, too_large=_say(blocked)) if blocked else branch
    return branches


def _ended(git: Git, tips: Mapping[str, str], known: dict[str, ObjectInfo | None]) -> Iterator[RequestBranch]:
    """Yield the branches that have ended, judged by their states alone. ``known`` is passed to ``locate``."""
    files = {name: f"{tip}:{wire.STATE}" for name, tip in tips.items()}
    there = objects.locate(git, files.values(), known=known)
    ended = {name: oid for name, file in files.items() if (oid := _readable(there.get(file)))}
    contents = objects.each_content(git, list(ended.values()))
    for name, (_, content) in zip(ended, contents, strict=True):
        branch = _branch(name, tips[name], content, None, changed=True)
        if branch.current_state.is_final:
            yield branch


def _readable(entry: ObjectInfo | None) -> str | None:
    """Return the id of a file that may be read."""
    return entry.oid if entry and entry.kind == "blob" and entry.size <= wire.MAX_STATE else None


def _say(oversized: ObjectInfo) -> str:
    is_commit = oversized.kind == "commit"
    noun, most = ("commit", limits.COMMIT_BYTES) if is_commit else ("folder", limits.TREE_BYTES)
    return f"its {noun} {oversized.oid[:12]} has {oversized.size} bytes; {most} are the most"


def read_branch(git: Git, branch: str, tip: str) -> RequestBranch:
    """Read one branch."""
    return read_branches(git, {branch: tip})[branch]


def _branch(
    branch: str, tip: str, state_blob: bytes | None, cancel_blob: bytes | None, *, changed: bool
) -> RequestBranch:
    state = wire.parse_state(state_blob)
    if state and state.branch != branch:
        state = None
    cancel = wire.parse_cancel(cancel_blob)
    if cancel and (cancel.branch != branch or (state and cancel.request != state.request)):
        cancel = None
    request = state.request if state else cancel.request if cancel else tip
    return RequestBranch(branch, tip, request, state, cancel, has_foreign_commits=bool(state) and not changed)


def commit_cancel(git: Git, branch: RequestBranch, note: CancelFile, who: Identity) -> str:
    """Commit a cancellation upon a request branch, and return the commit's id."""
    tree = objects.overlay(git, f"{branch.tip}^{{tree}}", {wire.CANCEL: note.to_bytes()})
    return objects.commit(git, tree, [branch.tip], f"Cancel {branch.name}\n\n[skip ci]\n", who)


def commits_between(git: Git, after: str | None, tip: str) -> list[str]:
    """Return a branch's own commits after ``after`` up to ``tip``, oldest first; none if ``after`` does not exist."""
    near = _line(git, tip) if after else []
    if after in near:
        return near[: near.index(after)][::-1]
    span = [tip] if after is None else [tip, f"^{after}"]
    walk = ("rev-list", "--first-parent", "--reverse", f"--max-count={limits.COMMITS}", *span)
    return git_output.lines(git(*walk, ok=(0, 128)).stdout)


def is_ancestor(git: Git, earlier: str, later: str) -> bool:
    """Return whether ``earlier`` is an ancestor of ``later``."""
    if earlier in _line(git, later):
        return True
    return git("merge-base", "--is-ancestor", earlier, later, ok=(0, 1, 128)).returncode == 0


def _line(git: Git, tip: str) -> list[str]:
    """Return the newest commits of a branch's first-parent line, ``tip`` first, without starting a git process."""
    names = [f"{tip}~{i}" for i in range(_NEAR)]
    try:
        located = objects.locate(git, names)
    except InfrastructureError:
        return []
    return [located[name].oid for name in names if name in located]


def streamed_states(git: Git, after: str, tip: str) -> Iterator[tuple[str, StateFile, bytes]]:
    """Yield each state after ``after``, oldest first, with its piece of log up to ``limits.STREAM_BYTES`` in all."""
    previous, remaining = None, limits.STREAM_BYTES
    for commit, state, blobs in read_states(git, commits_between(git, after, tip), wire.STREAM):
        if state and blobs[0] != previous:
            piece = blobs[1] or b""
            remaining -= len(piece)
            yield commit, state, piece if remaining >= 0 else b""
        previous = blobs[0]


def read_states(
    git: Git, commits: Sequence[str], *more: str
) -> Iterator[tuple[str, StateFile | None, list[bytes | None]]]:
    """Yield each commit's state, and the files at the state's path and ``more`` paths. Few are in memory at a time."""
    paths = (wire.STATE, *more)
    for start in range(0, len(commits), _AT_ONCE):
        some = commits[start : start + _AT_ONCE]
        names = [f"{commit}:{path}" for commit in some for path in paths]
        blobs = objects.read_many(git, names, max_bytes=limits.PIECE_BYTES)
        for i, commit in enumerate(some):
            contents = blobs[len(paths) * i : len(paths) * (i + 1)]
            yield commit, wire.parse_state(contents[0]), contents
