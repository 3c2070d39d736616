"""`kakeya-runner pin`."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.console import put, say
from runner.host.interpreter import find, pin
from runner.policy import default_path, load_policy


@click.command()
@click.option("--python", metavar="PATH", help="Another interpreter.  [default: the one in the policy]")
@click.pass_obj
def command(policy: Path | None, python: str | None) -> None:
    """Write the interpreter that runs jobs into the policy, with the version that it has now.

    Restart a runner that is serving: it reads its policy when it starts.
    """
    path = policy or default_path()
    interpreter, version = find(python or str(load_policy(path).interpreter))
    pin(path, interpreter, version)
    put(f"{interpreter} {version}")
    say("next: kakeya-runner check")
