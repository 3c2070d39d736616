"""Says why ranks ended before their end records: from their own reports, and from what the launcher prints of them."""

import re
import signal
from collections.abc import Iterator

from engine.cluster.hosts import RANK, Cluster
from engine.cluster.state import RankState

_EXITED = re.compile(r"Node with rank (\d+) (?:exited with code (-?\d+)|was killed)")
_BY_LAUNCHER = -15  # how the launcher ends the others
_SSH_FAILED = 255
_NO_PROGRAM = (126, 127)  # of the shell: not executable, not there
_AGAIN = "see whether its host ran out of memory or restarted, and run again"


def has_exited(errors: str) -> bool:
    """Return whether the launcher says that a rank has ended with an error."""
    return _EXITED.search(errors) is not None


def explain(cluster: Cluster, ranks: list[RankState], errors: str) -> tuple[str, str]:
    """Return the message and the fix for the rank that ended first.

    A rank that a signal ended comes before one that reports an error, and both before one that has lost its peer.
    """
    number, event, fix = next(_causes(cluster, ranks, errors))
    return (f"{cluster.name(number)} {event} {ranks[number].doing}" if number is not None else event), fix


def _causes(cluster: Cluster, ranks: list[RankState], errors: str) -> Iterator[tuple[int | None, str, str]]:
    """Yield ranks, what happened to them and the fix; the likeliest cause first."""
    codes = [(int(match[1]), int(match[2] or _BY_LAUNCHER)) for match in _EXITED.finditer(errors)]
    reports = {number: rank.failed["message"] for number, rank in enumerate(ranks) if rank.failed}
    for number, code in codes:
        if code < 0 and code != _BY_LAUNCHER:
            yield number, f"was ended by {_name(-code)}", _AGAIN
    for number, message in reports.items():
        if "peer" not in message:
            yield number, f"failed with {message}", _last_line(errors)
    for number, code in codes:
        if not ranks[number].has_started:
            yield from _never_started(cluster, number, code)
        if number not in reports and code > 0:
            yield number, f"ended with exit code {code}", _last_line(errors)
    for number in reports:
        yield number, "lost the connection to another rank", _AGAIN
    for number, _ in codes:
        yield number, "was ended", _AGAIN
    yield None, "mlx.launch ended before the ranks did", _last_line(errors)


def _never_started(cluster: Cluster, number: int, code: int) -> Iterator[tuple[int, str, str]]:
    """Yield why a rank's program did not begin, if its exit code says so."""
    python = cluster.interpreter(number)
    if code == _SSH_FAILED:
        fix = f"make `ssh {cluster.hosts.hosts[number].ssh} true` work without a password"
        yield number, "cannot be reached by ssh", fix
    elif code in _NO_PROGRAM:
        fix = "install the package on that host, and name its interpreter as `python` in the hostfile"
        yield number, f"cannot run {python}", fix
    elif code == 1:
        yield number, "could not load the package", f"try `{python} -c 'import {RANK}'` there, which says why"


def _last_line(errors: str) -> str:
    lines = [line.strip() for line in errors.split("\n") if line.strip() and not _EXITED.search(line)]
    return f"the ranks' last message: {lines[-1][-300:]}" if lines else _AGAIN


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
