"""`kakeya verify`."""

from __future__ import annotations

import click

from bridge.cli.common import console, request_argument, run_of
from bridge.command import json_option, put_json
from bridge.errors import ExitCode

_MARKS = {True: "[green]ok[/]", False: "[red]FAIL[/]", None: "[yellow]--[/]"}


@click.command()
@request_argument
@json_option
@click.pass_context
def command(context: click.Context, request: str | None, *, as_json: bool) -> int:
    """Check an answer offline, from the branch alone.

    REQUEST is a branch, a nonce or a part of either; by default the last request sent from this repository.
    Ends with 0 where the answer holds, whatever the job's own outcome, and with 1 where it does not.
    """
    report = run_of(context, request).verify()
    if as_json:
        put_json(report.as_dict())
    else:
        out = console()
        for check in report.checks:
            out.print(f"{_MARKS[check.ok]:<12} ", end="")
            out.print(f"{check.name:<10} {check.message}", markup=False)
    return ExitCode.SUCCEEDED if report.holds else ExitCode.FAILED
