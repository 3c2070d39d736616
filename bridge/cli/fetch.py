"""``kakeya fetch``."""

from __future__ import annotations

import click

from bridge.cli.common import key_option, request_argument, run_of
from bridge.common.cli.commands import json_option, option
from bridge.common.cli.output import put, put_json, say
from bridge.verify.gaps import gaps


@click.command()
@request_argument
@option(
    "--out", click.Path(file_okay=False), metavar="DIR",
    help="Output folder.  [default: kakeya-results/<preset>-<nonce>]",
)  # fmt: skip
@key_option
@json_option
@click.pass_context
def command(context: click.Context, request: str | None, out: str | None, *, as_json: bool) -> int:
    """Verify an answer and write its files into a folder.

    REQUEST is a branch, a nonce or a part of either; by default the last request sent from this repository.
    The exit code is the job's.
    """
    fetched = run_of(context, request).fetch(out)
    if as_json:
        files = [str(path) for path in fetched.files]
        put_json(
            {"folder": str(fetched.folder), "files": files, "result": fetched.result.model_dump(mode="json")}
        )
    else:
        for path in fetched.files:
            put(path)
        for gap in gaps(fetched.result):
            say(f"note: {gap}")
    return fetched.result.exit_code
