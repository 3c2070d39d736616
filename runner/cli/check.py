"""`kakeya-runner check`."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.checks import show
from bridge.command import json_option, put_json, say
from bridge.errors import ExitCode
from runner.examine import examine


@click.command()
@json_option
@click.pass_obj
def command(policy: Path | None, *, as_json: bool) -> int:
    """Check this host: policy, bus, interpreter, presets.

    Ends with 0 where it can serve, with 1 where it cannot.
    """
    found = []
    for check in examine(policy):
        found.append(check)
        if not as_json:
            show([check])
    ready = all(check.ok is not False for check in found)
    if as_json:
        put_json({"ready": ready, "checks": [check.as_dict() for check in found]})
    else:
        say("ready: kakeya-runner serve" if ready else "not ready: see the lines marked FAIL")
    return ExitCode.SUCCEEDED if ready else ExitCode.FAILED
