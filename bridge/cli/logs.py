"""``kakeya logs``."""

from __future__ import annotations

from datetime import timedelta

import click

from bridge.bus.wire import EXIT_CODES
from bridge.cli.common import follow, request_argument, run_of, timeout_option
from bridge.common.cli.commands import flag, json_option
from bridge.common.cli.output import put_block, put_json, say


@click.command()
@request_argument
@flag("-f --follow following", "Follow the log until the job has ended.")
@timeout_option
@json_option
@click.pass_context
def command(
    context: click.Context, request: str | None, timeout: timedelta | None, *, following: bool, as_json: bool
) -> int:
    """Print a job's log.

    REQUEST is a branch, a nonce or a part of either; by default the last request sent from this repository.
    With -f the exit code is the job's.
    """
    run = run_of(context, request)
    if following:
        return int(EXIT_CODES[follow(run, timeout, as_json=as_json).state])
    status = run.status()
    text = run.logs()
    cut = [log.path for log in run.client.result(run.branch).logs if log.truncated] if status.answered else []
    if as_json:
        put_json({"branch": run.branch, "state": status.state, "truncated": cut, "log": text})
        return 0
    put_block(text)
    if cut:
        say(f"note: only the head and tail of {', '.join(cut)} were kept")
    return 0
