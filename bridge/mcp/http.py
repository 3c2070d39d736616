"""The server over streamable HTTP, on loopback alone."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings

from bridge.console import say
from bridge.errors import InfrastructureError

_HOST = "127.0.0.1"


def serve_http(server: Server[Any], port: int) -> None:
    """Serve until interrupted. Port 0 takes a free one; the address is said on standard error.

    A web page could reach loopback under a name of its own (DNS rebinding), so `Host` and `Origin` must be ours. Any
    program of this machine can connect: whoever shares it can ask for jobs in your name.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_HOST, port))
        listener.listen()
    except OSError as error:
        fix = "Choose another one with --http; 0 takes a free one."
        raise InfrastructureError(f"port {port} cannot be used: {error.strerror}", fix=fix) from error
    port = listener.getsockname()[1]
    names = [f"{name}:{port}" for name in (_HOST, "localhost")]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=names,
        allowed_origins=[f"http://{name}" for name in names],
    )
    app = server.streamable_http_app(transport_security=security)
    say(f"serving MCP at http://{_HOST}:{port}/mcp")
    # Uvicorn's own configuration of logging would write to standard output.
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[listener])
