"""Runs the server with uvicorn."""

import errno
import logging
import socket
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

import click

from bridge.common.listening import configure, listen
from engine.checkpoints import files, hub
from engine.errors import BadInput, EngineError
from engine.models import registry
from engine.serve import listing
from engine.serve.app import Listing, make_app
from engine.serve.contracts.earlier import Earlier, EarlierServer
from engine.serve.hosting.parent import Parent
from engine.serve.hosting.ready import address_of, announce
from engine.serve.server import Server
from engine.serve.settings import Settings, drafter_of
from engine.serve.shutdown import GracefulServer

log = logging.getLogger("engine.serve")
# The backends' modules. Each has `start` and `device_in_use`; only the chosen one is imported.
BACKENDS = {"mlx": "engine.serve.scheduler.backend", "torch": "engine.serve.torch.backend"}


def run(
    settings: Settings, *, prewarm: bool | str = False, earlier: Earlier | None = None, waits: bool = False
) -> NoReturn:
    """Serve until SIGTERM or Ctrl-C, then let running requests finish. Ends the process.

    Args:
        settings: of the server.
        prewarm: whether to load the first model at the start, or the name of the model or channel to load.
        earlier: the earlier program whose clients are served.
        waits: whether the address is printed once the model is loaded, as a host application expects that loads one
            model with each server. If it cannot be loaded, the process ends.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    parent = None if settings.parent_pid is None else Parent(settings.parent_pid)
    backend = import_module(BACKENDS[settings.backend])
    device = backend.device_in_use(settings.device)
    _check(settings)
    about: Listing = listing
    if earlier is None:
        server = Server(settings, backend.start)
    else:
        about = earlier = replace(earlier, device=device)
        server = EarlierServer(settings, backend.start, earlier)
    log.info("backend %s on %s", settings.backend, device)
    reference = _reference(server, prewarm) if prewarm else None
    try:
        bound = listen(settings.host, settings.port)
    except OSError as error:
        message = f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}"
        fix = "choose another --port, or end the program that uses it"
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            fix = "give an address of this machine as --host, such as 127.0.0.1"
        raise BadInput(message, fix) from error
    graceful = GracefulServer(configure(make_app(server, about)), server.engine, settings, parent)
    address = address_of(bound)
    if reference is not None:
        loading = server.engine.load(reference)
        loading.add_done_callback(partial(_loaded, graceful, address) if waits else _warmed)
    if not (waits or settings.print_ready):
        click.echo(address)
    graceful.until_signal(bound)


def _reference(server: Server, prewarm: bool | str) -> str:
    """Return what to load for ``--prewarm``; BadInput if there is no such model or channel."""
    if isinstance(prewarm, bool):
        return next(iter(server.names.values()))
    channel = None if prewarm in server.names else server.channel(prewarm)
    name = channel.short if channel else prewarm
    if name not in server.names:
        known = ", ".join(server.names)
        raise BadInput(f"--prewarm {prewarm}: there is no such model or channel here", f"one of {known}")
    return server.names[name]


def _check(settings: Settings) -> None:
    """Raise BadInput for a folder that is not here: no request could be served."""
    for model in settings.models:
        for _, _, reference in registry.find(model, drafter_of(settings.draft)).parts():
            if not hub.is_hub_id(reference):
                files.weight_files(hub.folder_of(reference, download=False))
            elif hub.is_offline():
                hub.folder_of(reference, download=False)
            elif not hub.is_here(reference):
                log.warning(
                    "%s is not on this machine: the first request for %s downloads it", reference, model
                )


def _loaded(server: GracefulServer, address: str, loading: "Future[Any]") -> None:
    """Say that the server is ready, or end it because its model could not be loaded."""
    error = None if loading.cancelled() else loading.exception()
    if isinstance(error, EngineError):
        server.end(f"{error.message}; {error.fix}")
    elif error is not None:
        server.end(f"the model cannot be loaded: {error}")
    elif not loading.cancelled():
        try:
            announce(f"http server listening on {address}", needs_reader=False)
        except EngineError as unread:
            server.end(f"{unread.message}; {unread.fix}")


def _warmed(loading: "Future[Any]") -> None:
    """Log why a model could not be loaded at the start. The next request for it tries again."""
    if loading.cancelled() or (error := loading.exception()) is None:
        return
    if isinstance(error, EngineError):
        log.error("--prewarm failed: %s; %s", error.message, error.fix)
    else:
        log.error("--prewarm failed", exc_info=error)
