"""Whose turn it is: requesters take turns, each with its oldest request, so that none can keep the others waiting.

A requester is who signed the request. Into one that is not signed anyone can write any name, so of those the prefix of
the branch counts first, which git servers can confine an agent to: prefixes and signers share the runner evenly, and
below each prefix the names that were given do.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

from bridge import names, objects, strictjson, wire
from bridge.errors import ManifestError, PolicyError, ProcessError
from bridge.git import Git
from bridge.history import View
from bridge.manifest import parse_manifest
from runner.ledger import Ledger
from runner.policy import Policy
from runner.signature import MAX_COMMIT, BadSignature, signer_of, take_apart

Requester = tuple[str, str]

_HOUR_S = 3600.0
# Checking a signature takes two processes; a flood of signed requests is not to hold up a poll.
_SIGNERS_A_POLL = 100


class Queue:
    """The requests that wait, in the order in which this runner looks at them."""

    def __init__(self, git: Git, policy: Policy, ledger: Ledger, tell: Callable[[str], None]) -> None:
        self._git = git
        self._quota = policy.limits.per_requester
        self._who = Requesters(git, policy.trust.allowed_signers)
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

    def served(self, view: View) -> None:
        """Note that a request had its turn."""
        self._turn += 1
        requester = self._who.of([view])[view.request]
        for key in (requester[:1], requester):
            self._last[key] = self._turn
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

    def __init__(self, git: Git, allowed_signers: Path | None) -> None:
        self._git = git
        self._signers = allowed_signers
        self._list: object = None
        self._known: dict[str, Requester] = {}

    def of(self, views: Sequence[View]) -> dict[str, Requester]:
        """Return the requester of each request, by its commit."""
        current = _stamp(self._signers)
        if current != self._list:
            self._list, self._known = current, {}
        new = [view for view in views if view.request not in self._known]
        manifests = objects.read_many(
            self._git, [f"{view.request}:{wire.REQUEST}" for view in new], max_bytes=strictjson.MAX_BYTES
        )
        commits = objects.read_many(
            self._git, [view.request for view in new], max_bytes=MAX_COMMIT, kind="commit"
        ) if self._signers else [None] * len(new)  # fmt: skip
        found = {view.request: self._known[view.request] for view in views if view.request in self._known}
        checked = 0
        for view, manifest, commit in zip(new, manifests, commits, strict=True):
            signed = commit is not None and b"\ngpgsig" in commit
            found[view.request] = _unsigned(view.branch, manifest)
            if signed and commit is not None and self._signers:
                checked += 1
                if checked > _SIGNERS_A_POLL:
                    continue
                found[view.request] = _signed(commit, view.request, self._signers) or found[view.request]
            self._known[view.request] = found[view.request]
        return found

    def forget_all_but(self, requests: Container[str]) -> None:
        """Forget the requests that wait no longer."""
        self._known = {request: who for request, who in self._known.items() if request in requests}


def take_turns(
    views: Sequence[View], who: Callable[[View], Requester], last: Counter[tuple[str, ...]], level: int = 1
) -> list[View]:
    """Return the views, given oldest first, so that requesters alternate; who had no turn for longest begins."""
    if level > 2:  # noqa: PLR2004 - the parts of a requester
        return list(views)
    groups: dict[tuple[str, ...], list[View]] = defaultdict(list)
    for view in views:
        groups[who(view)[:level]].append(view)
    ordered = sorted(groups, key=lambda key: (last[key], age(groups[key][0])))
    queues = [take_turns(groups[key], who, last, level + 1) for key in ordered]
    return [view for row in zip_longest(*queues) for view in row if view is not None]


def age(view: View) -> tuple[int, str]:
    """Return what sorts requests by when they say they were made."""
    parsed = names.parse_branch(view.branch)
    return (names.nonce_time(parsed.nonce) if parsed else 0, view.branch)


def _unsigned(branch: str, manifest: bytes | None) -> Requester:
    parsed = names.parse_branch(branch)
    try:
        name = parse_manifest(manifest or b"").requested_by
    except ManifestError:
        name = ""
    return (parsed.prefix if parsed else "", name)


def _signed(commit: bytes, name: str, signers: Path) -> Requester | None:
    try:
        signed = take_apart(commit, name)
        return ("signer", signer_of(signed, signers)) if signed else None
    except (BadSignature, PolicyError, ProcessError):
        return None


def _label(requester: Requester) -> str:
    return ascii(" ".join(requester))[1:-1]


def _stamp(path: Path | None) -> object:
    try:
        about = path.stat() if path else None
    except OSError:
        return None
    return about and (about.st_ino, about.st_size, about.st_mtime_ns)
