"""Runs one job on a cluster: starts the ranks, watches their progress, and decides whether the job has succeeded."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bridge.common import environment
from bridge.common.errors import ExitCode
from bridge.common.session import Session
from engine.cluster.exits import explain, has_exited
from engine.cluster.hosts import Cluster
from engine.cluster.messages import Reader
from engine.cluster.rank import encode
from engine.cluster.state import Clocks, RankState, overdue
from engine.errors import EngineError, MissingPackage

_TICK_S = 0.2
_RENEW_S = 3.0
# How long the launcher may take to say which rank ended first, after another rank has reported that its peer is gone.
_GRACE_S = 2.5
_KEPT_ERRORS = 1 << 14


class ClusterFailed(EngineError):  # noqa: N818 - reads as what it is
    """A job on a cluster did not succeed; another attempt may."""

    exit_code = ExitCode.INFRASTRUCTURE


@dataclass(frozen=True)
class Outcome:
    """The end records of all ranks, by rank. They hold the same digest."""

    ranks: list[dict[str, Any]]
    seconds: float


def run(
    cluster: Cluster,
    job: dict[str, Any],
    clocks: Clocks,
    notice: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Outcome:
    """Run a job to its end, and pass the ranks' messages to ``notice``. No rank of this machine is left afterwards.

    Raises:
        ClusterFailed: a rank ended early, stands still or does not answer.
        EngineError: a rank refused the job, or the ranks' digests differ.
        KeyboardInterrupt: a signal asked this process to end.
    """
    with _interruptible():
        try:
            session = Session(cluster.command(os.getpid()), env=environment.for_ranks(len(cluster)))
        except OSError as error:
            raise MissingPackage(f"mlx.launch cannot be started: {error.strerror}") from error
        try:
            return _Job(cluster, clocks, session).run({**job, "backend": cluster.hosts.backend}, notice)
        finally:
            session.end()


class _Job:
    def __init__(self, cluster: Cluster, clocks: Clocks, session: Session) -> None:
        self._cluster, self._clocks, self._session = cluster, clocks, session
        self._ranks = [RankState() for _ in range(len(cluster))]
        self._reader, self._errors = Reader(), b""
        self._began = self._renewed = time.monotonic()
        self._is_sent = False
        self._lost: float | None = None  # when a rank was found to have ended

    def run(self, job: dict[str, Any], notice: Callable[[dict[str, Any]], None]) -> Outcome:
        while True:
            output, errors = self._session.read(_TICK_S)
            self._errors = (self._errors + errors)[-_KEPT_ERRORS:]
            for message in self._reader.add(output):
                number = message.get("rank")
                if isinstance(number, int) and 0 <= number < len(self._ranks):
                    self._ranks[number].take(message)
                    notice(message)
            if all(rank.end is not None for rank in self._ranks):
                return self._outcome()
            self._send(job)
            self._check_ends(is_quiet=not output and not errors)
            self._check_clocks()

    def _send(self, job: dict[str, Any]) -> None:
        """Send the job once all ranks wait for it, and a line now and then, without which remote ranks end."""
        if not self._is_sent and all(rank.has_started for rank in self._ranks):
            self._is_sent = True
            self._session.write(encode(job))
        elif self._is_sent and time.monotonic() - self._renewed > _RENEW_S:
            self._renewed = time.monotonic()
            self._session.write(b"\n")

    def _check_ends(self, *, is_quiet: bool) -> None:
        for report in (rank.failed for rank in self._ranks):
            if report is not None and report["expected"]:
                raise EngineError(report["message"], report["fix"])
        errors = self._errors.decode(errors="replace")
        if has_exited(errors) or any(rank.failed for rank in self._ranks):
            self._lost = self._lost or time.monotonic()
        is_over = is_quiet and self._session.returncode is not None
        if is_over or (self._lost is not None and time.monotonic() - self._lost > _GRACE_S):
            raise ClusterFailed(*explain(self._cluster, self._ranks, errors))

    def _check_clocks(self) -> None:
        late = [number for number, rank in enumerate(self._ranks) if not rank.has_started]
        if late and time.monotonic() - self._began > self._clocks.start:
            names = ", ".join(map(self._cluster.name, late))
            raise ClusterFailed(
                f"{names} did not start within {self._clocks.start:g} s",
                "check that the host is up and that ssh logs in without a password",
            )
        problem = overdue(self._cluster, self._ranks, self._clocks) if self._is_sent else None
        if problem is not None:
            raise ClusterFailed(*problem)

    def _outcome(self) -> Outcome:
        ends = [rank.end for rank in self._ranks if rank.end is not None]
        if len({end["digest"] for end in ends}) > 1:
            digests = ", ".join(f"{end['digest'][:12]} ({end['tokens']} tokens)" for end in ends)
            raise EngineError(
                f"the ranks decoded different tokens: {digests}",
                "use the same versions of MLX, mlx-lm and the model on all hosts",
            )
        return Outcome(ends, time.monotonic() - self._began)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let the signals that ask a process to end interrupt the block, so that the ranks are ended."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)
