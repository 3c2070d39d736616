"""Ends the server's process: in order and within a time limit, or at once on a second signal.

The engine's thread may be in the middle of work that nothing can interrupt: loading a model, or a forward pass over a
long prompt. So waits for it have a time limit. The process always ends without Python's own cleanup, which waits for
threads without a limit, and during which MLX's threads can abort the process.

It also ends, without waiting for running requests, once the process has ended that ``--parent-pid`` names.

If the engine's thread has ended by itself, or that thread or the event loop is stuck for good, the process ends with a
reason and an exit code that has its service restart it.
"""

import logging
import math
import os
import signal
import socket
import threading
import time
from types import FrameType
from typing import NoReturn

import uvicorn

from bridge.common.errors import ExitCode
from engine.errors import EngineError
from engine.serve.backend import ENDING, STUCK, Backend
from engine.serve.hosting.parent import Parent
from engine.serve.hosting.ready import announce, ready_line
from engine.serve.settings import Settings

log = logging.getLogger("engine.serve")
LOOK = 1.0  # seconds between checks of the engine's thread and of the event loop
DELIVERY = 5  # seconds after the drain for clients to read how their answers ended


class GracefulServer(uvicorn.Server):
    """uvicorn's server. After a signal it ends within ``drain`` and ``ENDING`` seconds."""

    def __init__(
        self, config: uvicorn.Config, engine: Backend, settings: Settings, parent: Parent | None
    ) -> None:
        config.timeout_graceful_shutdown = math.ceil(settings.drain_seconds) + DELIVERY
        super().__init__(config)
        self._engine, self._settings, self._parent = engine, settings, parent
        self._signal: int | None = None
        self._reason = ""  # the reason for ending without a signal
        self._ticks = 0  # signs of life of the event loop

    def until_signal(self, listening: socket.socket) -> NoReturn:
        """Serve until a signal, then end the process."""
        threading.Thread(target=self._supervise, name="supervisor", daemon=True).start()
        if self._parent is not None:
            threading.Thread(target=self._end_with, args=(self._parent,), name="parent", daemon=True).start()
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # uvicorn handles the other ending signals
            signal.signal(signal.SIGHUP, self.handle_exit)
        self.run(sockets=[listening])
        if self._reason:
            _leave(ExitCode.FAILED)
        if self._engine.health().running:
            _leave(ExitCode.FAILED, "the engine did not stop in time")
        _leave(ExitCode.INTERRUPTED if self._signal == signal.SIGINT else ExitCode.SUCCEEDED)

    def end(self, reason: str) -> None:
        """End the process with exit code 1, because it cannot do its work. Any thread may call this."""
        log.error("%s; the server ends", reason)
        self._reason, self.should_exit = reason, True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Begin to end on the first signal; end at once on the second."""
        if self._signal is not None:
            _leave(ExitCode.INTERRUPTED, "ended by a second signal")
        self._signal, self.should_exit = sig, True
        threading.Thread(target=self._watch, name="ending", daemon=True).start()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept requests, and then say so if that was asked for."""
        await super().startup(sockets)
        if self._settings.print_ready and sockets and not self.should_exit:
            try:
                announce(ready_line(sockets[0], self._settings.token_file), needs_reader=True)
            except EngineError as error:
                _leave(ExitCode.FAILED, f"{error.message}; {error.fix}")

    async def on_tick(self, counter: int) -> bool:
        """Give a sign of life. Called by uvicorn in the event loop, ten times a second."""
        self._ticks += 1
        return await super().on_tick(counter)

    def _supervise(self) -> None:
        """End the process if the engine's thread or the event loop cannot go on."""
        most = max(STUCK, self._settings.request_seconds)  # every request is over by then
        silent, last = 0.0, self._engine.health()
        paused, ticks = 0.0, self._ticks
        while silent <= most and paused <= STUCK and last.failure is None:
            time.sleep(LOOK)
            # Count the seconds instead of reading a clock: a process that was suspended is not stuck.
            now = self._engine.health()
            still = now.beat == last.beat and now.silent > 0 and now.running
            silent, last = silent + LOOK if still else 0.0, now
            # The loop ticks from the start of serving until its end has begun, which has a time limit of its own.
            stopped = 0 < ticks == self._ticks and not self.should_exit
            paused, ticks = paused + LOOK if stopped else 0.0, self._ticks
        self._reason = last.trouble or f"the engine's thread has not completed a step for {silent:.0f} s"
        if paused > STUCK:
            self._reason = f"the event loop has not run for {paused:.0f} s"
        log.error("%s; the server ends", self._reason)
        if paused > STUCK:
            _leave(ExitCode.FAILED)  # nobody can read an answer
        self.should_exit = True
        time.sleep(DELIVERY)
        _leave(ExitCode.FAILED)

    def _end_with(self, parent: Parent) -> None:
        """End the process once its parent has ended. Nobody is left to read answers, so there is no drain."""
        while not parent.has_ended:
            time.sleep(LOOK)
        log.warning("process %d of --parent-pid has ended; the server ends", parent.pid)
        self.should_exit = True
        self._close()

    def _watch(self) -> None:
        time.sleep(self._settings.drain_seconds)
        self._close()

    def _close(self) -> None:
        self._engine.close()
        time.sleep(ENDING)
        _leave(ExitCode.FAILED, "the engine or a request did not end in time")


def _leave(code: ExitCode, reason: str = "") -> NoReturn:
    """End the process at once, without waiting for any thread."""
    if reason:
        log.warning("%s", reason)
    os._exit(code)
