"""Checks that a serving runner's state folder and installation are unchanged, and that its store is intact.

If not, the process ends, and a service starts it again: each request that it took would fail, while another runner
may be able to run it.
"""

import math
import sys
import time
from pathlib import Path

import bridge
import presets
import runner
from bridge.errors import InfrastructureError
from bridge.system.local_files import stamp
from runner.bus.bus import Bus
from runner.bus.damage import damage
from runner.bus.stale_files import find_stale_lock

# The store has to be created again, which needs the state folder's lock, and thus a new context.
DAMAGED = "damaged"
# Git fails for many reasons, so failures start at most one search of the store per this many seconds.
_LOOK_AGAIN_S = 600.0
# An upgrade replaces these files or, for a moment, removes them.
_PACKAGES = [Path(module.__path__[0]) for module in (bridge, runner, presets)]
_INSTALLED = [Path(sys.executable), *_PACKAGES, Path(runner.__path__[0], "job", "supervisor.py")]


class Health:
    """Remembers how things were when a runner began to serve."""

    def __init__(self, state_folder: Path, bus: Bus) -> None:
        self._lock = state_folder / "lock"
        self._bus = bus
        self._locked = _identity(self._lock)
        self._installed = [_identity(path) for path in _INSTALLED]
        self._looked_at = -math.inf

    def check(self) -> None:
        """Check that this process may take a request.

        Raises:
            InfrastructureError: it may not. With code ``DAMAGED``, it has to open its state folder again.
        """
        self.check_lock()
        for path, before in zip(_INSTALLED, self._installed, strict=True):
            if before != _identity(path):
                message = f"this installation changed while the runner served: {path}"
                raise InfrastructureError(message, fix="Start it again.", code="installation_changed")
        store = self._bus.git.directory
        if self._bus.is_suspect and (lock := find_stale_lock(store)):
            raise InfrastructureError(f"a git that was killed left the lock {lock}", code=DAMAGED)
        if self._bus.is_suspect and time.monotonic() - self._looked_at >= _LOOK_AGAIN_S:
            self._looked_at, self._bus.is_suspect = time.monotonic(), False
            if reason := damage(store, quick=False):
                raise InfrastructureError(f"the store is damaged: {reason}", code=DAMAGED)

    def check_lock(self) -> None:
        """Raise an InfrastructureError if the state folder is no longer this process's own."""
        if self._locked != _identity(self._lock):
            message = f"{self._lock} is gone or was replaced, so this runner no longer has its state folder"
            raise InfrastructureError(message, fix="Start it again.", code="state_lost")


def _identity(path: Path) -> tuple[int, ...] | None:
    """Return a key that differs between a file or folder and its replacement; None if there is none."""
    key = stamp(path)
    # A folder's content may change.
    return key[:2] if key and path.is_dir() else key
