"""Reads request branches, counting only states that one of the given keys signed.

Anyone who may push can add a commit with a state to a branch. Without keys, the last state counts, whoever wrote it.
With keys, unsigned states are ignored: the last signed state counts, or the request if there is none. Other commits on
top, such as a cancellation, count as they do without keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bridge import limits
from bridge.bus import history, lookup, objects, wire
from bridge.bus.history import View
from bridge.bus.wire import State, StateFile
from bridge.system.git import Git
from bridge.system.git_output import Found
from bridge.verify.public_keys import PublicKey
from bridge.verify.state_signature import is_signed

# A runner's commit is far smaller; a larger commit cannot be a signed state.
_COMMIT_BYTES = 4096
# How many branches are read at once.
_AT_ONCE = 500


@dataclass
class _Place:
    """The result of searching a branch: the commit of the state that counts, and what is on top of it."""

    stated: str | None = None
    # The topmost commit above `stated` that is not an ignored state.
    top: str | None = None
    # The topmost ignored state.
    unsigned: State | None = None


class Reader:
    """Reads branches for one set of keys; without keys, every state counts. Verified signatures are cached."""

    def __init__(self, keys: Sequence[PublicKey] = ()) -> None:
        self._keys = tuple(keys)
        self._known: dict[tuple[str, str], _Place] = {}

    @property
    def has_keys(self) -> bool:
        """Return whether only signed states count."""
        return bool(self._keys)

    def view(self, git: Git, branch: str, tip: str) -> View:
        """Read one branch."""
        return self.views(git, {branch: tip})[branch]

    def views(
        self, git: Git, tips: Mapping[str, str], plain: Mapping[str, View] | None = None
    ) -> dict[str, View]:
        """Read many branches, given as ``{branch: commit id}``. ``plain`` are their views without keys, if known."""
        views = dict(history.read_views(git, tips) if plain is None else plain)
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
                # The state at the tip is the signed one, or there is no state at all.
                views[view.branch] = replace(view, stated=place.stated)
            else:
                odd.append((view, place))
        return views | _below(git, odd)

    def _find(self, git: Git, views: Sequence[View]) -> None:
        """Walk each branch's first parents, in growing steps, down to a signed state or the request."""
        places = {view.branch: _Place() for view in views}
        read = {view.tip: view.state for view in views if view.state and not view.foreign}
        at = {view.branch: view.tip for view in views}
        size, gone = 1, 0
        while at and gone < limits.UNSIGNED:
            together = max(1, _AT_ONCE // size)
            branches = list(at)
            for i in range(0, len(branches), together):
                some = {branch: at[branch] for branch in branches[i : i + together]}
                for branch, following in self._go_down(git, some, size, places, read):
                    if following is None:
                        del at[branch]
                    else:
                        at[branch] = following
            gone += size
            size *= 2
        for view in views:
            self._known[view.branch, view.tip] = places[view.branch]

    def _go_down(
        self,
        git: Git,
        at: Mapping[str, str],
        size: int,
        places: Mapping[str, _Place],
        read: Mapping[str, StateFile],
    ) -> Iterator[tuple[str, str | None]]:
        """Examine so many commits of each branch. Yields where to continue, or None at the end of a search."""
        names = {branch: [f"{oid}~{i}" for i in range(size + 1)] for branch, oid in at.items()}
        commits = lookup.locate(git, [name for several in names.values() for name in several])
        lines = {
            branch: [commits[name] for name in several if name in commits]
            for branch, several in names.items()
        }
        files = lookup.locate(
            git, [f"{commit.oid}:{wire.STATE}" for line in lines.values() for commit in line]
        )
        steps = {branch: _steps(line, files, size) for branch, line in lines.items()}
        wanted = {oid for several in steps.values() for step in several for oid in step.to_read}
        contents = dict(objects.each_content(git, list(wanted)))
        for branch, several in steps.items():
            is_over = any(self._look(branch, step, contents, places[branch], read) for step in several)
            yield branch, None if is_over or len(lines[branch]) <= size else lines[branch][size].oid

    def _look(
        self,
        branch: str,
        step: _Step,
        contents: Mapping[str, bytes],
        place: _Place,
        read: Mapping[str, StateFile],
    ) -> bool:
        """Record one commit. Returns whether the search ends with it."""
        state = read.get(step.commit) if step.is_new else None
        if state is None and step.is_new:
            state = wire.parse_state(contents.get(step.state or ""))
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
    """Return the commits that one of the keys signed for this branch."""
    found = lookup.locate(git, commits)
    small = [oid for oid, commit in found.items() if commit.kind == "commit" and commit.size <= _COMMIT_BYTES]
    return frozenset(oid for oid, raw in objects.each_content(git, small) if is_signed(raw, branch, keys))


def _below(git: Git, odd: Sequence[tuple[View, _Place]]) -> dict[str, View]:
    """Return the views without the ignored states."""
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
    """One commit on a branch's first-parent line: its state's blob id, and whether it differs from the parent's."""

    commit: str
    state: str | None
    is_new: bool
    # The objects to read: the state and the commit, if they are small enough and the state is new.
    to_read: tuple[str, ...]


def _steps(line: Sequence[Found], files: Mapping[str, Found], size: int) -> list[_Step]:
    """Return the commits of a line. The line has one more commit, for the comparison with the parent."""
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
