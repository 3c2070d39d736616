"""`kakeya list`."""

from __future__ import annotations

import time

import click
from rich.table import Table

from bridge import names
from bridge.cli.common import client_of, console, remote_option, state_text
from bridge.command import json_option, put_json, say

# A branch's name is there to be copied, so the table is as wide as it needs to be.
_WIDTH = 250


@click.command()
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="How many, newest first.",
)
@remote_option
@json_option
@click.pass_context
def command(context: click.Context, limit: int, *, as_json: bool) -> None:
    """List the requests on the remote."""
    found = client_of(context).list(limit)
    if as_json:
        for status in found:
            put_json(status.as_dict())
        return
    if not found:
        say("no requests on the remote. Send one: kakeya run noop --wait")
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("state", "preset", "age", "runner", "branch"):
        table.add_column(heading)
    for status in found:
        age = _age(time.time() - names.nonce_time(status.nonce)) if status.nonce else ""
        table.add_row(state_text(status.state), status.preset, age, status.runner or "", status.branch)
    out = console()
    out.width = _WIDTH
    out.print(table)


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"
