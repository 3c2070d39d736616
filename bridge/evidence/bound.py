"""Checks that a report belongs to a run, with facts that the report itself cannot prove.

A runner gives each job an id that nobody can know before the request is committed, and the engine writes it into its
reports. While it measures, the engine also prints a digest chain of its rows, which is then in the runner's log.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from bridge.evidence.asked import unlike
from bridge.evidence.clock import Clock

# The environment variable with the run's id.
VARIABLE = "KAKEYA_RUN_ID"

# Fields that are added to a row after its measurement, and so are not in its digest.
LATER = ("divergence",)

# Prefix of the digest chain's lines in a log.
ROWS = "kakeya-rows "
_LINE = re.compile(
    ROWS.encode() + rb"(?P<count>\d{1,9}) (?P<digest>[0-9a-f]{64})|\n\[\.\.\. \d+ bytes left out \.\.\.\] "
)
# While it measures, the engine prints a digest with the first row that ends a second after the last digest.
_SILENT_S = 3.0
_SWEEP = "kakeya.verify-l"
_TIME = "%Y-%m-%dT%H:%M:%SZ"
# Tolerance for times, which are written in whole seconds.
_SLACK = timedelta(seconds=3)
# Tolerance for memory: two programs may count it slightly differently.
_ALIKE = 0.05


@dataclass(frozen=True)
class Bound:
    """The run that reports must match.

    Attributes:
        id: see ``run_id``.
        began: when the job began; ``ended``: when it had ended.
        host: the runner's facts about its machine; ``versions``: about installed software.
        logs: the job's logs, as recorded by the runner.
        required: whether a report without a run id is refused.
        argvs: the command lines of the job's steps; placeholders replace values that the answer does not show.
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
    """Return the id of a run. It depends on the request commit, so the commit cannot contain it."""
    return hashlib.sha256(f"kakeya-run\n{branch}\n{request}\n{token}\n".encode()).hexdigest()


def chain(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the digest chain: after each row, the digest of all rows so far."""
    digest = ""
    for row in rows:
        told = {name: value for name, value in row.items() if name not in LATER}
        text = json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False)
        digest = hashlib.sha256(f"{digest}\n{text}".encode()).hexdigest()
        yield digest


def is_told(report: Mapping[str, Any]) -> bool:
    """Return whether a report names a run."""
    run = report.get("run")
    return isinstance(run, dict) and isinstance(run.get("id"), str)


def unbound(report: Mapping[str, Any], bound: Bound, clock: Clock | None = None) -> Iterator[tuple[str, str]]:
    """Yield why a report does not belong to a run, as pairs of code and message.

    Raises:
        TooLongError: the clock's time is over.
    """
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
    yield from (("RUN_UNBOUND", odd) for odd in _odd_rows(report, bound, clock or Clock()))
    yield from (("RUN_UNBOUND", odd) for odd in unlike(report, bound.argvs))


def _odd_times(report: Mapping[str, Any], bound: Bound) -> Iterator[str]:
    try:
        at = datetime.strptime(str(report.get("created_at")), _TIME).replace(tzinfo=UTC)
    except ValueError:
        return  # another rule reports this
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


def _odd_rows(report: Mapping[str, Any], bound: Bound, clock: Clock) -> Iterator[str]:
    rows = report.get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return
    digests = [*chain(clock.through(rows))]
    if not digests:
        return
    # One job may write several reports, so only the lines that lead to this report's last digest belong to it: their
    # counts grow. They are not kept, because a log may hold a million of them.
    told, before, odd = _Told({_resumed(report, rows)}), 0, None
    for mark in clock.through(_marks(bound.logs)):
        if mark is None:
            told.before_cuts.add(max(told.counts))
            continue
        count, digest = mark
        if count <= before:
            odd = None
        if 0 < count <= len(digests) and digests[count - 1] == digest:
            told.counts.add(count)
        elif odd is None:
            odd = f"after {count} rows the log holds another digest than the report's rows have"
        if (count, digest) == (len(digests), digests[-1]):
            yield from [odd] if odd else _silence(report, rows, told)
            return
        before = count
    yield "the job's log does not hold the digest of the report's rows: they are not those that were measured"


@dataclass(frozen=True)
class _Told:
    """After how many rows a log holds the report's digest, and which of these counts come last before a cut."""

    counts: set[int]
    before_cuts: set[int] = field(default_factory=set)


def _marks(logs: Iterable[bytes]) -> Iterator[tuple[int, str] | None]:
    """Yield the digest chain's lines of all logs: after how many rows, and the digest. None: the log was cut here."""
    for log in logs:
        for found in _LINE.finditer(log):
            yield (int(found["count"]), found["digest"].decode()) if found["digest"] else None


def _resumed(report: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> int:
    """Return how many rows an earlier, interrupted run measured: its log is another one."""
    config = report.get("config")
    told = config.get("resumed_rows", 0) if isinstance(config, dict) else 0
    return told if isinstance(told, int) and 0 <= told < len(rows) else 0


def _silence(report: Mapping[str, Any], rows: list[Mapping[str, Any]], told: _Told) -> Iterator[str]:
    """Yield where the log holds no digest for longer than the engine is silent while it measures.

    A digest is printed after a row if the last one is a second old. So the rows between two digests, but for the
    second one's own, cannot take much longer.
    """
    config = report.get("config")
    caches = config.get("caches") if isinstance(config, dict) else None
    if report.get("kind") == _SWEEP and isinstance(caches, list) and len(caches) > 1:
        return  # passes over several caches take turns, and their digests are printed with the reports
    first = _resumed(report, rows)
    for one, other in pairwise(sorted(count for count in told.counts if count >= first)):
        took = _span(rows[one : other - 1])
        if took > _SILENT_S and one not in told.before_cuts:
            yield f"the log holds no digest of the rows {one + 1} to {other - 1}, which took {took:.3g} s"
            return


def _span(rows: list[Mapping[str, Any]]) -> float:
    """Return the seconds from the start of the first of some rows to the end of the last; 0 if they do not say."""
    if not rows:
        return 0.0
    start, last = rows[0].get("started_s"), rows[-1].get("started_s")
    took = rows[-1].get("e2e_s", rows[-1].get("seconds", 0.0))
    numbers = all(isinstance(value, int | float) for value in (start, last, took))
    return float(last + took - start) if numbers else 0.0
