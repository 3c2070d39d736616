"""The serving runner's sign of life: a file in the state folder and, under systemd, a message.

If the signs stop, the runner is restarted: by systemd (``WatchdogSec``), or by ``kakeya-runner watchdog`` on macOS.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from bridge.common import environment
from bridge.system import local_files

FILE = "pulse.json"
# A runner that gives no sign of life for this long counts as hanging. A healthy one is silent for at most one fetch and
# one push, of five minutes each.
SILENCE_S = 900
INTERVAL_S = 5.0
EVERY_S = 60
_LOOKS = SILENCE_S // EVERY_S
_LOOKS_FILE = "watchdog.json"


class Heartbeat:
    """Gives signs of life while a runner serves. Does nothing before ``begin``."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._last = 0.0

    def begin(self, state_folder: Path) -> None:
        """Start to give signs of life."""
        self._file = state_folder / FILE
        self._file.write_text(json.dumps(identify(psutil.Process())), encoding="ascii")
        notify("READY=1")
        self.touch()

    def touch(self) -> None:
        """Give a sign of life, at most every few seconds."""
        now = time.monotonic()
        if self._file is None or now - self._last < INTERVAL_S:
            return
        self._last = now
        # A full disk must not end the runner: then the message to systemd has to suffice.
        with suppress(OSError):
            os.utime(self._file)
        notify("WATCHDOG=1")

    def end(self) -> None:
        """Say that the runner ends, so that it does not count as hanging."""
        notify("STOPPING=1")
        if self._file is not None:
            self._file.unlink(missing_ok=True)
            self._file = None


def identify(process: psutil.Process) -> dict[str, float]:
    """Return facts that distinguish a process from a later one with the same id."""
    return {"pid": process.pid, "started": process.create_time()}


def notify(message: str) -> None:
    """Send a message to systemd, as ``sd_notify(3)`` does, if systemd started this process and expects messages."""
    address = environment.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(address)
        channel.sendall(message.encode())


def serving_process(state_folder: Path) -> psutil.Process | None:
    """Return the process that serves with this state folder, or None."""
    try:
        sign = json.loads((state_folder / FILE).read_text(encoding="ascii"))
        process = psutil.Process(int(sign["pid"]))
        return process if identify(process) == sign else None
    except (OSError, ValueError, KeyError, TypeError, psutil.Error):
        return None


def kill_if_hanging(state_folder: Path, tell: Callable[[str], None]) -> None:
    """Kill a runner after ``_LOOKS`` looks in a row without a sign of life: after a machine slept, ages say nothing."""
    process, file = serving_process(state_folder), state_folder / _LOOKS_FILE
    if process is None:
        # No runner serves. Restarting one that ended is up to the service manager.
        file.unlink(missing_ok=True)
        return
    sign = (state_folder / FILE).stat().st_mtime_ns
    try:
        before, looks = json.loads(file.read_text(encoding="ascii"))
    except (OSError, ValueError, TypeError):
        before, looks = None, 0
    looks = looks + 1 if before == sign else 1
    if looks > _LOOKS:
        tell(f"the runner {process.pid} gave no sign of life for {_LOOKS} minutes: it is killed")
        process.kill()
    local_files.replace(file, json.dumps([sign, looks]))
