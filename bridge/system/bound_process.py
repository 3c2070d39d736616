"""Ends a program and removes a folder once their owner has ended, even by SIGKILL: its closed pipe shows that.

``BoundProcess`` starts this module in a session of its own. It reads a line with the program to start, and cleans up
at the end of its standard input.
"""

import json
import os
import select
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bridge.common import environment
from bridge.system.spawn import PIPE, STDOUT, Expired, Popen, start

# How long the program gets to end by itself.
_STOP_S = 30
_POLL_S = 0.1


class BoundProcess:
    """Starts one program, and ends it together with this process. ``folder`` is then removed."""

    def __init__(self, folder: Path | None, *, env: Mapping[str, str]) -> None:
        argv = [sys.executable, "-P", "-m", __name__, str(folder or "")]
        self._process = start(argv, env=env, cwd="/", stdin=PIPE, stdout=PIPE)

    def start(self, argv: Sequence[str], log: Path) -> None:
        """Start the program. Its output goes to the log."""
        self._tell(json.dumps({"argv": list(argv), "log": str(log)}))

    @property
    def has_ended(self) -> bool:
        """Whether the program has ended."""
        assert self._process.stdout  # noqa: S101 - asked for above
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def stop(self) -> None:
        """End the program, and wait for its end."""
        self._tell("")
        assert self._process.stdout  # noqa: S101 - asked for above
        self._process.stdout.read()

    def close(self) -> None:
        """End the program, remove the folder, and wait for that."""
        self._process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process.stdin  # noqa: S101 - asked for above
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()


def _watch_and_remove(folder: str) -> None:
    """Start the program of the first line, and end it at the second line or the end of input."""
    # Unbuffered, so that `select` notices input that was not read yet.
    orders = open(0, "rb", buffering=0)  # noqa: SIM115 - as long as the process
    if line := orders.readline():
        order = json.loads(line)
        with Path(order["log"]).open("wb") as out:
            program = start(order["argv"], env=environment.for_user_git(), stdout=out.fileno(), stderr=STDOUT)
        while program.poll() is None and not select.select([orders], [], [], _POLL_S)[0]:
            pass
        _end(program)
        # The owner learns from the end of this pipe that the program has ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    orders.read()
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def _end(program: Popen[bytes]) -> None:
    program.send_signal(signal.SIGTERM)
    try:
        program.wait(_STOP_S)
    except Expired:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


if __name__ == "__main__":
    _watch_and_remove(sys.argv[1])
