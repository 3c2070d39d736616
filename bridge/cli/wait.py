"""``kakeya wait``."""

from __future__ import annotations

from datetime import timedelta

import click

from bridge.cli.common import finish, follow, request_argument, run_of, timeout_option
from bridge.common.cli.commands import json_option


@click.command()
@request_argument
@timeout_option
@json_option
@click.pass_context
def command(context: click.Context, request: str | None, timeout: timedelta | None, *, as_json: bool) -> int:
    """Wait for an answer, verify it, and exit with its exit code.

    If the answer fails verification, the exit code is 1, whatever the answer says about the job.

    REQUEST is a branch, a nonce or a part of either; by default the last request sent from this repository.
    """
    run = run_of(context, request)
    status = follow(run, timeout, as_json=as_json, logs=False)
    return finish(run, status, as_json=as_json)
