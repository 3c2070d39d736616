"""Runs the server with uvicorn."""

import logging
import sys
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import click

from bridge.common.listening import configure, listen
from engine.checkpoints import files, hub
from engine.errors import BadInput, EngineError
from engine.models import registry
from engine.mx import mx
from engine.serve import listing
from engine.serve.app import Listing, make_app
from engine.serve.contracts.earlier import Earlier, EarlierServer
from engine.serve.hosting.parent import Parent
from engine.serve.hosting.ready import address_of
from engine.serve.scheduler.thread import EngineThread
from engine.serve.server import Server
from engine.serve.settings import Settings, drafter_of
from engine.serve.shutdown import GracefulServer

log = logging.getLogger("engine.serve")


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
    _check(settings)
    about: Listing = listing
    if earlier is None:
        server = Server(settings, EngineThread)
    else:
        about = earlier = replace(earlier, device=_device(settings))
        server = EarlierServer(settings, EngineThread, earlier)
    reference = _reference(server, prewarm) if prewarm else None
    try:
        bound = listen(settings.host, settings.port)
    except OSError as error:
        message = f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}"
        raise BadInput(message, "choose another --port, or end the program that uses it") from error
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


def _device(settings: Settings) -> str:
    """Return the name of the device in use, as torch calls it."""
    if settings.device == "cpu" or not mx.is_available(mx.gpu):
        return "cpu"
    return "mps" if sys.platform == "darwin" else "cuda"


def _check(settings: Settings) -> None:
    """Raise BadInput for a device or a folder that is not here: no request could be served."""
    if settings.device is not None and not mx.is_available(getattr(mx, settings.device)):
        fix = "leave the option out, or name a device that `kakeya-engine probe` shows"
        raise BadInput(f"--device {settings.device}: MLX has no such device on this machine", fix)
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
        click.echo(f"http server listening on {address}")


def _warmed(loading: "Future[Any]") -> None:
    """Log why a model could not be loaded at the start. The next request for it tries again."""
    if loading.cancelled() or (error := loading.exception()) is None:
        return
    if isinstance(error, EngineError):
        log.error("--prewarm failed: %s; %s", error.message, error.fix)
    else:
        log.error("--prewarm failed", exc_info=error)
