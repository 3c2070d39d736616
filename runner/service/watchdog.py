"""Checks from outside whether a runner or GitHub's own runner hangs: once a minute, started by launchd.

After the machine slept, a file's age says nothing. So the watchdog counts how often in a row it found no sign of life.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bridge.common import environment
from bridge.errors import InfrastructureError, ProcessError
from bridge.system.process import run
from runner.state import sign_of_life

EVERY_S = 60
_LOOKS = sign_of_life.SILENCE_S // EVERY_S
_FILE = "watchdog.json"
_LISTENER = "bin/Runner.Listener"
_WORKER = "bin/Runner.Worker"
_SERVICE_S = 60


@dataclass
class Watchdog:
    """One check, with the counts of earlier ones. It reports its actions to ``tell``."""

    state: Path
    tell: Callable[[str], None]
    listener: Path | None = None
    observed: dict[str, Any] = field(default_factory=dict)

    def look(self) -> None:
        """Check once, and kill or restart what hangs."""
        self.observed = self._read()
        self._look_at_runner()
        if self.listener is not None:
            self._look_at_listener(self.listener)
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
            # No runner serves, or it ended: the service manager handles that.
            self.observed.pop("runner", None)
        elif self._count("runner", sign) > _LOOKS:
            self.tell(f"the runner {process.pid} gave no sign of life for {_LOOKS} minutes: it is killed")
            process.kill()
            self.observed.pop("runner", None)

    def _look_at_listener(self, folder: Path) -> None:
        listeners = list(_processes(folder / _LISTENER))
        if not listeners:
            # It may just be starting or updating itself.
            if self._count("listener", "absent") > 1:
                self._start_listener(folder, "does not run")
        elif list(_processes(folder / _WORKER)) or any(map(_is_connected, listeners)):
            self.observed.pop("listener", None)
        elif self._count("listener", [process.pid for process in listeners]) > _LOOKS:
            for process in listeners:
                process.kill()
            self._start_listener(folder, f"had no connection for {_LOOKS} minutes")

    def _start_listener(self, folder: Path, reason: str) -> None:
        self.tell(f"GitHub's listener in {folder} {reason}: it is started")
        self.observed.pop("listener", None)
        for word, check in (("stop", False), ("start", True)):
            env = environment.for_user_git()
            try:
                run(
                    str(folder / "svc.sh"),
                    word,
                    env=env,
                    cwd=folder,
                    timeout=_SERVICE_S,
                    check=check,
                    own_session=True,
                )
            except ProcessError as error:
                fix = f"See why: cd {folder} && ./svc.sh status"
                raise InfrastructureError(
                    f"the listener cannot be started: {error.message}", fix=fix
                ) from error


def _processes(program: Path) -> Iterator[psutil.Process]:
    """Yield this user's processes of a program."""
    wanted = os.path.realpath(program)
    for process in psutil.process_iter():
        try:
            if process.uids().real == os.getuid() and os.path.realpath(process.exe()) == wanted:
                yield process
        except (psutil.Error, OSError):
            continue


def _is_connected(process: psutil.Process) -> bool:
    """Return whether it has an open connection: GitHub's listener always waits on one for the next job."""
    try:
        return any(
            connection.status == psutil.CONN_ESTABLISHED for connection in process.net_connections("tcp")
        )
    except psutil.Error:
        return True
