"""Runs one command of a job from an empty environment. ``stop()`` leaves no process behind, or lists survivors."""

import json
import os
import secrets
import selectors
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bridge.system.spawn import PIPE, Popen, start
from runner.job import supervisor

_READ_BYTES = 1 << 16
# How long to wait for the rest of the report once the supervisor has ended.
_REPORT_S = 5.0

# Core size limit that prevents core dumps. Linux ignores 0 if cores are piped to a program (such as systemd-coredump,
# which stores them), but writes none at 1: see `do_coredump` in its fs/coredump.c.
NO_CORE = 1 if sys.platform == "linux" else 0


@dataclass(frozen=True)
class Ended:
    """How a command ended. ``exit_code`` is negative for a signal, None if it is unknown.

    Unless it ``began``, nothing of the job ran.
    """

    exit_code: int | None
    seconds: float
    # Wall-clock seconds of the command, and processor seconds of all its processes, not rounded.
    wall_s: float = 0.0
    processor_s: float = 0.0
    timed_out: bool = False
    max_rss_bytes: int | None = None
    survivors: list[str] = field(default_factory=list)
    exceeded: str | None = None
    peaks: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None
    began: bool = True


def job_environment(home: Path, *, interpreter: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the complete environment of a job: nothing is inherited."""
    return {
        **extra,
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "PATH": f"{interpreter.parent}:/usr/bin:/bin:/usr/sbin:/sbin",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


# Passed as `-c`, because Python would compile a script file at each start. `os._exit` skips needless cleanup.
_SUPERVISE = f"import os; from {supervisor.__name__} import main; os._exit(main())"


class Ready:
    """A supervisor that is started before it gets its job, because starting it takes longer than many jobs.

    It runs nothing until a ``Command`` passes it a job. ``close`` ends it if that did not happen.
    """

    def __init__(self, kept: Sequence[int] = ()) -> None:
        """Start it. It keeps the descriptors ``kept`` open, and its job does not get them."""
        report, self._report_fd = os.pipe()
        self._kept = list(kept)
        argv, fds = [sys.executable, "-I", "-c", _SUPERVISE], [self._report_fd, *kept]
        env = {"LC_ALL": "C.UTF-8"}
        try:
            child = start(argv, env=env, cwd="/", stdin=PIPE, stdout=PIPE, stderr=None, pass_fds=fds)
        except BaseException:
            os.close(report)
            raise
        finally:
            os.close(self._report_fd)
        self.pid = child.pid
        self._started: tuple[Popen[bytes], int] | None = (child, report)

    def take(self, job: Mapping[str, object]) -> tuple[Popen[bytes], int] | None:
        """Pass a job to the supervisor. Returns its process and report descriptor; None if it is busy or gone."""
        if self._started is None:
            return None
        child, report = self._started
        assert child.stdin  # noqa: S101 - asked for above
        try:
            child.stdin.write(
                json.dumps({**job, "report_fd": self._report_fd, "kept_fds": self._kept}).encode() + b"\n"
            )
            child.stdin.flush()
        except BrokenPipeError:
            self.close()
            return None
        self._started = None
        return child, report

    def close(self) -> None:
        """End the supervisor, unless it has a job."""
        if self._started is None:
            return
        (child, report), self._started = self._started, None
        child.kill()
        with suppress(BrokenPipeError):
            child.communicate()
        os.close(report)


class Sink(Protocol):
    """What receives a command's output."""

    def write(self, data: bytes) -> None:
        """Append output."""

    def close(self) -> None:
        """Flush what was held back."""


class Command:
    """A command under the supervisor. ``poll`` waits for its end; ``stop`` ends it."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        timeout_s: float,
        grace_s: float,
        sink: Sink,
        limits: Mapping[str, int] | None = None,
        inside: Sequence[str] = (),
        bounds: Mapping[str, int] | None = None,
        watched: Path | None = None,
        ready: Ready | None = None,
        kept: Sequence[int] = (),
    ) -> None:
        self._sink = sink
        self.inside = inside
        self._mark = secrets.token_hex(16)
        spec = {
            "argv": list(argv),
            "env": {**env, supervisor.MARK: self._mark},
            "inside": list(inside),
            "cwd": str(cwd),
            "timeout_s": timeout_s,
            "grace_s": grace_s,
            "limits": dict(limits or {}),
            "bounds": dict(bounds or {}),
            "watched": str(watched or cwd),
        }
        process = (ready.take(spec) if ready else None) or Ready(kept).take(spec)
        if process is None:
            raise BrokenPipeError("the supervisor ended before its job began")
        self._child, self._report = process
        self._reported = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._ended: Ended | None = None

    def poll(self, wait_s: float = 0.0) -> Ended | None:
        """Wait up to ``wait_s`` seconds for the end. Returns how the command ended, or None if it still runs."""
        if self._ended is None and self._is_reported(wait_s):
            self._child.wait()
            self._ended = self._finish()
        return self._ended

    def _is_reported(self, wait_s: float) -> bool:
        """Wait for the end of the supervisor's report: Python notices the end of its process only later."""
        until = time.monotonic() + wait_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._report, selectors.EVENT_READ)
            while selector.select(max(0.0, until - time.monotonic())):
                if not (data := os.read(self._report, _READ_BYTES)):
                    return True
                self._reported += data
        return False

    def stop(self) -> Ended:
        """End the command and everything that it started. Returns when that is done."""
        assert self._child.stdin  # noqa: S101 - asked for above
        self._child.stdin.close()
        self._child.wait()
        ended = self.poll(_REPORT_S)
        assert ended is not None  # noqa: S101 - it was waited for
        return ended

    def _read(self) -> None:
        assert self._child.stdout  # noqa: S101 - asked for above
        with self._child.stdout as pipe:
            while data := os.read(pipe.fileno(), _READ_BYTES):
                self._sink.write(data)

    def _finish(self) -> Ended:
        os.close(self._report)
        # Only whole lines: the supervisor may have been killed while it wrote one.
        facts: dict[str, Any] = {}
        for line in self._reported.split(b"\n")[:-1]:
            facts |= json.loads(line)
        if "survivors" not in facts:  # the supervisor was lost
            facts["survivors"] = supervisor.end_marked(self._mark)
        # All writers of the pipe were ended with the job. Do not wait for a survivor, which is reported.
        self._reader.join(timeout=5)
        self._sink.close()
        if self._child.stdin:
            self._child.stdin.close()
        if "seconds" not in facts:
            facts["error"] = f"the supervisor ended with {self._child.returncode} and no report"
        return Ended(**{"exit_code": None, "seconds": 0.0, "began": False, **facts})
