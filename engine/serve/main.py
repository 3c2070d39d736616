"""Running the server: uvicorn around the application."""

import logging
import socket

import click
import uvicorn

from engine.errors import BadInput
from engine.serve.app import make_app
from engine.serve.server import Server
from engine.serve.settings import Settings

MOST_CONNECTIONS = 512


def run(settings: Settings, *, prewarm: bool) -> None:
    """Serve until SIGTERM or Ctrl-C, then let running requests end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    bound = _bind(settings)
    server = Server(settings)
    config = uvicorn.Config(
        make_app(server),
        log_level="warning",
        access_log=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
        h11_max_incomplete_event_size=32 << 10,
        server_header=False,
        ws="none",
        http="h11",
    )
    if prewarm:
        server.engine.load(settings.models[0])
    host, port = bound.getsockname()[:2]
    click.echo(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    uvicorn.Server(config).run(sockets=[bound])


def _bind(settings: Settings) -> socket.socket:
    """Return the listening socket."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, proto)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(256)
    except OSError as error:
        raise BadInput(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
            "choose another --port, or end the program that uses it",
        ) from error
    bound.set_inheritable(True)
    return bound
