"""Reads request branches, counting only states that one of the given keys signed.

Anyone who may push can add a commit with a state to a branch. Without keys, the last state counts, whoever wrote it.
With keys, unsigned states are ignored: the last signed state counts, or the request if there is none. Other commits on
top, such as a cancellation, count as they do without keys.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bridge.bus import history, objects, wire
from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from bridge.common import limits
from bridge.system.git import Git
from bridge.system.git_output import ObjectInfo
from bridge.verify.public_keys import PublicKey
from bridge.verify.state_signature import is_signed

# A runner's commit is far smaller; a larger commit cannot be a signed state.
SIGNED_COMMIT_BYTES = 4096
# How many branches are read at once.
_AT_ONCE = 500


@dataclass
class _Search:
    """The search of a branch for the commit of the state that counts."""

    # The next commit to examine (None at the end), and the number of examined ones.
    at: str | None
    gone: int = 0
    state_commit: str | None = None
    # The topmost commit above `state_commit` that is not an ignored state.
    top: str | None = None
    # The topmost ignored state.
    unsigned: State | None = None

    @property
    def is_over(self) -> bool:
        return self.at is None or self.gone >= limits.UNSIGNED


class Reader:
    """Reads branches for one set of keys; without keys, every state counts. Verified signatures are cached."""

    def __init__(self, keys: Sequence[PublicKey] = ()) -> None:
        self.keys = tuple(keys)
        self._searches: dict[tuple[str, str], _Search] = {}

    @property
    def has_keys(self) -> bool:
        """Return whether only signed states count."""
        return bool(self.keys)

    def read_branch(self, git: Git, name: str, tip: str) -> RequestBranch:
        """Read one branch."""
        return self.read_branches(git, {name: tip})[name]

    def read_branches(
        self,
        git: Git,
        tips: Mapping[str, str],
        plain: Mapping[str, RequestBranch] | None = None,
        commits: int | None = None,
    ) -> dict[str, RequestBranch]:
        """Read many branches, given as ``{branch: commit id}``. ``plain`` are the same branches, read without keys.

        With a number of ``commits``, the call examines not many more than these below the branches' tips. Branches that
        need more are left out; the next call with the same tips continues with them, after branches that are new.
        """
        branches = dict(history.read_branches(git, tips) if plain is None else plain)
        if not self.keys:
            return branches
        readable = [branch for branch in branches.values() if not branch.too_large]
        if len(self._searches) > limits.BRANCHES:
            self._searches.clear()
        searches = {
            branch.name: self._searches.setdefault((branch.name, branch.tip), _Search(branch.tip))
            for branch in readable
        }
        self._find(git, searches, commits)
        foreign = []
        for branch in readable:
            search = searches[branch.name]
            if not search.is_over:
                del branches[branch.name]
            elif search.unsigned is None and (branch.state is None) == (search.state_commit is None):
                # The state at the tip is the signed one, or there is no state at all.
                branches[branch.name] = replace(branch, state_commit=search.state_commit)
            else:
                foreign.append((branch, search))
        return branches | _below(git, foreign)

    def read_each(
        self,
        git: Git,
        tips: Mapping[str, str],
        failed: Callable[[str, Exception], None],
        commits: int | None = None,
    ) -> dict[str, RequestBranch]:
        """Read many branches, as ``read_branches`` does. Bad ones are found by halving, and passed to ``failed``.

        For branches that have ended, foreign commits and cancellations are not looked for: no caller needs them.
        """
        if not tips:
            return {}
        try:
            # If only signed states count, the signatures decide which of several states ended a branch.
            if not self.keys:
                return history.read_branches(git, tips, ended_whole=False)
            return self.read_branches(git, tips, commits=commits)
        except Exception as error:  # noqa: BLE001 - whatever a stranger pushed
            branches = list(tips)
            if len(branches) == 1:
                failed(branches[0], error)
                return {}
        middle = len(branches) // 2
        halves = (
            {branch: tips[branch] for branch in half} for half in (branches[:middle], branches[middle:])
        )
        first, second = (self.read_each(git, half, failed, commits) for half in halves)
        return first | second

    def _find(self, git: Git, searches: Mapping[str, _Search], commits: int | None) -> None:
        """Walk each branch's first parents, in growing steps, down to a signed state or the request."""
        looked, size = 0, 1
        while size <= limits.UNSIGNED:
            together = max(1, _AT_ONCE // size)
            branches = [name for name, each in searches.items() if each.at and each.gone == size - 1]
            for i in range(0, len(branches), together):
                if commits is not None and size > 1 and looked >= commits:
                    break
                some = {branch: searches[branch] for branch in branches[i : i + together]}
                self._go_down(git, some, size)
                looked += len(some) * size
            size *= 2

    def _go_down(self, git: Git, searches: Mapping[str, _Search], size: int) -> None:
        """Search at most ``size`` commits of each branch."""
        names = {branch: [f"{each.at}~{i}" for i in range(size + 1)] for branch, each in searches.items()}
        commits = objects.locate(git, [name for several in names.values() for name in several])
        lines = {name: [commits[at] for at in several if at in commits] for name, several in names.items()}
        paths = [f"{commit.oid}:{wire.STATE}" for line in lines.values() for commit in line]
        states = objects.locate(git, paths)
        steps = {branch: _steps(line, states, size) for branch, line in lines.items()}
        wanted = {oid for several in steps.values() for step in several for oid in step.to_read()}
        contents = dict(objects.each_content(git, list(wanted)))
        for branch, several in steps.items():
            search = searches[branch]
            is_over = any(self._look(branch, step, contents, search) for step in several)
            search.at = None if is_over or len(lines[branch]) <= size else lines[branch][size].oid
            search.gone += size

    def _look(self, branch: str, step: "_Step", contents: Mapping[str, bytes], search: _Search) -> bool:
        """Record one commit. Returns whether the search ends with it."""
        commit = step.commit.oid
        state = wire.parse_state(contents.get(step.state.oid)) if step.is_new and step.state else None
        if state and state.branch == branch:
            if is_signed(contents.get(commit, b""), branch, self.keys):
                search.state_commit = commit
                return True
            search.unsigned = search.unsigned or state.state
            return False
        search.top = search.top or commit
        return step.state is None and not step.is_new


def signed_commits(
    git: Git, branch: str, commits: Sequence[str], keys: Sequence[PublicKey]
) -> frozenset[str]:
    """Return the commits that one of the keys signed for this branch."""
    there = objects.locate(git, commits).items()
    small = [oid for oid, entry in there if entry.kind == "commit" and entry.size <= SIGNED_COMMIT_BYTES]
    return frozenset(oid for oid, raw in objects.each_content(git, small) if is_signed(raw, branch, keys))


def _below(git: Git, foreign: Sequence[tuple[RequestBranch, _Search]]) -> dict[str, RequestBranch]:
    """Return the branches without the ignored states."""
    tops = {branch.name: search.top or search.state_commit or branch.tip for branch, search in foreign}
    at_top = history.read_branches(git, tops)
    signed = {branch.name: search.state_commit for branch, search in foreign if search.state_commit}
    stated = history.read_branches(git, signed)
    branches = {}
    for branch, search in foreign:
        state = stated[branch.name].state if search.state_commit else None
        cancel = at_top[branch.name].cancel
        if cancel and state and cancel.request != state.request:
            cancel = None
        request = state.request if state else cancel.request if cancel else tops[branch.name]
        branches[branch.name] = RequestBranch(
            branch.name, branch.tip, request, state, cancel,
            has_foreign_commits=state is not None and search.top is not None,
            state_commit=search.state_commit,
            unsigned=search.unsigned,
        )  # fmt: skip
    return branches


@dataclass(frozen=True)
class _Step:
    """One commit on a branch's first-parent line: its state's blob, and whether that differs from the parent's."""

    commit: ObjectInfo
    state: ObjectInfo | None
    is_new: bool

    def to_read(self) -> list[str]:
        """Return the objects to read: a new state, and the commit if it is small enough to be signed."""
        state = self.state if self.is_new else None
        if state is None or state.kind != "blob" or state.size > wire.MAX_STATE:
            return []
        return [state.oid, self.commit.oid] if self.commit.size <= SIGNED_COMMIT_BYTES else [state.oid]


def _steps(line: Sequence[ObjectInfo], files: Mapping[str, ObjectInfo], size: int) -> list[_Step]:
    """Return the first ``size`` commits of a line, each compared with the next."""
    states = [*(files.get(f"{commit.oid}:{wire.STATE}") for commit in line), None]
    return [
        _Step(commit, now, now != before)
        for commit, now, before in zip(line[:size], states, states[1:], strict=False)
    ]
