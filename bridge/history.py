"""Reading a request branch: which commit is the request, where it stands, and what was put on top.

Files of an earlier run may have been merged into the workload, so a state or a cancellation counts only where
it names this very branch; and a state counts as a runner's word only in the commit that changed it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bridge import limits, objects, wire
from bridge.git import Git
from bridge.wire import CancelFile, State, StateFile

MAX_COMMITS = 20_000
_AT_ONCE = 64


@dataclass(frozen=True)
class View:
    """One request branch as it stands at `tip`."""

    branch: str
    tip: str
    request: str
    state: StateFile | None
    cancel: CancelFile | None
    # Commits that no runner made lie on top of the last state.
    foreign: bool

    @property
    def stands(self) -> State:
        """Where the request stands."""
        return self.state.state if self.state else State.REQUESTED

    @property
    def token(self) -> int:
        """The highest fencing token given out so far; 0 before the first claim."""
        return self.state.token if self.state else 0

    @property
    def sequence(self) -> int:
        """The number of states so far."""
        return self.state.sequence if self.state else 0


def read_views(git: Git, tips: Mapping[str, str]) -> dict[str, View]:
    """Read many branches, given as `{branch: commit id}`, in two calls of git."""
    names = [
        name
        for tip in tips.values()
        for name in (f"{tip}:{wire.STATE}", f"{tip}^:{wire.STATE}", f"{tip}:{wire.CANCEL}")
    ]
    blobs = objects.read_many(git, names, max_bytes=wire.MAX_STATE)
    return {
        branch: _view(branch, tip, *blobs[3 * i : 3 * i + 3]) for i, (branch, tip) in enumerate(tips.items())
    }


def read_view(git: Git, branch: str, tip: str) -> View:
    """Read one branch."""
    return read_views(git, {branch: tip})[branch]


def _view(
    branch: str, tip: str, state_blob: bytes | None, before: bytes | None, cancel_blob: bytes | None
) -> View:
    state = wire.parse_state(state_blob)
    if state and state.branch != branch:
        state = None
    cancel = wire.parse_cancel(cancel_blob)
    if cancel and (cancel.branch != branch or (state and cancel.request != state.request)):
        cancel = None
    request = state.request if state else cancel.request if cancel else tip
    return View(branch, tip, request, state, cancel, foreign=bool(state) and state_blob == before)


def commits_between(git: Git, after: str | None, tip: str) -> list[str]:
    """Return the commits on the branch's own line from (not including) `after` to `tip`, oldest first."""
    span = [tip] if after is None else [tip, f"^{after}"]
    listed = git.text("rev-list", "--first-parent", "--reverse", f"--max-count={MAX_COMMITS}", *span)
    return listed.splitlines()


def is_ancestor(git: Git, earlier: str, later: str) -> bool:
    """Say whether `later` was built upon `earlier`."""
    return git("merge-base", "--is-ancestor", earlier, later, ok=(0, 1, 128)).returncode == 0


def stream(git: Git, after: str, tip: str) -> Iterator[tuple[str, StateFile, bytes]]:
    """Yield each runner's state after `after` with the piece of log that it brought, oldest first.

    Past `limits.STREAM_BYTES` no more pieces come, only states.
    """
    previous, left = None, limits.STREAM_BYTES
    for commit, state, blobs in states(git, commits_between(git, after, tip), wire.STREAM):
        if state and blobs[0] != previous:
            piece = blobs[1] or b""
            left -= len(piece)
            yield commit, state, piece if left >= 0 else b""
        previous = blobs[0]


def states(
    git: Git, commits: Sequence[str], *more: str
) -> Iterator[tuple[str, StateFile | None, list[bytes | None]]]:
    """Yield each commit's state, and the files at the state's path and `more` paths. Few are in memory at a time."""
    paths = (wire.STATE, *more)
    for start in range(0, len(commits), _AT_ONCE):
        some = commits[start : start + _AT_ONCE]
        asked = [f"{commit}:{path}" for commit in some for path in paths]
        blobs = objects.read_many(git, asked, max_bytes=limits.PIECE_BYTES)
        for i, commit in enumerate(some):
            found = blobs[len(paths) * i : len(paths) * (i + 1)]
            yield commit, wire.parse_state(found[0]), found
