"""Checks from outside whether a runner hangs: once a minute, started by launchd.

After the machine slept, a file's age says nothing. So the watchdog counts how often in a row it found no sign of life.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from bridge.system import local_files
from runner.state import heartbeat

EVERY_S = 60
_LOOKS = heartbeat.SILENCE_S // EVERY_S
_FILE = "watchdog.json"


def look(state: Path, tell: Callable[[str], None]) -> None:
    """Check once, and kill a runner that hangs."""
    process, file = heartbeat.serving_process(state), state / _FILE
    if process is None:
        # No runner serves, or the runner ended: the service manager handles that.
        file.unlink(missing_ok=True)
        return
    sign = (state / heartbeat.FILE).stat().st_mtime_ns
    try:
        before, looks = json.loads(file.read_text(encoding="ascii"))
    except (OSError, ValueError, TypeError):
        before, looks = None, 0
    looks = looks + 1 if before == sign else 1
    if looks > _LOOKS:
        tell(f"the runner {process.pid} gave no sign of life for {_LOOKS} minutes: it is killed")
        process.kill()
    local_files.replace(file, json.dumps([sign, looks]))
