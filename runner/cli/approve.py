"""`kakeya-runner approve`."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import click

from bridge import history, names, objects, wire
from bridge.command import say
from bridge.errors import RefusedError, UsageError
from bridge.git import Git
from bridge.manifest import COMMIT
from runner.approvals import Approvals
from runner.bus import Bus
from runner.policy import Policy, load_policy


@click.command()
@click.argument("request")
@click.option("--withdraw", is_flag=True, help="Take an approval back, as long as the job has not begun.")
@click.pass_obj
def command(policy: Path | None, request: str, *, withdraw: bool) -> None:
    """Let the code of one request run on this host.

    REQUEST is a commit id or a request branch. The approval is for that exact commit: read it first, and name the
    commit that you read; a branch may have moved since. It may be given while the runner serves, and before the
    request arrives.
    """
    rules = load_policy(policy)
    if rules.trust.code_request == "deny":
        fix = "Set trust.code_request to signed; then what is signed or approved is run, and nothing else."
        raise UsageError("the policy denies all code of requesters, so an approval means nothing", fix=fix)
    commit = request if COMMIT.fullmatch(request) else _request_on(request, rules)
    approvals = Approvals(rules.state)
    if withdraw and not approvals.withdraw(commit):
        raise UsageError(f"{commit} was not approved")
    if not withdraw:
        approvals.approve(commit, _operator())
    click.echo(commit)
    say("withdrawn" if withdraw else "approved; it runs when the runner sees it, and once")


def _operator() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


def _request_on(branch: str, policy: Policy) -> str:
    """Return the request commit on a branch of the bus, and show what it asks for."""
    if not names.is_safe(branch) or not names.matches(branch, tuple(policy.bus.patterns)):
        raise UsageError(f"{branch!a} is neither a commit id nor a branch that this runner serves")
    bus = Bus(policy.bus, policy.state)
    tip = bus.tip(branch)
    if tip is None:
        raise RefusedError(f"there is no branch {branch} on the bus", code="no_such_request")
    commit = history.read_view(bus.git, branch, tip).request
    say(_shown(bus.git, commit))
    return commit


def _shown(git: Git, commit: str) -> str:
    """Return the manifest for people, with nothing in it that could steer a terminal."""
    (manifest,) = objects.read_many(git, [f"{commit}:{wire.REQUEST}"], max_bytes=wire.MAX_STATE)
    text = (manifest or b"it has no manifest").decode("utf-8", "replace")
    return "\n".join(line if line.isprintable() else ascii(line) for line in text.split("\n"))
