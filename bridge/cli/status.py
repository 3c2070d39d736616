"""``kakeya status``."""

from __future__ import annotations

import click

from bridge.cli.common import request_argument, run_of, state_text
from bridge.common.cli.commands import json_option
from bridge.common.cli.output import put_json
from bridge.common.cli.screen import Grid, console


@click.command()
@request_argument
@json_option
@click.pass_context
def command(context: click.Context, request: str | None, *, as_json: bool) -> None:
    """Show the state of a request.

    REQUEST is a branch, a nonce or a part of either; by default the last request sent from this repository.
    """
    status = run_of(context, request).status()
    if as_json:
        put_json(status.as_dict())
        return
    table = Grid()
    table.add_row("branch", status.branch)
    table.add_row("state", state_text(status.state))
    for name in ("detail", "runner", "at", "step", "request"):
        value = getattr(status, name)
        if value not in (None, ""):
            table.add_row(name, str(value))
    if status.outlook:
        table.add_row("runner seen" if status.life else "waits" if status.reason else "queue", status.outlook)
    if status.last_line:
        table.add_row("last line", status.last_line)
    console().print(table)
