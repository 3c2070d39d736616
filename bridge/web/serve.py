"""Runs the server on loopback, with one thread that polls the bus and one that verifies answers for trends."""

from __future__ import annotations

import threading

import uvicorn

from bridge.client import Client
from bridge.common import listening
from bridge.common.cli.output import say
from bridge.system import spawn
from bridge.web.app import make_app
from bridge.web.figures import Figures
from bridge.web.runs import Runs
from bridge.web.watch import Watch

MOST_CONNECTIONS = 64


class Connection(listening.Connection):
    """A connection of a page's reader. One that does not take its answer does not keep others from being answered."""

    stalled_s = 30.0


def serve(client: Client, port: int, poll_s: float) -> None:
    """Serve until interrupted. Port 0 selects a free port. The address is printed on standard error.

    Any program on this machine can connect, and can read everything that this clone can fetch.
    """
    listener = listening.listen_here(port, "--port")
    port = listener.getsockname()[1]
    watch, stop = Watch(client), threading.Event()
    say(f"reading the bus at {watch.address}")
    first = watch.look()
    if first.problem:
        say(f"the bus could not be read yet: {first.problem}")
    runs = Runs(watch)
    figures = Figures(runs, lambda: watch.snapshot)
    for work in (lambda: watch.run(stop, poll_s), lambda: figures.run(stop)):
        threading.Thread(target=work, daemon=True).start()
    app = make_app(watch, runs, figures, frozenset(listening.names(port)))
    say(f"the bus is at http://{listening.LOOPBACK}:{port}/ (^C ends this)")
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        http=Connection,
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=2,
    )
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        stop.set()
        spawn.end_children()
