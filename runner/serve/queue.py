"""The queue's order: requesters take turns, each with its oldest request, so that nobody can block the others.

The requester of a signed request is its signer. An unsigned request can contain any name, and whoever may push below a
prefix may push below many longer ones. So turns are shared level by level, as docs/security.md says.
"""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from bridge.bus import branch_names
from bridge.bus.branch_names import Requester, pattern_prefixes, unsigned_requester
from bridge.bus.history import RequestBranch
from bridge.errors import PolicyError, ProcessError
from bridge.manifest import Request
from bridge.requests.binding import Binding
from bridge.system.git import Git
from bridge.system.local_files import stamp
from runner.admit.manifests import CACHE_BYTES, read_some, read_together
from runner.admit.signature import BadSignature, signer_of, split_signed_commit
from runner.bus.backoff import Spread
from runner.policy import Policy
from runner.serve.tracked import TrackedRequest
from runner.state.ledger import Ledger

_Item = TypeVar("_Item")
_HOUR_S = 3600.0
# Each of so many turns goes to the first request in fair order, whatever its preset's priority: none waits for ever.
_FAIR_TURN = 4
# Checking a signature starts two processes, so the number per poll is limited.
_SIGNERS_A_POLL = 100
# How many requests' files are in memory at once.
_AT_ONCE = 100


class FairQueue:
    """The waiting requests, in the order in which this runner handles them."""

    def __init__(
        self,
        git: Git,
        policy: Policy,
        ledger: Ledger,
        tell: Callable[[str], None],
        spread: Spread | None = None,
    ) -> None:
        self._quota = policy.limits.per_requester
        self._priority_of = policy.priority_of if policy.priority else None
        self._who = Requesters(git, policy.trust.allowed_signers, policy.bus.patterns)
        self._ledger = ledger
        self._tell = tell
        self._spread = spread or Spread()
        self._turn = 0
        self._last: Counter[tuple[str, ...]] = Counter()
        self._flooding: set[Requester] = set()

    def order(
        self, requests: Iterable[TrackedRequest], blocked: Container[TrackedRequest] = ()
    ) -> list[TrackedRequest]:
        """Return the requests that may have a turn now, in fair order. ``blocked`` ones use up no quota.

        If other runners compete for them, the first ones are in any order.
        """
        waiting = sorted(requests, key=lambda request: request.age)
        who = self._who.of(waiting)
        # New requesters stand behind the known ones. Otherwise an endless supply of new names would come first.
        known = {name[:steps] for name in {*who.values()} for steps in range(1, len(name) + 1)}
        self._last = Counter({key: self._last.get(key, self._turn) for key in known})
        now = time.time()
        counts = self._ledger.taken_between(now - _HOUR_S, now) if self._quota.per_hour else {}
        allowed: list[TrackedRequest] = []
        count: Counter[Requester] = Counter()
        for request in waiting:
            requester = who[request]
            count[requester] += request not in blocked
            most = self._quota.per_hour
            has_quota = most is None or counts.get(_label(requester), 0) < most
            if has_quota and count[requester] <= self._quota.waiting:
                allowed.append(request)
        self._alert(count)
        fair = take_turns(allowed, who.__getitem__, self._last)
        width = self._spread.width
        ignores_priority = self._turn % _FAIR_TURN == _FAIR_TURN - 1
        if self._priority_of is None or ignores_priority:
            return mix(fair, width, blocked) if width > 1 else fair
        mixed = mix(self._preferred(fair, self._priority_of), width, blocked)
        return self._preferred(mixed, self._priority_of)

    def _preferred(self, fair: list[TrackedRequest], priority: Callable[[str], int]) -> list[TrackedRequest]:
        """Put requests for presets of a higher priority first."""
        priority_of = lru_cache(None)(priority)

        def rank(request: TrackedRequest) -> int:
            parsed = branch_names.parse_branch(request.branch.name)
            return -priority_of(parsed.preset) if parsed else 0

        return sorted(fair, key=rank)

    def check(self, request: TrackedRequest) -> None:
        """Determine what ``order`` needs to know about one request, and raise any error."""
        self._who.of([request])

    def served(self, request: TrackedRequest) -> None:
        """Record that a request had its turn."""
        self._turn += 1
        requester = self._who.of([request])[request]
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
    """Finds who has a turn for a request, once for each record, unless the list of signers changes.

    A request is known by its branch and its commit, because anybody can put another branch at the same commit, or write
    a state that names it. This decides only the order of turns, and never whether code may run.
    """

    def __init__(self, git: Git, allowed_signers: Path | None, patterns: Sequence[str]) -> None:
        self._git = git
        self._prefixes = pattern_prefixes(patterns)
        self._signers = allowed_signers
        self._list: object = None

    def of(self, requests: Sequence[TrackedRequest]) -> dict[TrackedRequest, Requester]:
        """Return the requester of each request, and keep it and the manifest in its record."""
        current = stamp(self._signers) if self._signers else None
        who: dict[TrackedRequest, Requester] = {}
        for request in requests:
            if request.requester and request.signers == current:
                who[request] = request.requester
        new = [request for request in requests if request not in who]
        room = CACHE_BYTES - sum(request.manifest_bytes for request in requests)
        checked = 0
        for i in range(0, len(new), _AT_ONCE):
            some = new[i : i + _AT_ONCE]
            commits = [request.branch.request for request in some]
            manifests = read_together(self._git, commits)
            # Commits have to be read only if signatures count.
            texts = read_some(self._git, commits, kind="commit") if self._signers else [None] * len(some)
            for request, text in zip(some, texts, strict=True):
                branch = request.branch
                manifest, size = manifests.get(branch.request, (None, 0))
                if size <= room:
                    room -= size - request.manifest_bytes
                    request.manifest, request.manifest_bytes = manifest, size
                name = manifest.requested_by if isinstance(manifest, Request) else ""
                who[request] = unsigned_requester(branch.name, name, self._prefixes)
                if text is not None and b"\ngpgsig" in text and self._signers:
                    checked += 1
                    if checked > _SIGNERS_A_POLL:
                        continue
                    who[request] = _signed(text, branch, self._signers) or who[request]
                request.requester, request.signers = who[request], current
        return who


def take_turns(
    requests: Sequence[TrackedRequest],
    who: Callable[[TrackedRequest], Requester],
    last: Counter[tuple[str, ...]],
    level: int = 1,
) -> list[TrackedRequest]:
    """Order requests, given oldest first, so that requesters alternate. Whoever waited longest for a turn is first."""
    groups: dict[tuple[str, ...], list[TrackedRequest]] = defaultdict(list)
    for request in requests:
        groups[who(request)[:level]].append(request)
    if len(groups) == 1 and all(len(who(request)) <= level for request in requests):
        return list(requests)
    ordered = sorted(groups, key=last.__getitem__)
    queues = [take_turns(groups[key], who, last, level + 1) for key in ordered]
    return [request for row in zip_longest(*queues) for request in row if request is not None]


def mix(items: Sequence[_Item], width: int, stays: Container[_Item] = ()) -> list[_Item]:
    """Return the items with the first ``width`` in any order. Those in ``stays`` keep their places."""
    places = [i for i, item in enumerate(items) if item not in stays][:width]
    mixed = list(items)
    for i, j in zip(places, random.sample(places, len(places)), strict=True):
        mixed[i] = items[j]
    return mixed


def _signed(commit: bytes, branch: RequestBranch, signers: Path) -> Requester | None:
    """Return the signer of a request. A signature counts on the branch for which it was made: all can copy it."""
    try:
        signed = split_signed_commit(commit, branch.request)
        binding = Binding.parse(signed.message) if signed else None
        if signed is None or binding is None or binding.branch != branch.name:
            return None
        return ("signer", signer_of(signed, signers))
    except (BadSignature, PolicyError, ProcessError):
        return None


def _label(requester: Requester) -> str:
    return ascii(f"{requester[0]}{''.join(requester[2:-1])} {requester[-1]}")[1:-1]
