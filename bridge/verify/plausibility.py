"""Checks whether a complete answer is plausible: its times agree, and its logs match the streamed output."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain

from bridge.bus import history, objects, wire
from bridge.bus.history import RequestBranch
from bridge.bus.wire import LogDigest, Result
from bridge.checks import Check
from bridge.manifest import parse_time
from bridge.system.git import Git

# The exit code of a program that could not be started. Earlier runners recorded no time for it.
_NOT_STARTED = 127
# Tolerance: times are whole seconds, and a runner also works between commands.
_SLACK_S = 2.0


def check_times(result: Result) -> Check:
    """Check that each step took some time, and all steps together no longer than the run.

    Steps are measured with a monotonic clock, the run with the host's wall clock. If that clock was set back meanwhile,
    an honest answer contradicts itself too, so this is only a warning.
    """
    wrong = list(_wrong_times(result))
    if wrong:
        return Check("times", ok=False, message="; ".join(wrong))
    total = sum(command.seconds for command in result.commands)
    if total > result.seconds + _SLACK_S:
        message = (
            f"the steps took {total:g} s of a run that took {result.seconds:g} s: was the clock set back?"
        )
        return Check("times", ok=None, message=message)
    return Check("times", ok=True, message=f"{result.seconds:g} s, finished at {result.finished_at}")


def _wrong_times(result: Result) -> Iterator[str]:
    for i, command in enumerate(result.commands):
        if command.exit_code not in (None, _NOT_STARTED) and command.seconds <= 0:
            yield f"step {i} ended with {command.exit_code} after no time at all"
    try:
        span = (parse_time(result.finished_at) - parse_time(result.started_at)).total_seconds()
    except ValueError:
        yield "it does not say when it began and ended"
        return
    if abs(span - result.seconds) > _SLACK_S:
        yield f"it took {result.seconds:g} s by its own count, and {span:g} s from its beginning to its end"


def check_logs(git: Git, view: RequestBranch, result: Result, ignored: Container[str] = ()) -> Check | None:
    """Check that the result's logs match the output that was streamed while the job ran.

    Call it only for an answer whose files passed their check: then each log is one of them, and within their limits.

    Pieces in the commits of ``ignored`` do not count, because the runner did not push them. Returns None if there is
    nothing to compare: nothing was streamed, or the runner is too old to record gaps.
    """
    if not result.logs or not history.is_ancestor(git, result.request, view.tip):
        return None
    pieces = (
        (state.left_out, piece)
        for commit, state, piece in history.stream(git, result.request, view.tip)
        if piece and state.branch == view.branch and state.token == result.token and commit not in ignored
    )

    def kept(path: str) -> bytes:
        return objects.read_blob(git, view.tip, path, max_bytes=wire.MAX_FILE) or b""

    return compare_logs(pieces, result.logs, kept)


def compare_logs(
    pieces: Iterable[tuple[int | None, bytes]], logs: Sequence[LogDigest], read: Callable[[str], bytes]
) -> Check | None:
    """Compare the streamed pieces, each with the gap before it, with the logs of a job's steps.

    Pieces and gaps add up to the output of all steps in order. So each piece has exactly one position, in one log or
    across consecutive logs. Both are walked once, side by side, with one log in memory; the first one that differs ends
    the comparison.
    """
    spans = _spans(logs, read)
    span, streamed, end = next(spans, None), 0, 0
    for left_out, piece in pieces:
        if left_out is None:
            return None
        at, end, streamed = end + left_out, end + left_out + len(piece), streamed + len(piece)
        while span:
            span.take(at, piece)
            if end < span.end:
                break
            if not span.agrees():
                return _differs(span)
            span = next(spans, None)
    return _judge(chain([span] if span else [], spans), streamed, end, logs) if streamed else None


def _judge(rest: Iterable[_Span], streamed: int, end: int, logs: Sequence[LogDigest]) -> Check:
    """Return the check after the last piece, which ended at ``end``; ``rest`` are the logs that go on there."""
    total = sum(log.stream_bytes for log in logs)
    if end > total:
        message = f"{end} bytes were streamed while the job ran, and its logs had {total}"
        return Check("logs", ok=False, message=message)
    if different := next((span for span in rest if not span.agrees()), None):
        return _differs(different)
    if streamed == total:
        message = "they match the output that was streamed while the job ran"
    else:
        message = f"the {streamed} of {total} bytes that were streamed while the job ran are in them"
    return Check("logs", ok=True, message=message)


def _differs(span: _Span) -> Check:
    return Check("logs", ok=False, message=f"{span.log.path} is not what was streamed while the job ran")


def _spans(logs: Sequence[LogDigest], read: Callable[[str], bytes]) -> Iterator[_Span]:
    begin = 0
    for log in logs:
        yield _Span(log, begin, read)
        begin += log.stream_bytes


class _Span:
    """One step's part of the output, compared piece by piece; a log that was cut is compared by its digest."""

    def __init__(self, log: LogDigest, begin: int, read: Callable[[str], bytes]) -> None:
        self.log = log
        self.end = begin + log.stream_bytes
        self._begin = begin
        self._kept = None if log.truncated else memoryview(read(log.path))
        self._digest = hashlib.sha256()
        self._count = 0
        self._holds = True

    def take(self, at: int, piece: bytes) -> None:
        """Compare the part of a piece that is in this log. ``at`` is the piece's position in the whole output."""
        begin = max(at, self._begin)
        part = piece[begin - at : max(begin, self.end) - at]
        self._count += len(part)
        if self._kept is None:
            self._digest.update(part)
        else:
            offset = begin - self._begin
            self._holds &= self._kept[offset : offset + len(part)] == part

    def agrees(self) -> bool:
        """Return whether the streamed output matches the log, as far as the log was kept."""
        if self._kept is None and self._count == self.log.stream_bytes:
            return self._digest.hexdigest() == self.log.stream_sha256
        return self._holds
