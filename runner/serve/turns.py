"""Whose turn it is: requesters take turns, each with its oldest request, so that none can keep the others waiting.

A requester is who signed the request. Into one that is not signed anyone can write any name, and below a prefix that
one may push to, one may push to as many longer prefixes as one likes. So turns are shared step by step: signers and the
patterns of the policy share the runner evenly; below a pattern, what stands directly below it has every other turn,
whatever there is in deeper folders; then the folders take turns; and in each of them the names that were given.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from bridge.bus import branch_names, objects, wire
from bridge.bus.history import View
from bridge.errors import InfrastructureError, ManifestError, PolicyError, ProcessError
from bridge.manifest import parse_manifest
from bridge.system import strict_json
from bridge.system.git import Git
from runner.admit.signature import BadSignature, signer_of, take_apart
from runner.policy import Policy
from runner.state.ledger import Ledger

# ("signer", name), or (pattern, "here" or "below", folder, name): each step shares the turns of the one before it.
Requester = tuple[str, ...]

_HOUR_S = 3600.0
# Checking a signature takes two processes; a flood of signed requests is not to hold up a poll.
_SIGNERS_A_POLL = 100
# The files of so many requests are held in memory together.
_AT_ONCE = 100


class Queue:
    """The requests that wait, in the order in which this runner looks at them."""

    def __init__(self, git: Git, policy: Policy, ledger: Ledger, tell: Callable[[str], None]) -> None:
        self._git = git
        self._quota = policy.limits.per_requester
        self._who = Requesters(git, policy.trust.allowed_signers, policy.bus.patterns)
        self._ledger = ledger
        self._tell = tell
        self._turn = 0
        self._last: Counter[tuple[str, ...]] = Counter()
        self._flooding: set[Requester] = set()

    def order(self, views: Iterable[View]) -> list[View]:
        """Return those of the requests that may be looked at now, fairly ordered."""
        waiting = sorted(views, key=age)
        who = self._who.of(waiting)
        self._who.forget_all_but(who)
        self._see(set(who.values()))
        now = time.time()
        taken = self._ledger.taken_between(now - _HOUR_S, now) if self._quota.per_hour else {}
        allowed: list[View] = []
        count: Counter[Requester] = Counter()
        for view in waiting:
            requester = who[view.request]
            count[requester] += 1
            left = self._quota.per_hour is None or taken.get(_label(requester), 0) < self._quota.per_hour
            if left and count[requester] <= self._quota.waiting:
                allowed.append(view)
        self._alert({requester for requester, n in count.items() if n > self._quota.waiting}, count)
        return take_turns(allowed, lambda view: who[view.request], self._last)

    def _see(self, waiting: set[Requester]) -> None:
        """Put who is new behind those who are here: else new names, of which there is no end, would come first."""
        known = {requester[:steps] for requester in waiting for steps in range(1, len(requester) + 1)}
        self._last = Counter({key: self._last.get(key, self._turn) for key in known})

    def served(self, view: View) -> None:
        """Note that a request had its turn."""
        self._turn += 1
        requester = self._who.of([view])[view.request]
        for steps in range(1, len(requester) + 1):
            self._last[requester[:steps]] = self._turn
        if self._quota.per_hour is not None:
            self._ledger.took(_label(requester), time.time())

    def _alert(self, flooding: set[Requester], count: Counter[Requester]) -> None:
        for requester in sorted(flooding - self._flooding):
            few = self._quota.waiting
            self._tell(
                f"{count[requester]} requests of {_label(requester)} wait; {few} are considered at once"
            )
        self._flooding = flooding


class Requesters:
    """Who asks: known for each request commit as long as it waits and the list of signers stays as it is.

    It decides on turns alone. Whether code may run is decided from the commit and the list themselves.
    """

    def __init__(self, git: Git, allowed_signers: Path | None, patterns: Sequence[str]) -> None:
        self._git = git
        # The longest first: a pattern within another one stands for itself.
        self._prefixes = sorted((pattern.removesuffix("*") for pattern in patterns), key=len, reverse=True)
        self._signers = allowed_signers
        self._list: object = None
        self._known: dict[str, Requester] = {}

    def of(self, views: Sequence[View]) -> dict[str, Requester]:
        """Return the requester of each request, by its commit."""
        current = _stamp(self._signers)
        if current != self._list:
            self._list, self._known = current, {}
        new = [view for view in views if view.request not in self._known]
        found = {view.request: self._known[view.request] for view in views if view.request in self._known}
        checked = 0
        for i in range(0, len(new), _AT_ONCE):
            for view, manifest, commit in self._files(new[i : i + _AT_ONCE]):
                found[view.request] = self._unsigned(view.branch, manifest)
                if commit is not None and b"\ngpgsig" in commit and self._signers:
                    checked += 1
                    if checked > _SIGNERS_A_POLL:
                        continue
                    found[view.request] = _signed(commit, view.request, self._signers) or found[view.request]
                self._known[view.request] = found[view.request]
        return found

    def _files(self, views: Sequence[View]) -> Iterator[tuple[View, bytes | None, bytes | None]]:
        """Yield each request with its manifest and, if signatures count, its commit; None for what cannot be read."""
        try:
            manifests = objects.read_many(
                self._git,
                [f"{view.request}:{wire.REQUEST}" for view in views],
                max_bytes=strict_json.MAX_BYTES,
            )
            commits = objects.read_many(
                self._git, [view.request for view in views], max_bytes=strict_json.MAX_BYTES, kind="commit"
            ) if self._signers else [None] * len(views)  # fmt: skip
        except InfrastructureError:
            if len(views) == 1:
                yield views[0], None, None
                return
            for view in views:
                yield from self._files([view])
            return
        yield from zip(views, manifests, commits, strict=True)

    def _unsigned(self, branch: str, manifest: bytes | None) -> Requester:
        parsed = branch_names.parse_branch(branch)
        prefix = parsed.prefix if parsed else ""
        pattern = next((known for known in self._prefixes if branch.startswith(known)), "")
        folder = prefix.removeprefix(pattern)
        try:
            name = parse_manifest(manifest or b"").requested_by
        except ManifestError:
            name = ""
        return (pattern, "below" if folder else "here", folder, name)

    def forget_all_but(self, requests: Container[str]) -> None:
        """Forget the requests that wait no longer."""
        self._known = {request: who for request, who in self._known.items() if request in requests}


def take_turns(
    views: Sequence[View], who: Callable[[View], Requester], last: Counter[tuple[str, ...]], level: int = 1
) -> list[View]:
    """Return the views, given oldest first, so that requesters alternate; who had no turn for longest begins."""
    groups: dict[tuple[str, ...], list[View]] = defaultdict(list)
    for view in views:
        groups[who(view)[:level]].append(view)
    if len(groups) == 1 and all(len(who(view)) <= level for view in views):
        return list(views)
    ordered = sorted(groups, key=lambda key: (last[key], age(groups[key][0])))
    queues = [take_turns(groups[key], who, last, level + 1) for key in ordered]
    return [view for row in zip_longest(*queues) for view in row if view is not None]


def age(view: View) -> tuple[int, str]:
    """Return what sorts requests by when they say they were made."""
    parsed = branch_names.parse_branch(view.branch)
    return (branch_names.nonce_time(parsed.nonce) if parsed else 0, view.branch)


def _signed(commit: bytes, name: str, signers: Path) -> Requester | None:
    try:
        signed = take_apart(commit, name)
        return ("signer", signer_of(signed, signers)) if signed else None
    except (BadSignature, PolicyError, ProcessError):
        return None


def _label(requester: Requester) -> str:
    *where, name = (part for part in requester if part not in ("here", "below"))
    return ascii(" ".join(("".join(where), name)))[1:-1]


def _stamp(path: Path | None) -> object:
    try:
        about = path.stat() if path else None
    except OSError:
        return None
    return about and (about.st_ino, about.st_size, about.st_mtime_ns)
