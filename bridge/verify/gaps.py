"""What an answer lacks, which is shown beside it: a reader must not take a part for the whole."""

from __future__ import annotations

from bridge.bus.wire import Result
from bridge.checks import Check

_SHOWN = 3


def gaps(result: Result) -> list[str]:
    """Return what an answer lacks: reports that were not collected, parts of logs, and processes that survived."""
    return [
        *(f"not collected: {each}" for each in result.skipped),
        *(f"{log.path}: only head and tail were kept" for log in result.logs if log.truncated),
        *(
            f"step {i} left processes that could not be ended: {', '.join(command.survivors)}"
            for i, command in enumerate(result.commands)
            if command.survivors
        ),
    ]


def check_gaps(result: Result) -> list[Check]:
    """Return a check that names what the answer lacks, if it lacks anything. That makes no answer invalid."""
    missing = gaps(result)
    more = f"; and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    return [Check("gaps", ok=None, message="; ".join(missing[:_SHOWN]) + more)] if missing else []
