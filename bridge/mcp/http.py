"""Serves MCP over streamable HTTP, only on loopback."""

from __future__ import annotations

from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings

from bridge.common.cli.output import say
from bridge.system import loopback, spawn

# The maximum number of open sessions, and after how long without a request a session is closed: clients may
# leave without notice.
MOST_SESSIONS = 64
IDLE_S = 600.0


def serve_http(server: Server[Any], port: int) -> None:
    """Serve until interrupted. Port 0 selects a free port. The address is printed on standard error.

    A web page could reach loopback through its own host name (DNS rebinding), so ``Host`` and ``Origin`` must be this
    server's. Any program on this machine can connect, so other users of the machine can request jobs in your name.
    """
    listener = loopback.listen(port, "--http")
    port = listener.getsockname()[1]
    names = loopback.names(port)
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=names,
        allowed_origins=[f"http://{name}" for name in names],
    )
    app = server.streamable_http_app(
        transport_security=security, max_sessions=MOST_SESSIONS, session_idle_timeout=IDLE_S
    )
    say(f"serving MCP at http://{loopback.HOST}:{port}/mcp")
    # Uvicorn's default logging would write to standard output.
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=2)
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        spawn.end_children()
