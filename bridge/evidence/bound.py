"""What binds a report to the run that it is of: what no report can show by itself.

A runner gives each job an id that nobody can know before the request is committed, and the engine writes it into its
reports. While it measures, the engine also prints a digest chain of its rows, which the runner's log then holds.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from bridge.evidence.asked import unlike

# The variable by which the engine is told.
VARIABLE = "KAKEYA_RUN_ID"

# What a row is given only after it has been measured: why it parts from another one.
LATER = ("divergence",)

# How a line of the digest chain begins in a job's log.
ROWS = "kakeya-rows "
_LINE = re.compile(ROWS.encode() + rb"(?P<count>\d{1,9}) (?P<digest>[0-9a-f]{64})")
_TIME = "%Y-%m-%dT%H:%M:%SZ"
# Times are written in whole seconds.
_SLACK = timedelta(seconds=3)
# Two programs may count memory a little differently.
_ALIKE = 0.05


@dataclass(frozen=True)
class Bound:
    """The run that reports have to be of.

    Attributes:
        id: see `run_id`.
        began: when the job began, and `ended`: when it had ended.
        host: what the runner says of its machine, and `versions`: of what is installed there.
        logs: the job's logs as the runner streamed them.
        required: whether a report that does not say of which run it is does not pass.
        argvs: what the job's steps ran; placeholders stand for what the answer does not show.
    """

    id: str
    began: datetime
    ended: datetime
    host: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str | None] = field(default_factory=dict)
    logs: tuple[bytes, ...] = ()
    required: bool = False
    argvs: tuple[tuple[str, ...], ...] = ()


def run_id(branch: str, request: str, token: int) -> str:
    """Return the id of a run: of a request commit, which cannot hold it, on a branch, under one claim."""
    return hashlib.sha256(f"kakeya-run\n{branch}\n{request}\n{token}\n".encode()).hexdigest()


def chain(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the digest after each row, of that row and of all before it."""
    digest = ""
    for row in rows:
        told = {name: value for name, value in row.items() if name not in LATER}
        text = json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False)
        digest = hashlib.sha256(f"{digest}\n{text}".encode()).hexdigest()
        yield digest


def is_told(report: Mapping[str, Any]) -> bool:
    """Say whether a report names a run."""
    run = report.get("run")
    return isinstance(run, dict) and isinstance(run.get("id"), str)


def unbound(report: Mapping[str, Any], bound: Bound) -> Iterator[tuple[str, str]]:
    """Yield why a report is not of a run, as pairs of code and message."""
    if not is_told(report):
        if bound.required:
            yield "RUN_UNTOLD", "the report does not say of which run it is"
        return
    if report["run"]["id"] != bound.id:
        yield (
            "RUN_UNBOUND",
            f"the report is of run {report['run']['id'][:12]}, and this is run {bound.id[:12]}",
        )
        return
    yield from (("RUN_UNBOUND", odd) for odd in _odd_times(report, bound))
    yield from (("RUN_UNBOUND", odd) for odd in _odd_host(report, bound))
    yield from (("RUN_UNBOUND", odd) for odd in _odd_rows(report, bound))
    yield from (("RUN_UNBOUND", odd) for odd in unlike(report, bound.argvs))


def _odd_times(report: Mapping[str, Any], bound: Bound) -> Iterator[str]:
    try:
        at = datetime.strptime(str(report.get("created_at")), _TIME).replace(tzinfo=UTC)
    except ValueError:
        return  # another rule says so
    if not bound.began - _SLACK <= at <= bound.ended + _SLACK:
        yield f"the report was written at {at:%Y-%m-%dT%H:%M:%SZ}, and the job did not run then"
    took, most = report.get("seconds"), (bound.ended - bound.began + _SLACK).total_seconds()
    if isinstance(took, int | float) and took > most:
        yield f"the report took {took:g} s of a job of {most:g} s"


def _odd_host(report: Mapping[str, Any], bound: Bound) -> Iterator[str]:
    identity = report.get("identity")
    if not isinstance(identity, dict):
        return
    told, known = identity.get("memory_bytes"), bound.host.get("memory_bytes")
    if isinstance(told, int) and isinstance(known, int) and not math.isclose(told, known, rel_tol=_ALIKE):
        yield f"the report is of a machine of {told} bytes of memory, and this one has {known}"
    versions = identity.get("versions")
    here = versions.get("mlx") if isinstance(versions, dict) else None
    there = bound.versions.get("mlx")
    if here and there and here != there:
        yield f"the report is of mlx {here}, and this machine has {there}"


def _odd_rows(report: Mapping[str, Any], bound: Bound) -> Iterator[str]:
    rows = report.get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return
    digests = [*chain(rows)]
    if not digests:
        return
    marks = [(int(m["count"]), m["digest"].decode()) for log in bound.logs for m in _LINE.finditer(log)]
    if (len(digests), digests[-1]) not in marks:
        yield "the job's log does not hold the digest of the report's rows: they are not those that were measured"
        return
    # Several reports may have been made by one job, so only what leads to this one's last digest is its own.
    own = marks[: marks.index((len(digests), digests[-1])) + 1]
    begun = next((i for i in range(len(own) - 1, 0, -1) if own[i - 1][0] >= own[i][0]), 0)
    for count, digest in own[begun:]:
        if not 0 < count <= len(digests) or digests[count - 1] != digest:
            yield f"after {count} rows the log holds another digest than the report's rows have"
            return
