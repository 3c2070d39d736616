"""``kakeya mcp`` and ``kakeya web``."""

import gc
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import click

from bridge.cli.common import buses_of, key_option, remote_option
from bridge.common import environment, install
from bridge.common.cli.commands import PATH, Duration, option
from bridge.common.cli.output import say
from bridge.errors import UsageError
from bridge.verify.public_keys import VARIABLE


@click.command()
@option(
    "--http port", click.IntRange(0, 65535), metavar="PORT",
    help="Serve over HTTP on 127.0.0.1 instead of standard input and output; 0 takes a free port.",
)  # fmt: skip
@remote_option
@key_option
@click.pass_context
def mcp_command(context: click.Context, port: int | None) -> None:
    """Serve the bridge to an agent as MCP tools.

    An agent's host starts this command in the repository whose remote is the bus. docs/agents.md shows how to
    configure it.
    """
    # Garbage collection would find nothing after the SDK's models are created, and takes a third of the start time.
    gc.disable()
    with _extra("mcp", "the MCP SDK", ("mcp", "mcp_types", "anyio")):
        from bridge.mcp.server import make_server, serve_http, serve_stdio  # noqa: PLC0415 - only this command needs the SDK
    key = context.obj.get("public_key")
    public_key = str(Path(key).absolute()) if key else None
    repo = Path(context.obj["repo"]).absolute()
    environment.make_paths_absolute("KAKEYA_PRESETS", VARIABLE)
    # Fetched files are written below the repository, wherever the agent's host started this program.
    os.chdir(repo)
    server = make_server(str(repo), context.obj.get("remote"), public_key)
    gc.freeze()
    gc.enable()
    if port is None:
        serve_stdio(server)
    else:
        serve_http(server, port)


@contextmanager
def _extra(name: str, noun: str, packages: Collection[str]) -> Iterator[None]:
    """Say how to install an extra if the block cannot import one of its packages."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in packages:
            raise
        fix = install.client(name)
        raise UsageError(f"{noun} is not installed", fix=fix, code="missing_extra") from error


PORT = 1340


@click.command()
@option("--port", click.IntRange(0, 65535), PORT, help="Port on 127.0.0.1; 0 takes a free one.")
@option("--poll", Duration(), "2s", metavar="DUR", help="Pause between two polls of the bus.")
@option("--export folder", PATH, metavar="DIR", help="Write the pages into DIR as files, and serve nothing.")
@option("-n --limit", click.IntRange(1, 10_000), 200, help="Number of requests to export, newest first.")
@remote_option
@key_option
@click.pass_context
def web_command(context: click.Context, port: int, poll: timedelta, folder: Path | None, limit: int) -> None:
    """Show the bus as pages in a browser: requests, logs, verdicts, trends.

    Serves on 127.0.0.1 until interrupted. The pages only read; docs/web.md describes them. With --export the same pages
    become files for any web host.
    """
    if folder:
        from bridge.web.export import export  # noqa: PLC0415 - slow to import

        say(f"wrote {export(buses_of(context), folder, limit)} files into {folder}")
        return
    with _extra("web", "the web server", ("starlette", "uvicorn")):
        from bridge.web.app import serve  # noqa: PLC0415 - only this command needs the server
    serve(buses_of(context), port, max(poll.total_seconds(), 0.1))
