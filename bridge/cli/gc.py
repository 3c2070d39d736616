"""``kakeya gc``."""

from __future__ import annotations

from datetime import timedelta

import click

from bridge.cli.common import client_of, remote_option
from bridge.common.cli.commands import Duration, flag, json_option, option
from bridge.common.cli.output import put, put_json, say


@click.command()
@option("--older-than", Duration(), "14d", help="Minimum age of the requests to remove.")
@flag("--remote-branches", "Also delete answered request branches on the remote.")
@flag("--dry-run -n", "Only list them; remove nothing.")
@remote_option
@json_option
@click.pass_context
def command(
    context: click.Context, older_than: timedelta, *, remote_branches: bool, dry_run: bool, as_json: bool
) -> None:
    """Remove records of old requests, here or on the remote.

    In this clone only the records of sent requests are removed. On the remote, a request without an answer is deleted
    only if it was cancelled before a runner took it, or has expired.
    """
    swept = client_of(context).sweep(older_than, remote=remote_branches, dry_run=dry_run)
    if as_json:
        put_json({"dry_run": dry_run, "branches": swept.gone})
        return
    for branch in swept.gone:
        put(branch)
    say(f"{len(swept.gone)} {'would be ' if dry_run else ''}removed")
    reasons = list(swept.why_the_others_stay(f"{older_than.total_seconds() / 86400:g} days"))
    for reason in reasons:
        say(f"  {reason}")
    if not swept.gone and not reasons:
        say("  there are no requests to remove")
