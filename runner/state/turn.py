"""The turn of one machine: of a service's runners and the jobs beside it, one at a time runs.

The turn is a lock on a file, which the supervisor of each command holds too: so it lasts until no process of the job is
left, also if the runner is killed. Among the runners that wait for it, the one whose last job is longest ago is next.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bridge.system import local_files
from runner.policy import Policy

# A runner that has not asked for this long does not wait any more, or cannot poll.
_WANTS_S = 15.0
NOT_YET = "waits for this machine, which runs another job"
_LOCK, _WANT, _RAN, _MEMBERS = "turn.lock", ".wants", ".ran", "members.json"
FOLDER = "turns"
# How often one that waits for the turn asks for it.
_ASK_S = 0.2


class Turn:
    """The turn as one runner sees it. Without a folder that it shares with others, it always has it."""

    def __init__(self, folder: Path | None = None, name: str = "") -> None:
        self.folder = folder
        self._name = name
        self._asked = False
        # The descriptors that the supervisors of the job's commands keep open.
        self.kept: tuple[int, ...] = ()
        # Whether the last poll found a request that waits for the turn.
        self.is_awaited = False

    def begin_poll(self) -> None:
        """Note that a poll begins."""
        self._asked = self.is_awaited = False

    def end_poll(self) -> None:
        """Let others go first if this poll found nothing to run."""
        if self.folder and not self._asked:
            (self.folder / f"{self._name}{_WANT}").unlink(missing_ok=True)

    @contextmanager
    def hold(self) -> Iterator[bool]:
        """Hold the turn in this block if it is free and no other runner is next. Yields whether it is held."""
        if self.folder is None or self.kept:
            yield True
            return
        self._asked = True
        _touch(self.folder / f"{self._name}{_WANT}")
        lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            is_held = _lock(lock) and not self._is_behind()
            self.is_awaited = not is_held
            if not is_held:
                yield False
                return
            self.kept = (lock,)
            self._note_turn()
            try:
                yield True
            finally:
                self.kept = ()
                self._note_turn()
        finally:
            # A supervisor that still lives goes on holding the lock.
            os.close(lock)

    @contextmanager
    def hold_later(self, pause: Callable[[float], bool], tell: Callable[[str], None]) -> Iterator[bool]:
        """Wait for the turn, and hold it in this block. Yields whether it is held: not if ``pause`` returned True."""
        is_first = True
        while True:
            with self.hold() as is_held:
                if is_held:
                    yield True
                    return
            if is_first:
                tell(NOT_YET)
            is_first = False
            if pause(_ASK_S):
                yield False
                return

    def _note_turn(self) -> None:
        """Let the others go first from now on, also if this runner does not live to the end of its job."""
        assert self.folder  # noqa: S101 - only a shared turn is noted
        _touch(self.folder / f"{self._name}{_RAN}")
        (self.folder / f"{self._name}{_WANT}").unlink(missing_ok=True)

    def _is_behind(self) -> bool:
        """Return whether another runner that waits has its turn before this one."""
        assert self.folder  # noqa: S101 - only a shared turn asks
        now = time.time()
        own = (self._ran_at(self._name, now), self._name)
        for file in self.folder.glob(f"*{_WANT}"):
            name = file.name.removesuffix(_WANT)
            if (
                name != self._name
                and 0 <= now - _time_of(file) < _WANTS_S
                and (self._ran_at(name, now), name) < own
            ):
                return True
        return False

    def _ran_at(self, name: str, now: float) -> float:
        """Return when a runner's last job was; 0 if that is not known, or if the clock was set back since."""
        assert self.folder  # noqa: S101 - only a shared turn asks
        ran_at = _time_of(self.folder / f"{name}{_RAN}")
        return ran_at if ran_at <= now else 0.0


def write_members(folder: Path, policies: Mapping[Path, Policy]) -> None:
    """Write down which runners share a folder of turns, by the files of their policies."""
    listed = [
        {"policy": str(file), "id": each.id, "bus": each.bus.url, "state": str(each.state)}
        for file, each in policies.items()
    ]
    local_files.replace(folder / _MEMBERS, json.dumps(listed))


def read_members(folder: Path) -> list[dict[str, Any]]:
    """Return the runners that share a folder of turns; none if that is not known."""
    try:
        listed = json.loads((folder / _MEMBERS).read_text(encoding="utf-8"))
        return [{name: str(each[name]) for name in ("policy", "id", "bus", "state")} for each in listed]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _touch(file: Path) -> None:
    # On a full disk the runner goes on without fair turns.
    with suppress(OSError):
        file.touch(mode=0o600)


def _time_of(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
