"""Runs the server with uvicorn."""

import logging
from concurrent.futures import Future
from typing import Any, NoReturn

import click

from bridge.common.listening import configure, listen
from engine.checkpoints import files, hub
from engine.errors import BadInput, EngineError
from engine.models import registry
from engine.mx import mx
from engine.serve.app import make_app
from engine.serve.hosting.parent import Parent
from engine.serve.hosting.ready import address_of
from engine.serve.scheduler.thread import EngineThread
from engine.serve.server import Server
from engine.serve.settings import Settings, drafter_of
from engine.serve.shutdown import GracefulServer

log = logging.getLogger("engine.serve")


def run(settings: Settings, *, prewarm: bool) -> NoReturn:
    """Serve until SIGTERM or Ctrl-C, then let running requests finish. Ends the process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    parent = None if settings.parent_pid is None else Parent(settings.parent_pid)
    _check(settings)
    try:
        bound = listen(settings.host, settings.port)
    except OSError as error:
        message = f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}"
        raise BadInput(message, "choose another --port, or end the program that uses it") from error
    server = Server(settings, EngineThread)
    config = configure(make_app(server))
    if prewarm:
        server.engine.load(settings.models[0]).add_done_callback(_warmed)
    if not settings.print_ready:
        click.echo(address_of(bound))
    GracefulServer(config, server.engine, settings, parent).until_signal(bound)


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


def _warmed(loading: "Future[Any]") -> None:
    """Log why a model could not be loaded at the start. The next request for it tries again."""
    if loading.cancelled() or (error := loading.exception()) is None:
        return
    if isinstance(error, EngineError):
        log.error("--prewarm failed: %s; %s", error.message, error.fix)
    else:
        log.error("--prewarm failed", exc_info=error)
