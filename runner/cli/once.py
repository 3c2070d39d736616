"""`kakeya-runner once`."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.bus.wire import EXIT_CODES
from bridge.errors import ExitCode
from runner.cli.common import stop_on_signals, tell
from runner.policy import load_policy
from runner.serve.loop import once
from runner.session import open_session


@click.command()
@click.option("--branch", required=True, help="The request branch.")
@click.option("--commit", metavar="ID", help="Handle it only if this is the request commit.")
@click.pass_obj
def command(policy: Path | None, branch: str, commit: str | None) -> int:
    """Handle one request branch and end with its exit code.

    This is what a GitHub Actions workflow calls. A branch that has its answer is left alone; where another
    runner holds it, or where it waits for approval, the exit code is 3.
    """
    with open_session(load_policy(policy), tell) as session:
        stop_on_signals(session.stop)
        state = once(session, branch, commit)
    return ExitCode.INFRASTRUCTURE if state is None else EXIT_CODES.get(state, ExitCode.INFRASTRUCTURE)
