"""`kakeya-runner approve`."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import click

from bridge.bus import branch_names, objects, wire
from bridge.console import put, put_block, say
from bridge.errors import RefusedError, UsageError
from bridge.manifest import COMMIT
from bridge.system.git import Git
from runner.admit.approvals import Approvals
from runner.bus.bus import Bus
from runner.bus.reading import read_each
from runner.policy import Policy, load_policy
from runner.state import signing_key

# Of so many branches each is named.
_SHOWN = 5


@click.command()
@click.argument("request")
@click.option("--withdraw", is_flag=True, help="Take an approval back, as long as the job has not begun.")
@click.pass_obj
def command(policy: Path | None, request: str, *, withdraw: bool) -> None:
    """Let the code of one request run on this host.

    REQUEST is a commit id or a request branch. The approval is for that exact commit on that one branch: read it
    first, and name the commit that you read; a branch may have moved since. If several branches have the commit as
    their request, name the branch. It may be given while the runner serves.
    """
    rules = load_policy(policy)
    if rules.trust.code_request == "deny":
        fix = "Set trust.code_request to signed; then what is signed or approved is run, and nothing else."
        raise UsageError("the policy denies all code of requesters, so an approval means nothing", fix=fix)
    approvals = Approvals(rules.state)
    if withdraw:
        _withdraw(approvals, request, rules)
        say("withdrawn")
        return
    if COMMIT.fullmatch(request):
        commit, branch = request, _branch_of(request, rules)
    else:
        commit, branch = _request_on(request, rules), request
    approvals.approve(branch, commit, _operator())
    put(commit)
    say(f"approved on {branch}; it runs when the runner sees it, and once")


def _withdraw(approvals: Approvals, request: str, rules: Policy) -> None:
    """Take back what was approved: for a commit id on every branch on which it was, also if the branch is gone."""
    if COMMIT.fullmatch(request):
        commit, branches = request, approvals.branches_of(request)
    else:
        commit, branches = _request_on(request, rules), [request]
    withdrawn = [approvals.withdraw(branch, commit) for branch in branches]
    if not any(withdrawn):
        raise UsageError(f"{commit} was not approved")
    put(commit)


def _operator() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


def _branch_of(commit: str, policy: Policy) -> str:
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
        raise RefusedError(message, code="no_such_request", fix="Push the request first, or name its branch.")
    if len(found) > 1:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        message = (
            f"{len(found)} branches have this commit as their request: {', '.join(found[:_SHOWN])}{more}"
        )
        raise RefusedError(
            message, code="ambiguous", fix="Name the branch that you mean instead of the commit."
        )
    return found[0]


def _request_on(branch: str, policy: Policy) -> str:
    """Return the request commit on a branch of the bus, and show what it asks for."""
    if not branch_names.is_safe(branch) or not branch_names.matches(branch, tuple(policy.bus.patterns)):
        raise UsageError(f"{branch!a} is neither a commit id nor a branch that this runner serves")
    bus = Bus(policy.bus, policy.state)
    tip = bus.tip(branch)
    if tip is None:
        raise RefusedError(f"there is no branch {branch} on the bus", code="no_such_request")
    commit = signing_key.reader(policy).view(bus.git, branch, tip).request
    put_block(_shown(bus.git, commit), err=True)
    return commit


def _shown(git: Git, commit: str) -> str:
    """Return the manifest for people."""
    (manifest,) = objects.read_many(git, [f"{commit}:{wire.REQUEST}"], max_bytes=wire.MAX_STATE)
    return (manifest or b"it has no manifest").decode("utf-8", "replace").rstrip("\n") + "\n"
