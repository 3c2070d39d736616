"""``kakeya doctor``."""

import click

from bridge.checklist import show_incrementally
from bridge.cli.common import remote_option
from bridge.common.cli.commands import json_option
from bridge.doctor import examine


@click.command()
@remote_option
@json_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> int:
    """Check whether this clone can send requests, and say how to fix what it lacks.

    Nothing is sent. Exits with 0 if a request can be sent, otherwise with 1.
    """
    return show_incrementally(
        examine(context.obj["repo"], context.obj.get("remote")), "kakeya run noop --wait", as_json=as_json
    )
