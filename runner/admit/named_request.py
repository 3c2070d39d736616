"""Finds the request that an operator names by its commit or its branch."""

from __future__ import annotations

from bridge.bus import branch_names, lookup
from bridge.bus.history import RequestBranch
from bridge.errors import RefusedError, UsageError
from runner.admit.manifests import Candidate, read_candidate
from runner.bus.bus import Bus, read_each
from runner.policy import Policy
from runner.refusal import Refusal
from runner.state import signing_key

# How many branches an error names.
_SHOWN = 5


def branch_of(commit: str, policy: Policy) -> str:
    """Return the branch whose request is this commit.

    A branch matches if its tip is the commit, or a state on top of it that is in the runner's store.

    Raises:
        RefusedError: there is none, or more than one.
    """
    bus = Bus(policy.bus, policy.state)
    bus.listing.read()
    here = lookup.locate(bus.git, set(bus.listing.tips.values()))
    known = {branch: tip for branch, tip in bus.listing.tips.items() if tip in here and tip != commit}
    views = read_each(bus.git, known, lambda _branch, _error: None, signing_key.reader(policy))
    branches = [branch for branch, tip in bus.listing.tips.items() if tip == commit]
    branches += [view.branch for view in views.values() if view.request == commit]
    if not branches:
        message = f"no request branch on the bus is at {commit}"
        raise RefusedError(message, code="no_such_request", fix="Push the request first, or give its branch.")
    if len(branches) > 1:
        more = f" and {len(branches) - _SHOWN} more" if len(branches) > _SHOWN else ""
        message = f"{len(branches)} branches have this commit as their request: {', '.join(branches[:_SHOWN])}{more}"
        raise RefusedError(message, code="ambiguous", fix="Give the branch instead of the commit.")
    if branches[0] in views:
        _check_open(views[branches[0]])
    return branches[0]


def _check_open(view: RequestBranch) -> None:
    """Raise a RefusedError if a request has ended: an approval comes too late."""
    if view.current_state.is_final:
        message = f"{view.branch} has already ended: {view.current_state}"
        fix = "Nothing runs it again. Ask the requester to send it anew, and approve that request."
        raise RefusedError(message, code="ended", fix=fix)


def request_on(branch: str, policy: Policy) -> tuple[str, str]:
    """Return the request commit on a branch of the bus, and its manifest as readable text.

    Raises:
        UsageError: this runner does not serve the name.
        RefusedError: the branch does not exist.
    """
    if not branch_names.is_safe(branch) or not branch_names.matches(branch, tuple(policy.bus.patterns)):
        raise UsageError(f"{branch!a} is neither a commit id nor a branch that this runner serves")
    bus = Bus(policy.bus, policy.state)
    tip = bus.tip(branch)
    if tip is None:
        raise RefusedError(f"there is no branch {branch} on the bus", code="no_such_request")
    view = signing_key.reader(policy).view(bus.git, branch, tip)
    _check_open(view)
    return view.request, _shown(read_candidate(bus.git, view))


def _shown(candidate: Candidate) -> str:
    """Return the manifest as this runner reads it, because the layout of its text could hide a part of it."""
    if isinstance(candidate.parsed, Refusal):
        return f"(this runner will refuse the request: {candidate.parsed.message})"
    return candidate.parsed.to_json().rstrip("\n")
