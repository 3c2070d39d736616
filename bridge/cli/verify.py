"""``kakeya verify``."""

from __future__ import annotations

import click

from bridge.checks import show
from bridge.cli.common import key_option, request_argument, run_of
from bridge.cli.gate import show_gate
from bridge.common.cli.commands import json_option
from bridge.common.cli.output import put_json
from bridge.errors import ExitCode


@click.command()
@request_argument
@key_option
@json_option
@click.pass_context
def command(context: click.Context, request: str | None, *, as_json: bool) -> int:
    """Verify an answer offline, from its branch and the runner's public key.

    The key must be pinned beforehand: with --key, KAKEYA_PUBLIC_KEY or `git config kakeya.publicKey`, or as
    .kakeya/runner.pub on the remote's default branch as last fetched. If a key is pinned, an answer that it did not
    sign fails verification.

    REQUEST is a branch, a nonce or a part of either; by default the last request sent from this repository.
    Exits with 0 if the answer is valid, whatever the job's own outcome, otherwise with 1.
    """
    report = run_of(context, request).verify()
    if as_json:
        put_json(report.as_dict())
    else:
        show(report.checks)
        if report.gate:
            show_gate(report.gate)
    return ExitCode.SUCCEEDED if report.holds else ExitCode.FAILED
