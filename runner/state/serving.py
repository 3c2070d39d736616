"""Finds the process that serves with a state folder, and waits until it has received an order."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil

from runner.state import heartbeat
from runner.state.activity import read_facts

_LOOK_S = 0.1


def serving_process(state: Path) -> psutil.Process | None:
    """Return the process that serves with this state folder, or None."""
    try:
        sign = json.loads((state / heartbeat.FILE).read_text(encoding="ascii"))
        process = psutil.Process(int(sign["pid"]))
        return process if process.create_time() == sign["started"] else None
    except (OSError, ValueError, KeyError, TypeError, psutil.Error):
        return None


def heard(state: Path, process: psutil.Process, mode: str, timeout_s: float) -> bool:
    """Wait until the process has received an order or ended. Returns whether that happened in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        facts = read_facts(state)
        if not process.is_running() or (facts and facts.pid == process.pid and facts.mode == mode):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)


def ended(process: psutil.Process, timeout_s: float | None) -> bool:
    """Wait until the process has ended. Returns whether it ended in time."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)
    return True
