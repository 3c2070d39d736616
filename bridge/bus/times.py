"""Estimates the current time from the bus: no single clock decides that something is old.

The clock of a machine may be years off, for example at a start with a dead battery. Commits of others have times by
their clocks, so the newest of these times is a lower bound of the current time. Times in the future of this machine's
clock are ignored: anyone who can push can make one.
"""

import re
from collections.abc import Sequence

from bridge.bus import branch_names, objects
from bridge.common import limits
from bridge.system.git import Git

# Differences between machines' clocks up to this size are normal.
TOLERANCE_S = 300.0

# The e-mail address in runners' commits.
RUNNER_EMAIL = "kakeya-mac-bridge@localhost"

_COMMITTED = re.compile(rb"^committer [^\n]* (\d{1,12}) [+-]\d{4}$", re.MULTILINE)


def commit_times(git: Git, commits: Sequence[str]) -> list[float | None]:
    """Return when each commit was made, in Unix seconds by its maker's clock; None for a missing commit."""
    raws = objects.read_many(git, list(commits), max_bytes=limits.COMMIT_BYTES, kind="commit")
    stated = (_COMMITTED.search(raw.partition(b"\n\n")[0]) if raw else None for raw in raws)
    return [float(time[1]) if time else None for time in stated]


def request_times(git: Git, prefix: str) -> list[float]:
    """Return the times of the requests below a prefix of references, by the requesters' clocks.

    A time comes from a branch's name, or from its newest commit unless a runner made that: a runner's own commits would
    only confirm its own clock.
    """
    listed = git("for-each-ref", "--format=%(committeremail) %(committerdate:unix) %(refname)", prefix).stdout
    dates = []
    for line in listed.split(b"\n")[:-1]:
        email, date, ref = line.split(b" ", 2)
        if email != f"<{RUNNER_EMAIL}>".encode() and date.isdigit():
            dates.append(float(date))
        if request := branch_names.parse_branch(ref.decode("utf-8", "replace").removeprefix(prefix)):
            dates.append(float(branch_names.nonce_time(request.nonce)))
    return dates


def confirmed_time(now: float, dates: list[float]) -> float:
    """Return ``now`` if one of the dates is nearly as late; otherwise the latest time that has certainly passed.

    Dates later than ``now`` prove nothing: either they are forged, or this clock is behind and ``now`` is the careful
    answer anyway.
    """
    return min(now, max((date for date in dates if date <= now + TOLERANCE_S), default=now) + TOLERANCE_S)


def is_confirmed(now: float, dates: list[float], tolerance_s: float = TOLERANCE_S) -> bool:
    """Return whether one of the dates is about ``now``."""
    return any(abs(now - date) <= tolerance_s for date in dates)
