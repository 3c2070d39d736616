"""``kakeya-runner once``."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.bus.wire import EXIT_CODES
from bridge.common.cli.commands import FOLDER, option
from bridge.errors import ExitCode
from runner.cli.common import stop_on_signals, tell
from runner.context import open_runner
from runner.policy import load_policy
from runner.serve.loop import keep_results, once
from runner.service.workflow_models import with_workflow_models


@click.command()
@option("--branch", required=True, help="The request branch.")
@option("--commit", metavar="ID", help="Handle the request only if this is its commit.")
@option(
    "--results", FOLDER, metavar="DIR", help="Also write the answer's files here, for the workflow to keep."
)
@click.pass_obj
def command(policy: Path | None, branch: str, commit: str | None, results: Path | None) -> int:
    """Handle one request branch and exit with its exit code.

    GitHub Actions workflows call this command. A branch that is already answered is left alone. If another runner
    holds the request, if it is left to one, or if it waits for approval, the exit code is 3.

    KAKEYA_MAC_VERIFIER_PATH and KAKEYA_MAC_DRAFTER_ID in the environment choose the models, if the policy's
    actions.models allows them.
    """
    with open_runner(with_workflow_models(load_policy(policy), tell), tell) as context:
        stop_on_signals(context.stop)
        state = once(context, branch, commit)
        if results:
            keep_results(context, branch, results)
    return ExitCode.INFRASTRUCTURE if state is None else EXIT_CODES.get(state, ExitCode.INFRASTRUCTURE)
