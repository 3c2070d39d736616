"""The lines on standard output that say where the server can be reached."""

import json
import os
import socket
from pathlib import Path


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
