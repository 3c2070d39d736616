"""Which request an operator means, by its commit or its branch."""

from __future__ import annotations

from bridge.bus import branch_names, objects, wire
from bridge.errors import RefusedError, UsageError
from bridge.system.git import Git
from runner.bus.bus import Bus
from runner.bus.reading import read_each
from runner.policy import Policy
from runner.state import signing_key

# Of so many branches each is named.
_SHOWN = 5


def branch_of(commit: str, policy: Policy) -> str:
    """Return the one branch of the bus that has a commit as its request. Raises RefusedError if there is not just one.

    A branch counts that is at the commit, or at a state upon it that is in the runner's store.
    """
    bus = Bus(policy.bus, policy.state)
    bus.listing.read()
    here = objects.locate(bus.git, set(bus.listing.tips.values()))
    known = {branch: tip for branch, tip in bus.listing.tips.items() if tip in here and tip != commit}
    views = read_each(bus.git, known, lambda _branch, _error: None, signing_key.reader(policy))
    found = [branch for branch, tip in bus.listing.tips.items() if tip == commit]
    found += [view.branch for view in views.values() if view.request == commit]
    if not found:
        message = f"no request branch on the bus is at {commit}"
        raise RefusedError(message, code="no_such_request", fix="Push the request first, or give its branch.")
    if len(found) > 1:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        message = (
            f"{len(found)} branches have this commit as their request: {', '.join(found[:_SHOWN])}{more}"
        )
        raise RefusedError(message, code="ambiguous", fix="Give the branch instead of the commit.")
    return found[0]


def request_on(branch: str, policy: Policy) -> tuple[str, str]:
    """Return the request commit on a branch of the bus, and its manifest for people.

    Raises UsageError for a name that this runner does not serve, RefusedError for a branch that is not there.
    """
    if not branch_names.is_safe(branch) or not branch_names.matches(branch, tuple(policy.bus.patterns)):
        raise UsageError(f"{branch!a} is neither a commit id nor a branch that this runner serves")
    bus = Bus(policy.bus, policy.state)
    tip = bus.tip(branch)
    if tip is None:
        raise RefusedError(f"there is no branch {branch} on the bus", code="no_such_request")
    commit = signing_key.reader(policy).view(bus.git, branch, tip).request
    return commit, _shown(bus.git, commit)


def _shown(git: Git, commit: str) -> str:
    """Return the manifest for people."""
    (manifest,) = objects.read_many(git, [f"{commit}:{wire.REQUEST}"], max_bytes=wire.MAX_STATE)
    return (manifest or b"(the request has no manifest)").decode("utf-8", "replace").rstrip("\n")
