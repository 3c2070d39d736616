"""Whether an answer that is whole could be true: its times agree, and its logs are those that were streamed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from bridge import history
from bridge.checks import Check
from bridge.git import Git
from bridge.history import View
from bridge.manifest import parse_time
from bridge.wire import Result

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

    None where there is nothing to compare: no log, one that was not streamed in full, or another branch's.
    """
    if not history.is_ancestor(git, result.request, view.tip):
        return None
    wanted = [log.stream_bytes for log in result.logs]
    found = [hashlib.sha256() for _ in wanted]
    left = list(wanted)
    for _, state, piece in history.stream(git, result.request, view.tip):
        rest = piece if state.branch == view.branch and state.token == result.token else b""
        for i, digest in enumerate(found):
            part, rest = rest[: left[i]], rest[left[i] :]
            digest.update(part)
            left[i] -= len(part)
        if rest:
            return None
    if not wanted or any(left):
        return None
    for log, digest in zip(result.logs, found, strict=True):
        if digest.hexdigest() != log.stream_sha256:
            return Check("logs", ok=False, message=f"{log.path} is not what was streamed while the job ran")
    return Check("logs", ok=True, message="they are what was streamed while the job ran")
