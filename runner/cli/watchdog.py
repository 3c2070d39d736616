"""`kakeya-runner watchdog`."""

from __future__ import annotations

from pathlib import Path

import click

from runner.cli.common import tell
from runner.policy import load_policy
from runner.service.watchdog import Watchdog


@click.command()
@click.option(
    "--listener", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Look at GitHub's own listener too: the folder that it was installed in.",
)  # fmt: skip
@click.pass_obj
def command(policy: Path | None, listener: Path | None) -> None:
    """Look once whether the runner hangs, and kill it then, so that its service starts it again.

    `kakeya-runner install` has launchd do this every minute. On Linux systemd does it without this command.
    """
    state = load_policy(policy).state
    if state.is_dir():
        Watchdog(state, tell, listener.absolute() if listener else None).look()
