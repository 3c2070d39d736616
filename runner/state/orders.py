"""The operator's orders to a running runner, as small files in the state folder, where only this host's user may write.

The runner reads them between requests and while a job runs.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from bridge.bus.presence import RunnerState
from bridge.common import limits
from bridge.errors import one_line
from bridge.system import local_files
from runner.state.activity import read_facts
from runner.state.heartbeat import identify

MAINTENANCE = "maintenance.json"
DRAIN = "drain.json"
_LOOK_S = 0.1


@dataclass(frozen=True)
class OperatorMode:
    """What the operator wants the runner to do."""

    state: RunnerState = RunnerState.SERVING
    reason: str = ""

    @property
    def takes_requests(self) -> bool:
        """Return whether the runner may take requests."""
        return self.state is RunnerState.SERVING


class Orders:
    """The orders in one state folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def now(self) -> OperatorMode:
        """Return the current order for this process. An unreadable file counts as maintenance."""
        to_drain = _read(self._folder / DRAIN)
        if to_drain and to_drain == identify(psutil.Process()):
            return OperatorMode(RunnerState.DRAINING)
        order = _read(self._folder / MAINTENANCE)
        if order is None:
            return OperatorMode()
        reason = order.get("reason") if isinstance(order, dict) else None
        text = reason if isinstance(reason, str) else "the order in the state folder cannot be read"
        return OperatorMode(RunnerState.MAINTENANCE, _short(text))

    def may_take(self) -> bool:
        """Return whether this process may take requests now."""
        return self.now().takes_requests

    def begin(self) -> None:
        """Remove an order to drain that was for an earlier process."""
        if _read(self._folder / DRAIN) != identify(psutil.Process()):
            with suppress(OSError):
                (self._folder / DRAIN).unlink(missing_ok=True)

    def maintain(self, reason: str) -> None:
        """Order maintenance. It lasts until ``resume``, also across restarts."""
        local_files.replace(self._folder / MAINTENANCE, json.dumps({"reason": _short(reason)}))

    def resume(self) -> bool:
        """End maintenance. Returns whether there was any."""
        file = self._folder / MAINTENANCE
        there = file.exists()
        file.unlink(missing_ok=True)
        return there

    def drain(self, process: psutil.Process) -> None:
        """Order one process to finish its job and exit. The next process serves again."""
        local_files.replace(self._folder / DRAIN, json.dumps(identify(process)))


def _short(reason: str) -> str:
    return one_line(reason)[: limits.PRESENCE_REASON]


def _read(file: Path) -> object:
    """Return a file's content, None if it does not exist, or an empty string if it cannot be read."""
    try:
        return json.loads(file.read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return ""


def wait_until_heard(state_folder: Path, process: psutil.Process, mode: str, timeout_s: float) -> bool:
    """Wait until the process has received an order or ended. Returns whether that happened in time."""

    def is_over() -> bool:
        facts = read_facts(state_folder)
        return not process.is_running() or bool(facts and facts.pid == process.pid and facts.mode == mode)

    return _wait(is_over, timeout_s)


def wait_until_ended(process: psutil.Process, timeout_s: float) -> bool:
    """Wait until the process has ended. Returns whether it ended in time."""
    return _wait(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, timeout_s)


def _wait(is_over: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not is_over():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)
    return True
