"""Checks whether a complete answer is plausible: its times agree, and its logs match the streamed output."""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from operator import itemgetter

from bridge.bus import history, objects, wire
from bridge.bus.history import RequestBranch
from bridge.bus.wire import LogDigest, Result
from bridge.checklist import Check
from bridge.manifest import parse_time
from bridge.system.git import Git

# The exit code of a program that could not be started. Earlier runners recorded no time for it.
_NOT_STARTED = 127
# Tolerance: times are whole seconds, and a runner also works between commands.
_SLACK_S = 2.0


def check_times(result: Result) -> Check:
    """Check that each step took some time, and that all steps together took no longer than the run.

    Steps are measured with a monotonic clock, the run with the host's wall clock. If that clock was set back meanwhile,
    an honest answer contradicts itself too, so this is only a warning.
    """
    if wrong := list(_wrong_times(result)):
        return Check("times", ok=False, message="; ".join(wrong))
    total = sum(command.seconds for command in result.commands)
    if total > result.seconds + _SLACK_S:
        steps = f"the steps took {total:g} s of a run that took {result.seconds:g} s"
        message = f"{steps}: was the clock set back?"
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


def check_logs(git: Git, branch: RequestBranch, result: Result, ignored: Container[str] = ()) -> Check | None:
    """Check that the result's logs match the output that was streamed while the job ran.

    Call it only for an answer whose files passed their check. Pieces in the commits of ``ignored``, which the runner
    did not push, do not count. Returns None if nothing was streamed, or the runner is too old to record gaps.
    """
    if not result.logs or not history.is_ancestor(git, result.request, branch.tip):
        return None
    pieces = (
        (state.left_out, piece)
        for commit, state, piece in history.streamed_states(git, result.request, branch.tip)
        if piece and state.branch == branch.name and state.token == result.token and commit not in ignored
    )

    def read(path: str) -> bytes:
        return objects.read_blob(git, branch.tip, path, max_bytes=wire.MAX_FILE) or b""

    return compare_logs(pieces, result.logs, read)


def compare_logs(
    pieces: Iterable[tuple[int | None, bytes]], logs: Sequence[LogDigest], read: Callable[[str], bytes]
) -> Check | None:
    """Compare the streamed pieces, each with the gap before it, with the logs of a job's steps.

    Pieces and gaps add up to the output of all steps in order. So each piece has exactly one position, in one log or
    across consecutive logs. Pieces and logs are walked once, in parallel, with one log in memory. The comparison ends
    at the first difference.
    """
    ends = list(accumulate(log.stream_bytes for log in logs))
    total = sum(log.stream_bytes for log in logs)
    streamed = end = 0

    def parts() -> Iterator[tuple[int, int, bytes]]:
        """Yield the pieces, divided by log: the log's number, the part's position in that log, and the part."""
        nonlocal streamed, end
        for left_out, piece in pieces:
            if left_out is None:
                streamed = 0  # gaps are not known, so nothing can be compared
                return
            at, end, streamed = end + left_out, end + left_out + len(piece), streamed + len(piece)
            for i in range(bisect_right(ends, at), min(bisect_left(ends, end) + 1, len(logs))):
                begin = ends[i] - logs[i].stream_bytes
                first = max(at, begin)
                yield i, first - begin, piece[first - at : ends[i] - at]

    for i, some in groupby(parts(), key=itemgetter(0)):
        if not _agrees(logs[i], some, read):
            message = f"{logs[i].path} is not what was streamed while the job ran"
            return Check("logs", ok=False, message=message)
    if not streamed:
        return None
    if end > total:
        message = f"{end} bytes were streamed while the job ran, and its logs had {total}"
    elif streamed < total:
        message = f"the {streamed} of {total} bytes that were streamed while the job ran are in them"
    else:
        message = "they match the output that was streamed while the job ran"
    return Check("logs", ok=end <= total, message=message)


def _agrees(log: LogDigest, parts: Iterable[tuple[int, int, bytes]], read: Callable[[str], bytes]) -> bool:
    """Return whether the streamed parts match a log; if all of a truncated log was streamed, by its digest."""
    if not log.truncated:
        content = memoryview(read(log.path))
        return all(content[at : at + len(part)] == part for _, at, part in parts)
    digest, count = hashlib.sha256(), 0
    for _, _, part in parts:
        digest.update(part)
        count += len(part)
    return count < log.stream_bytes or digest.hexdigest() == log.stream_sha256
