"""``kakeya cancel``."""

from __future__ import annotations

import click

from bridge.cli.common import request_argument, run_of
from bridge.common.cli.commands import json_option, option
from bridge.common.cli.output import put_json, say


@click.command()
@request_argument
@option("--reason", str, "", show_default=False, help="Reason, in a few words; the answer will show it.")
@json_option
@click.pass_context
def command(context: click.Context, request: str | None, reason: str, *, as_json: bool) -> None:
    """Cancel a request: ask the runner to stop the job.

    REQUEST is a branch, a nonce or a part of either; by default the last request sent from this repository.
    A runner confirms the cancellation; `kakeya wait` then exits with 6, also if no runner had taken the request.
    """
    status = run_of(context, request).cancel(reason)
    if as_json:
        put_json(status.as_dict())
    elif status.answered:
        say(f"{status.branch} had already ended: {status.state}")
    elif status.state.is_final:
        say(f"{status.branch} is cancelled: no runner had taken it")
    else:
        say(f"asked the runner to stop {status.branch}")
        say(f"next: kakeya wait {status.branch}")
