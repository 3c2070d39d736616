"""A rank's own watch: it reports that it lives, and ends the rank once the launcher or the supervisor is gone.

On the supervisor's machine, the rank looks whether both processes exist. On another, it has the terminal that ssh made,
through which the supervisor sends a line every few seconds; without one for ``LEASE_S`` the rank ends.
"""

import os
import signal
import threading
import time

from engine.cluster.messages import send

BEAT_S = 1.0
LEASE_S = 20.0
_LOOK_S = 0.25
_STDIN = 0


class Watch:
    """What this rank does, reported every second."""

    def __init__(self, rank: int, supervisor: int) -> None:
        self.rank = rank
        self.phase, self.count = "start", 0
        self._supervisor, self._parent = supervisor, os.getppid()
        self.is_remote = os.isatty(_STDIN)
        self._renewed = time.monotonic()

    def start(self) -> None:
        """Begin to watch and to report."""
        threading.Thread(target=self._look, daemon=True).start()

    def enter(self, phase: str, count: int = 0) -> None:
        """Report the next phase."""
        self.phase, self.count = phase, count
        self._report()

    def hear(self) -> None:
        """Read the supervisor's lines, on another machine. On its own, close standard input: it is not needed there.

        The launcher polls the input of each rank that has it open without a pause.
        """
        if self.is_remote:
            threading.Thread(target=self._listen, daemon=True).start()
        else:
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, _STDIN)
            os.close(null)

    def _report(self) -> None:
        send("alive", rank=self.rank, phase=self.phase, count=self.count)

    def _listen(self) -> None:
        while os.read(_STDIN, 1 << 12):
            self._renewed = time.monotonic()
        end()

    def _look(self) -> None:
        beat = 0.0
        while True:
            if not self._is_wanted():
                end()
            if time.monotonic() - beat >= BEAT_S:
                beat = time.monotonic()
                try:
                    self._report()
                except OSError:
                    end()
            time.sleep(_LOOK_S)

    def _is_wanted(self) -> bool:
        if self.is_remote:
            return time.monotonic() - self._renewed < LEASE_S
        if os.getppid() != self._parent:
            return False
        try:
            os.kill(self._supervisor, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def end() -> None:
    """End this rank and its group at once: on the supervisor's machine, those are the launcher and all local ranks."""
    os.killpg(0, signal.SIGKILL)
