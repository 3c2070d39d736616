"""``kakeya-runner watchdog``."""

from __future__ import annotations

from pathlib import Path

import click

from runner.cli.common import tell
from runner.policy import load_policy
from runner.service.watchdog import Watchdog


@click.command()
@click.pass_obj
def command(policy: Path | None) -> None:
    """Check once whether the runner hangs, and if so kill it, so that its service restarts it.

    On macOS, `kakeya-runner install` lets launchd run this every minute. On Linux, systemd does this by itself.
    """
    state = load_policy(policy).state
    if state.is_dir():
        Watchdog(state, tell).look()
