"""``kakeya-runner pin``."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.common.cli.commands import option
from bridge.common.cli.output import put, say
from runner.host.interpreter import find, pin
from runner.policy import default_path, load_policy


@click.command()
@option("--python", metavar="PATH", help="Interpreter to pin.  [default: the one in the policy]")
@click.pass_obj
def command(policy: Path | None, python: str | None) -> None:
    """Pin the interpreter that runs jobs in the policy, with its current version.

    If a runner is serving, restart it: it reads its policy only when it starts.
    """
    path = policy or default_path()
    interpreter, version = find(python or str(load_policy(path).interpreter))
    pin(path, interpreter, version)
    put(f"{interpreter} {version}")
    say("next: kakeya-runner check")
