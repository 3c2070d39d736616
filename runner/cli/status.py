"""``kakeya-runner status``."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.checks import show
from bridge.common.cli.commands import flag, json_option
from bridge.common.cli.output import put_json
from bridge.errors import ExitCode
from runner.check.status import checks, overview
from runner.policy import load_policy


@click.command()
@flag("--no-blas", "Skip the BLAS check of the engine, which takes seconds.")
@json_option
@click.pass_obj
def command(policy: Path | None, *, no_blas: bool, as_json: bool) -> int:
    """Show what the runner is doing: its job, its queue, its last answers.

    Only reads the state folder, so it does not disturb a serving runner. Exits with 0 if a runner serves and reaches
    the bus, otherwise with 1.
    """
    facts = overview(load_policy(policy), blas=not no_blas)
    if as_json:
        put_json(facts)
    else:
        show(checks(facts))
    fine = facts["serving"] and not facts["runner"]["trouble"]
    return ExitCode.SUCCEEDED if fine else ExitCode.FAILED
