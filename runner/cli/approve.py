"""``kakeya-runner approve``."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.common.cli.commands import flag
from bridge.common.cli.output import put, put_block, say
from bridge.errors import UsageError
from bridge.manifest import COMMIT
from runner.admit.approvals import Approvals
from runner.admit.named_request import branch_of, request_on
from runner.ownership import user_name
from runner.policy import Policy, load_policy


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
        commit, branch = request, branch_of(request, rules)
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


def _request_on(branch: str, rules: Policy) -> str:
    """Return the request commit on a branch of the bus, and show its manifest."""
    commit, manifest = request_on(branch, rules)
    put_block(f"{manifest}\n", err=True)
    return commit
