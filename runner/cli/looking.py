"""What an operator looks at: ``kakeya-runner check`` and ``status``."""

from collections.abc import Sequence
from pathlib import Path

import click

from bridge.checklist import Check, show, show_incrementally
from bridge.common.cli.commands import flag, json_option
from bridge.common.cli.output import put_json
from bridge.errors import ExitCode
from runner.cli.common import for_each_policy, policies_argument
from runner.doctor.readiness import SERVING, examine
from runner.doctor.status import checks, overview
from runner.policy import load_policy


@click.command()
@policies_argument
@json_option
@click.pass_obj
def check_command(policy: Path | None, others: tuple[Path, ...], *, as_json: bool) -> int:
    """Check this host: policy, bus, interpreter, models, presets.

    Loads the models that the presets need, as jobs would load them. Downloads nothing.
    Exits with 0 if this host can serve, otherwise with 1.
    """

    def check(file: Path | None) -> int:
        return show_incrementally(examine(file), next_step, as_json=as_json)

    return for_each_policy(policy, others, check, as_json=as_json)


def next_step(checks: Sequence[Check]) -> str:
    """Return the next step on a host that is ready; nothing if a runner serves already."""
    serves = any(check.name == SERVING for check in checks)
    return "a runner is serving" if serves else "kakeya-runner serve"


@click.command()
@policies_argument
@flag("--no-blas", "Skip the BLAS check of the engine, which takes seconds.")
@json_option
@click.pass_obj
def status_command(policy: Path | None, others: tuple[Path, ...], *, no_blas: bool, as_json: bool) -> int:
    """Show what the runner is doing: its job, its queue, its last answers.

    Only reads the state folder, so it does not disturb a serving runner. Exits with 0 if a runner serves and reaches
    the bus, otherwise with 1.
    """

    def look(file: Path | None) -> int:
        facts = overview(load_policy(file), blas=not no_blas)
        if as_json:
            put_json(facts)
        else:
            show(checks(facts))
        fine = facts["serving"] and not facts["runner"]["trouble"]
        return ExitCode.SUCCEEDED if fine else ExitCode.FAILED

    return for_each_policy(policy, others, look, as_json=as_json)
