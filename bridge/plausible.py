"""Whether an answer that is whole could be true: its times agree, and its logs are those that were streamed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence

from bridge import history, objects, wire
from bridge.checks import Check
from bridge.git import Git
from bridge.history import View
from bridge.manifest import parse_time
from bridge.wire import LogDigest, Result

# Times are written in whole seconds, and a runner does more than wait for its commands.
_SLACK_S = 2.0


def check_times(result: Result) -> Check:
    """Steps take time, and no more than the whole run took.

    The steps are measured by a clock that only runs forward, the run by the host's own. Where that one was set back
    meanwhile, the two differ in an honest answer too, so this is told and is no failure.
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
        if command.exit_code is not None and command.seconds <= 0:
            yield f"step {i} ended with {command.exit_code} after no time at all"
    try:
        span = (parse_time(result.finished_at) - parse_time(result.started_at)).total_seconds()
    except ValueError:
        yield "it does not say when it began and ended"
        return
    if abs(span - result.seconds) > _SLACK_S:
        yield f"it took {result.seconds:g} s by its own count, and {span:g} s from its beginning to its end"


def check_logs(git: Git, view: View, result: Result) -> Check | None:
    """The log that was streamed while the job ran is the one that the result is about.

    None if there is nothing to compare: nothing was streamed, or by a runner that did not count gaps.
    """
    if not result.logs or not history.is_ancestor(git, result.request, view.tip):
        return None
    pieces = [
        (state.left_out, piece)
        for _, state, piece in history.stream(git, result.request, view.tip)
        if piece and state.branch == view.branch and state.token == result.token
    ]

    def kept(path: str) -> bytes:
        return objects.read_blob(git, view.tip, path, max_bytes=wire.MAX_FILE) or b""

    return compare_logs(pieces, result.logs, kept)


def compare_logs(
    pieces: Sequence[tuple[int | None, bytes]], logs: Sequence[LogDigest], kept: Callable[[str], bytes]
) -> Check | None:
    """Compare what was streamed, each piece with the gap before it, with the logs of a job's steps.

    Pieces and gaps, added up, are the output of all steps one after another. So each piece has one place: in one log,
    or in several that follow each other.
    """
    if not pieces or any(left_out is None for left_out, _ in pieces):
        return None
    end, placed = 0, []
    for left_out, piece in pieces:
        begin = end + (left_out or 0)
        end = begin + len(piece)
        placed.append((begin, piece))
    total = sum(log.stream_bytes for log in logs)
    if end > total:
        message = f"{end} bytes were streamed while the job ran, and its logs had {total}"
        return Check("logs", ok=False, message=message)
    begin = 0
    for log in logs:
        if not _agrees(log, _within(placed, begin, begin + log.stream_bytes), kept):
            return Check("logs", ok=False, message=f"{log.path} is not what was streamed while the job ran")
        begin += log.stream_bytes
    streamed = sum(len(piece) for _, piece in pieces)
    if streamed == total:
        return Check("logs", ok=True, message="they are what was streamed while the job ran")
    message = f"the {streamed} of {total} bytes that were streamed while the job ran are in them"
    return Check("logs", ok=True, message=message)


def _within(placed: list[tuple[int, bytes]], begin: int, end: int) -> list[tuple[int, bytes]]:
    """Return the parts of the pieces that lie between two places of the output, counted from the first of them."""
    cut = [
        (max(at, begin) - begin, piece[max(0, begin - at) : end - at])
        for at, piece in placed
        if at < end and at + len(piece) > begin
    ]
    return [(at, part) for at, part in cut if part]


def _agrees(log: LogDigest, parts: list[tuple[int, bytes]], kept: Callable[[str], bytes]) -> bool:
    """Say whether what was streamed of one step stands in its log, as far as that was kept."""
    streamed = b"".join(part for _, part in parts)
    if len(streamed) == log.stream_bytes:
        return hashlib.sha256(streamed).hexdigest() == log.stream_sha256
    if log.truncated:
        return True
    whole = kept(log.path)
    return all(whole[at : at + len(part)] == part for at, part in parts)
