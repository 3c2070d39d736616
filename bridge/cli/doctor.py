"""`kakeya doctor`."""

from __future__ import annotations

import click

from bridge.checks import show
from bridge.cli.common import remote_option
from bridge.command import json_option, put_json, say
from bridge.doctor import examine
from bridge.errors import ExitCode


@click.command()
@remote_option
@json_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> int:
    """Check what a request from here needs, and say what is missing.

    Nothing is sent. Ends with 0 where a request can be made, with 1 where it cannot.
    """
    found = []
    for check in examine(context.obj["repo"], context.obj["remote"]):
        found.append(check)
        if not as_json:
            show([check])
    ready = all(check.ok is not False for check in found)
    if as_json:
        put_json({"ready": ready, "checks": [check.as_dict() for check in found]})
    else:
        say("ready: kakeya run noop --wait" if ready else "not ready: see the lines marked FAIL")
    return ExitCode.SUCCEEDED if ready else ExitCode.FAILED
