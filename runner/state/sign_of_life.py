"""The serving runner's sign of life: a file in the state folder and, under systemd, a message.

What reads it restarts a runner that hangs: systemd by itself (WatchdogSec), on macOS `kakeya-runner watchdog`.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

import psutil

from bridge.system import environment

FILE = "pulse.json"
# How long no sign of life may come before the runner counts as hanging. The longest that a sound one is silent are
# one fetch and one push, each given five minutes.
SILENCE_S = 900
_EVERY_S = 5.0


class Pulse:
    """Beats while a runner serves. One that was not begun does nothing."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._last = 0.0

    def begin(self, state: Path) -> None:
        """Say that the runner serves now."""
        self._file = state / FILE
        me = psutil.Process()
        self._file.write_text(json.dumps({"pid": me.pid, "started": me.create_time()}), encoding="ascii")
        notify("READY=1")
        self.beat()

    def beat(self) -> None:
        """Give a sign of life, at most every few seconds."""
        now = time.monotonic()
        if self._file is None or now - self._last < _EVERY_S:
            return
        self._last = now
        # A disk that is full or gone is no reason to end: then the other sign has to do.
        with suppress(OSError):
            os.utime(self._file)
        notify("WATCHDOG=1")

    def end(self) -> None:
        """Say that the runner ends, which is no hanging."""
        notify("STOPPING=1")
        if self._file is not None:
            self._file.unlink(missing_ok=True)
            self._file = None


def notify(message: str) -> None:
    """Tell systemd something, if it started this process and waits to be told: sd_notify(3)."""
    address = environment.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(address)
        channel.sendall(message.encode())
