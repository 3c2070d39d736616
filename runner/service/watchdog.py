"""Checks from outside whether a runner hangs: once a minute, started by launchd.

After the machine slept, a file's age says nothing. So the watchdog counts how often in a row it found no sign of life.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from runner.state import sign_of_life

EVERY_S = 60
_LOOKS = sign_of_life.SILENCE_S // EVERY_S
_FILE = "watchdog.json"


@dataclass
class Watchdog:
    """One check, with the counts of earlier ones. It reports its actions to ``tell``."""

    state: Path
    tell: Callable[[str], None]
    observed: dict[str, Any] = field(default_factory=dict)

    def look(self) -> None:
        """Check once, and kill a runner that hangs."""
        self.observed = self._read()
        self._look_at_runner()
        draft = self.state / f".{_FILE}.new"
        draft.write_text(json.dumps(self.observed), encoding="ascii")
        draft.replace(self.state / _FILE)

    def _read(self) -> dict[str, Any]:
        try:
            saved = json.loads((self.state / _FILE).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return {}
        return saved if isinstance(saved, dict) else {}

    def _count(self, name: str, sign: object) -> int:
        """Return how many checks in a row, including this one, found the same sign of life."""
        before = self.observed.get(name)
        same = isinstance(before, list) and len(before) == 2 and before[0] == sign  # noqa: PLR2004 - sign and count
        looks = int(before[1]) + 1 if same and before else 1
        self.observed[name] = [sign, looks]
        return looks

    def _look_at_runner(self) -> None:
        file = self.state / sign_of_life.FILE
        try:
            sign, status = file.stat().st_mtime_ns, json.loads(file.read_text(encoding="ascii"))
            process = psutil.Process(int(status["pid"]))
            lives = process.create_time() == status["started"]
        except (OSError, ValueError, KeyError, TypeError, psutil.Error):
            lives = False
        if not lives:
            # No runner serves, or the runner ended: the service manager handles that.
            self.observed.pop("runner", None)
        elif self._count("runner", sign) > _LOOKS:
            self.tell(f"the runner {process.pid} gave no sign of life for {_LOOKS} minutes: it is killed")
            process.kill()
            self.observed.pop("runner", None)
