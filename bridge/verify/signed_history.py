"""Reading request branches if only states count that one of some keys signed.

Anyone who may push can put a commit with a state on a branch. Without keys the last state counts, whoever wrote it.
With keys a state that none of them signed is passed over: the branch stands where its last signed state left it, or at
its request. Other commits on top, such as a cancellation, mean what they mean without keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bridge import limits
from bridge.bus import history, objects, wire
from bridge.bus.history import View
from bridge.bus.wire import State
from bridge.system.git import Git
from bridge.system.git_output import Found
from bridge.verify.public_keys import PublicKey
from bridge.verify.state_signature import is_signed

# A runner's commit is far smaller. What is larger is nobody's signed state.
_COMMIT_BYTES = 4096
# So many branches are read together.
_AT_ONCE = 500


@dataclass
class _Place:
    """What lies on a branch: the commit of the state that counts, and what is on top of it."""

    stated: str | None = None
    # The topmost commit that is no passed-over state and lies above `stated`.
    top: str | None = None
    # The topmost state that was passed over.
    unsigned: State | None = None


class Reader:
    """Reads branches for one set of keys; without keys every state counts. What was verified is remembered."""

    def __init__(self, keys: Sequence[PublicKey] = ()) -> None:
        self._keys = tuple(keys)
        self._known: dict[tuple[str, str], _Place] = {}

    @property
    def has_keys(self) -> bool:
        """Say whether only signed states count."""
        return bool(self._keys)

    def view(self, git: Git, branch: str, tip: str) -> View:
        """Read one branch."""
        return self.views(git, {branch: tip})[branch]

    def views(self, git: Git, tips: Mapping[str, str]) -> dict[str, View]:
        """Read many branches, given as `{branch: commit id}`."""
        views = history.read_views(git, tips)
        if not self._keys:
            return views
        readable = [view for view in views.values() if not view.too_large]
        new = [view for view in readable if (view.branch, view.tip) not in self._known]
        if len(self._known) + len(new) > limits.BRANCHES:
            self._known.clear()
            new = readable
        for i in range(0, len(new), _AT_ONCE):
            self._find(git, new[i : i + _AT_ONCE])
        odd = []
        for view in readable:
            place = self._known[view.branch, view.tip]
            if place.unsigned is None and (view.state is None) == (place.stated is None):
                # The state that the tip shows is the one that was signed, or neither is there.
                views[view.branch] = replace(view, stated=place.stated)
            else:
                odd.append((view, place))
        return views | _below(git, odd)

    def _find(self, git: Git, views: Sequence[View]) -> None:
        """Go down each branch's own line until a signed state, or the request, in steps that grow."""
        places = {view.branch: _Place() for view in views}
        at = {view.branch: view.tip for view in views}
        size, gone = 1, 0
        while at and gone < limits.UNSIGNED:
            together = max(1, _AT_ONCE // size)
            branches = list(at)
            for i in range(0, len(branches), together):
                some = {branch: at[branch] for branch in branches[i : i + together]}
                for branch, following in self._go_down(git, some, size, places):
                    if following is None:
                        del at[branch]
                    else:
                        at[branch] = following
            gone += size
            size *= 2
        for view in views:
            self._known[view.branch, view.tip] = places[view.branch]

    def _go_down(
        self, git: Git, at: Mapping[str, str], size: int, places: Mapping[str, _Place]
    ) -> Iterator[tuple[str, str | None]]:
        """Look at so many commits of each branch. Yields where to go on, None where the search is over."""
        names = {branch: [f"{oid}~{i}" for i in range(size + 1)] for branch, oid in at.items()}
        commits = objects.locate(git, [name for several in names.values() for name in several])
        lines = {
            branch: [commits[name] for name in several if name in commits]
            for branch, several in names.items()
        }
        files = objects.locate(
            git, [f"{commit.oid}:{wire.STATE}" for line in lines.values() for commit in line]
        )
        steps = {branch: _steps(line, files, size) for branch, line in lines.items()}
        wanted = {oid for several in steps.values() for step in several for oid in step.to_read}
        contents = dict(objects.each_content(git, list(wanted)))
        for branch, several in steps.items():
            is_over = any(self._look(branch, step, contents, places[branch]) for step in several)
            yield branch, None if is_over or len(lines[branch]) <= size else lines[branch][size].oid

    def _look(self, branch: str, step: _Step, contents: Mapping[str, bytes], place: _Place) -> bool:
        """Take note of one commit. Says whether the search ends with it."""
        state = wire.parse_state(contents.get(step.state or "")) if step.is_new else None
        if state and state.branch == branch:
            if is_signed(contents.get(step.commit, b""), branch, self._keys):
                place.stated = step.commit
                return True
            place.unsigned = place.unsigned or state.state
            return False
        place.top = place.top or step.commit
        return step.state is None and not step.is_new


def signed_commits(
    git: Git, branch: str, commits: Sequence[str], keys: Sequence[PublicKey]
) -> frozenset[str]:
    """Return those of the commits that one of the keys signed for this branch."""
    found = objects.locate(git, commits)
    small = [oid for oid, commit in found.items() if commit.kind == "commit" and commit.size <= _COMMIT_BYTES]
    return frozenset(oid for oid, raw in objects.each_content(git, small) if is_signed(raw, branch, keys))


def _below(git: Git, odd: Sequence[tuple[View, _Place]]) -> dict[str, View]:
    """Return the views in which the states that were passed over are not there."""
    tops = {view.branch: place.top or place.stated or view.tip for view, place in odd}
    at_top = history.read_views(git, tops)
    stated = history.read_views(git, {view.branch: place.stated for view, place in odd if place.stated})
    views = {}
    for view, place in odd:
        state = stated[view.branch].state if place.stated else None
        cancel = at_top[view.branch].cancel
        if cancel and state and cancel.request != state.request:
            cancel = None
        request = state.request if state else cancel.request if cancel else tops[view.branch]
        views[view.branch] = View(
            view.branch, view.tip, request, state, cancel,
            foreign=state is not None and place.top is not None, stated=place.stated, unsigned=place.unsigned,
        )  # fmt: skip
    return views


@dataclass(frozen=True)
class _Step:
    """One commit on a branch's own line: its state's id, and whether that is another one than in the commit before."""

    commit: str
    state: str | None
    is_new: bool
    # What is to be read of it: the state and the commit, if they are small enough and the state is new.
    to_read: tuple[str, ...]


def _steps(line: Sequence[Found], files: Mapping[str, Found], size: int) -> list[_Step]:
    """Return the first commits of a line, of which one more is given."""
    found = [*(files.get(f"{commit.oid}:{wire.STATE}") for commit in line), None]
    steps = []
    for commit, now, before in zip(line[:size], found, found[1:], strict=False):
        state = now.oid if now else None
        is_new = state != (before.oid if before else None)
        to_read: list[str] = []
        if is_new and now and now.kind == "blob" and now.size <= wire.MAX_STATE:
            to_read = [now.oid, *([commit.oid] if commit.size <= _COMMIT_BYTES else [])]
        steps.append(_Step(commit.oid, state, is_new, tuple(to_read)))
    return steps
