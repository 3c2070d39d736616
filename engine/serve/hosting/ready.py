"""The lines on standard output that say where the server can be reached."""

import json
import os
import socket
import sys
from pathlib import Path

import click

from engine.errors import EngineError


def address_of(bound: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def ready_line(bound: socket.socket, token_file: Path | None) -> str:
    """Return the JSON of ``--print-ready``."""
    ready = {
        "address": address_of(bound),
        "port": bound.getsockname()[1],
        "pid": os.getpid(),
        "token_file": None if token_file is None else str(token_file.absolute()),
    }
    return json.dumps(ready)


def announce(line: str, *, needs_reader: bool) -> None:
    """Print the line that a host program waits for.

    Raises:
        EngineError: nobody can read it. A closed standard output is no error unless the line ``needs_reader``.
    """
    reason = "standard output is closed" if sys.stdout is None and needs_reader else ""
    try:
        click.echo(line)
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        message = f"nobody reads the line that says where the server is: {reason}"
        raise EngineError(message, "keep the server's standard output open until the line has arrived")
