"""``kakeya-runner approve``."""

from pathlib import Path

import click

from bridge.bus import branch_names, objects
from bridge.bus.history import RequestBranch
from bridge.common.cli.commands import flag
from bridge.common.cli.output import put, put_block, say
from bridge.errors import RefusedError, UsageError
from bridge.manifest import COMMIT
from runner.admit.approvals import Approvals
from runner.admit.manifests import read_candidate
from runner.bus.bus import Bus
from runner.ownership import user_name
from runner.policy import Policy, load_policy
from runner.refusal import Refusal
from runner.state import signing_key

# How many branches an error names.
_SHOWN = 5


@click.command()
@click.argument("request")
@flag("--withdraw", "Withdraw an approval, if the job has not started.")
@click.pass_obj
def command(policy: Path | None, request: str, *, withdraw: bool) -> None:
    """Allow the code of one request to run on this host.

    REQUEST is a commit id or a request branch. The approval is for exactly that commit on that one branch. Read the
    commit first and give its id, because a branch may have moved since. If several branches have the commit as their
    request, give the branch. You can do this while the runner serves.
    """
    rules = load_policy(policy)
    if rules.trust.code_request == "deny":
        fix = "Set trust.code_request to signed in the policy; then only signed or approved code runs."
        raise UsageError("the policy denies all code of requesters, so an approval has no effect", fix=fix)
    approvals = Approvals(rules.state)
    if withdraw:
        _withdraw(approvals, request, rules)
        say("withdrawn")
        return
    if COMMIT.fullmatch(request):
        commit, branch = request, _branch_of(request, rules)
    else:
        commit, branch = _request_on(request, rules), request
    approvals.approve(branch, commit, user_name())
    put(commit)
    say(f"approved on {branch}; the runner will run it once, when it sees it")


def _withdraw(approvals: Approvals, request: str, rules: Policy) -> None:
    """Withdraw approvals. A commit id withdraws them on every branch, even on deleted ones."""
    if COMMIT.fullmatch(request):
        commit, branches = request, approvals.branches_of(request)
    else:
        commit, branches = _request_on(request, rules), [request]
    withdrawn = [approvals.withdraw(branch, commit) for branch in branches]
    if not any(withdrawn):
        raise UsageError(f"{commit} was not approved")
    put(commit)


def _branch_of(commit: str, policy: Policy) -> str:
    """Return the branch whose request is this commit: its tip is the request, or a later state in the store."""
    bus = Bus(policy.bus, policy.state)
    bus.listing.read()
    tips = bus.sightings.judge(bus.listing.tips)
    here = objects.locate(bus.git, set(tips.values()))
    known = {name: tip for name, tip in tips.items() if tip in here and tip != commit}
    branches = signing_key.reader(policy).read_each(bus.git, known, lambda _branch, _error: None)
    names = [name for name, tip in tips.items() if tip == commit]
    names += [branch.name for branch in branches.values() if branch.request == commit]
    if not names:
        message = f"no request branch on the bus is at {commit}"
        raise RefusedError(message, code="no_such_request", fix="Push the request first, or give its branch.")
    if len(names) > 1:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        message = (
            f"{len(names)} branches have this commit as their request: {', '.join(names[:_SHOWN])}{more}"
        )
        raise RefusedError(message, code="ambiguous", fix="Give the branch instead of the commit.")
    if names[0] in branches:
        _check_open(branches[names[0]])
    return names[0]


def _check_open(branch: RequestBranch) -> None:
    """Raise a RefusedError if a request has ended: an approval comes too late."""
    if branch.current_state.is_final:
        message = f"{branch.name} has already ended: {branch.current_state}"
        fix = "Nothing runs it again. Ask the requester to send it anew, and approve that request."
        raise RefusedError(message, code="ended", fix=fix)


def _request_on(name: str, policy: Policy) -> str:
    """Return the request commit on a branch of the bus, and show its manifest as this runner reads it.

    The layout of the manifest's own text could hide a part of it.
    """
    if not branch_names.is_safe(name) or not branch_names.matches(name, tuple(policy.bus.patterns)):
        raise UsageError(f"{name!a} is neither a commit id nor a branch that this runner serves")
    bus = Bus(policy.bus, policy.state)
    tip = bus.tip(name)
    if tip is None:
        raise RefusedError(f"there is no branch {name} on the bus", code="no_such_request")
    branch = signing_key.reader(policy).read_branch(bus.git, name, tip)
    _check_open(branch)
    parsed = read_candidate(bus.git, branch).parsed
    if isinstance(parsed, Refusal):
        put_block(f"(this runner will refuse the request: {parsed.message})\n", err=True)
    else:
        put_block(parsed.to_json().rstrip("\n") + "\n", err=True)
    return branch.request
