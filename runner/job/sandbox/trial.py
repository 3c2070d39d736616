"""Runs a command under the supervisor that belongs to no request, such as a test of this host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.job.command import Command, Ended, job_environment
from runner.job.logs import LogSink
from runner.job.workspace import Workspace

_OUTPUT_BYTES = 1 << 20


def run_trial(
    argv: Sequence[str],
    space: Workspace,
    inside: Sequence[str],
    *,
    interpreter: Path,
    extra: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
) -> tuple[Ended, str]:
    """Run a command like a job, behind the argv prefix ``inside``. Returns how it ended, and its stripped output.

    ``extra`` are variables beside those that every job has.
    """
    sink = LogSink(_OUTPUT_BYTES)
    env = job_environment(space.home, interpreter=interpreter, extra=extra or {})
    command = Command(
        argv, inside=inside, env=env, cwd=space.tree, timeout_s=timeout_s, grace_s=1.0, sink=sink
    )
    try:
        while command.poll(0.1) is None:
            pass
    finally:
        ended = command.stop()
    return ended, sink.kept.decode("utf-8", "replace").strip()
