"""``kakeya web``."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from bridge.cli.common import client_of, key_option, remote_option
from bridge.common import install
from bridge.common.cli.commands import PATH, Duration, option
from bridge.common.cli.output import say
from bridge.errors import UsageError

PORT = 1340


@click.command()
@option("--port", click.IntRange(0, 65535), PORT, help="Port on 127.0.0.1; 0 takes a free one.")
@option("--poll", Duration(), "2s", metavar="DUR", help="Pause between two looks at the bus.")
@option("--export folder", PATH, metavar="DIR", help="Write the pages into DIR as files, and serve nothing.")
@option("-n --limit", click.IntRange(1, 10_000), 200, help="Number of requests to export, newest first.")
@remote_option
@key_option
@click.pass_context
def command(context: click.Context, port: int, poll: timedelta, folder: Path | None, limit: int) -> None:
    """Show the bus as pages in a browser: requests, logs, verdicts, trends.

    Serves on 127.0.0.1 until interrupted. The pages only read; docs/web.md describes them. With --export the same pages
    become files for any web host.
    """
    if folder:
        from bridge.web.export import export  # noqa: PLC0415 - slow to import

        say(f"wrote {export(client_of(context), folder, limit)} files into {folder}")
        return
    try:
        from bridge.web.serve import serve  # noqa: PLC0415 - only this command needs the server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise UsageError(
            "the web server is not installed", fix=install.client("web"), code="missing_extra"
        ) from error
    serve(client_of(context), port, max(poll.total_seconds(), 0.1))
