"""The queue's order: requesters take turns, each with its oldest request, so that nobody can block the others.

The requester of a signed request is its signer. An unsigned request can contain any name, and whoever may push below a
prefix may push below many longer ones. So turns are shared level by level, as docs/security.md says.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path

from bridge.bus import branch_names
from bridge.bus.branch_names import Requester, pattern_prefixes, unsigned_requester
from bridge.bus.history import RequestBranch
from bridge.common import limits
from bridge.errors import PolicyError, ProcessError
from bridge.requests.binding import Binding
from bridge.system.git import Git
from bridge.system.local_files import stamp
from runner.admit.manifests import Manifests, read_some
from runner.admit.signature import BadSignature, signer_of, split_signed_commit
from runner.policy import Policy
from runner.state.ledger import Ledger

_HOUR_S = 3600.0
# Checking a signature starts two processes, so the number per poll is limited.
_SIGNERS_A_POLL = 100
# How many requests' files are in memory at once.
_AT_ONCE = 100

_asked_at = lru_cache(limits.BRANCHES)(branch_names.requested_at)

# A request by its branch and its commit.
_RequestKey = tuple[str, str]


class FairQueue:
    """The waiting requests, in the order in which this runner handles them."""

    def __init__(
        self, manifests: Manifests, git: Git, policy: Policy, ledger: Ledger, tell: Callable[[str], None]
    ) -> None:
        self._quota = policy.limits.per_requester
        self._manifests = manifests
        self._who = Requesters(manifests, git, policy.trust.allowed_signers, policy.bus.patterns)
        self._ledger = ledger
        self._tell = tell
        self._turn = 0
        self._last: Counter[tuple[str, ...]] = Counter()
        self._flooding: set[Requester] = set()

    def order(self, views: Iterable[RequestBranch], blocked: Container[str] = ()) -> list[RequestBranch]:
        """Return the requests that may have a turn now, in fair order. ``blocked`` branches use up no quota."""
        waiting = sorted(views, key=age_sort_key)
        who = self._who.of(waiting)
        self._who.forget_all_but(who)
        self._manifests.forget_all_but({request for _, request in who})
        # New requesters stand behind the known ones. Otherwise an endless supply of new names would come first.
        known = {name[:steps] for name in {*who.values()} for steps in range(1, len(name) + 1)}
        self._last = Counter({key: self._last.get(key, self._turn) for key in known})
        now = time.time()
        counts = self._ledger.taken_between(now - _HOUR_S, now) if self._quota.per_hour else {}
        allowed: list[RequestBranch] = []
        count: Counter[Requester] = Counter()
        for view in waiting:
            requester = who[_key(view)]
            count[requester] += view.branch not in blocked
            most = self._quota.per_hour
            has_quota = most is None or counts.get(_label(requester), 0) < most
            if has_quota and count[requester] <= self._quota.waiting:
                allowed.append(view)
        self._alert(count)
        return take_turns(allowed, lambda view: who[_key(view)], self._last)

    def check(self, view: RequestBranch) -> None:
        """Determine what ``order`` needs to know about one request, and raise any error."""
        age_sort_key(view)
        self._who.of([view])

    def served(self, view: RequestBranch) -> None:
        """Record that a request had its turn."""
        self._turn += 1
        requester = self._who.of([view])[_key(view)]
        for steps in range(1, len(requester) + 1):
            self._last[requester[:steps]] = self._turn
        if self._quota.per_hour is not None:
            self._ledger.record_start(_label(requester), time.time())

    def _alert(self, count: Counter[Requester]) -> None:
        few = self._quota.waiting
        flooding = {requester for requester, number in count.items() if number > few}
        for who in sorted(flooding - self._flooding):
            self._tell(f"{count[who]} requests of {_label(who)} wait; {few} are considered at once")
        self._flooding = flooding


class Requesters:
    """The requester of each request commit, cached as long as it waits and the list of signers does not change.

    A request is known by its branch and its commit, because anybody can put another branch at the same commit, or write
    a state that names it. This decides only the order of turns, and never whether code may run.
    """

    def __init__(
        self, manifests: Manifests, git: Git, allowed_signers: Path | None, patterns: Sequence[str]
    ) -> None:
        self._manifests = manifests
        self._git = git
        self._prefixes = pattern_prefixes(patterns)
        self._signers = allowed_signers
        self._list: object = None
        self._known: dict[_RequestKey, Requester] = {}

    def of(self, views: Sequence[RequestBranch]) -> dict[_RequestKey, Requester]:
        """Return the requester of each request, by the request's branch and commit."""
        current = stamp(self._signers) if self._signers else None
        if current != self._list:
            self._list, self._known = current, {}
        keys = {_key(view): view for view in views}
        new = [view for key, view in keys.items() if key not in self._known]
        known = {key: self._known[key] for key in keys if key in self._known}
        checked = 0
        for i in range(0, len(new), _AT_ONCE):
            some = new[i : i + _AT_ONCE]
            # Commits have to be read only if signatures count.
            names = [view.request for view in some]
            commits = read_some(self._git, names, kind="commit") if self._signers else [None] * len(some)
            for view, request, commit in zip(some, self._manifests.each(some), commits, strict=True):
                name, key = request.requested_by if request else "", _key(view)
                known[key] = unsigned_requester(view.branch, name, self._prefixes)
                if commit is not None and b"\ngpgsig" in commit and self._signers:
                    checked += 1
                    if checked > _SIGNERS_A_POLL:
                        continue
                    known[key] = _signed(commit, view, self._signers) or known[key]
                self._known[key] = known[key]
        return known

    def forget_all_but(self, keys: Container[_RequestKey]) -> None:
        """Forget requests that no longer wait."""
        self._known = {key: who for key, who in self._known.items() if key in keys}


def take_turns(
    views: Sequence[RequestBranch],
    who: Callable[[RequestBranch], Requester],
    last: Counter[tuple[str, ...]],
    level: int = 1,
) -> list[RequestBranch]:
    """Order views, given oldest first, so that requesters alternate. Whoever has waited longest for a turn is first."""
    groups: dict[tuple[str, ...], list[RequestBranch]] = defaultdict(list)
    for view in views:
        groups[who(view)[:level]].append(view)
    if len(groups) == 1 and all(len(who(view)) <= level for view in views):
        return list(views)
    ordered = sorted(groups, key=lambda key: (last[key], age_sort_key(groups[key][0])))
    queues = [take_turns(groups[key], who, last, level + 1) for key in ordered]
    return [view for row in zip_longest(*queues) for view in row if view is not None]


def age_sort_key(view: RequestBranch) -> tuple[int, str]:
    """Return the sort key of a request: the creation time in its branch name."""
    return (_asked_at(view.branch), view.branch)


def _key(view: RequestBranch) -> _RequestKey:
    return view.branch, view.request


def _signed(commit: bytes, view: RequestBranch, signers: Path) -> Requester | None:
    """Return the signer of a request. A signature counts on the branch for which it was made: all can copy it."""
    try:
        signed = split_signed_commit(commit, view.request)
        binding = Binding.parse(signed.message) if signed else None
        if signed is None or binding is None or binding.branch != view.branch:
            return None
        return ("signer", signer_of(signed, signers))
    except (BadSignature, PolicyError, ProcessError):
        return None


def _label(requester: Requester) -> str:
    *where, name = (part for part in requester if part not in ("here", "below"))
    return ascii(" ".join(("".join(where), name)))[1:-1]
