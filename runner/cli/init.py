"""``kakeya-runner init``."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.common.cli.commands import option
from bridge.common.cli.output import put, say
from runner.cli.common import say_refused
from runner.host.interpreter import find
from runner.policy import default_path, load_policy, write_template


@click.command()
@option("--bus url", required=True, metavar="URL", help="The git remote to serve.")
@option("--id runner_id", metavar="NAME", help="This runner's name.  [default: the host's]")
@option("--python", metavar="PATH", help="The interpreter that runs jobs.  [default: the runner's own]")
@click.pass_obj
def command(policy: Path | None, url: str, runner_id: str | None, python: str | None) -> None:
    """Write a first policy file.

    The policy refuses presets that run the requester's own code; edit it to allow more. It pins the interpreter by
    its real path and version.
    """
    path = policy or default_path()
    interpreter, version = find(python)
    write_template(path, url, runner_id, interpreter=interpreter, version=version)
    rules = load_policy(path)
    put(path)
    say_refused(rules)
    say("next: kakeya-runner check")
