"""Checks that a run measured a report, with facts that the report itself cannot prove.

A runner gives each job an id that nobody can know before the request is committed, and the engine writes it into its
reports. While it measures, the engine prints the digests of ``bridge.reports.digests``, which the runner's log keeps.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from bridge.gate.command_line import config_mismatches
from bridge.gate.deadline import Deadline
from bridge.reports import digests
from bridge.reports.kinds import COMPARE
from bridge.reports.own import OwnKind

_TIME = "%Y-%m-%dT%H:%M:%SZ"
# Tolerance for times, which are written in whole seconds.
_SLACK = timedelta(seconds=3)
# Tolerance for memory: two programs may count it slightly differently.
_SIMILAR = 0.05


@dataclass(frozen=True)
class RunBinding:
    """The facts about a run that its reports must match."""

    id: str  # see `run_id`
    began: datetime
    ended: datetime
    host: Mapping[str, Any] = field(default_factory=dict)  # the runner's facts about its machine
    versions: Mapping[str, str | None] = field(default_factory=dict)  # of installed software
    logs: tuple[bytes, ...] = ()  # as recorded by the runner
    # The command lines of the job's steps; placeholders replace values that the answer does not show.
    argvs: tuple[tuple[str, ...], ...] = ()
    # Whether the request's own code ran, so that the requester vouches for its figures.
    requester_measured: bool = False
    # Whether a signature covers the report's bytes. Then logs of older engines, with digests of rows alone, are enough.
    is_signed: bool = False
    # The reader's trust in the answer (`bridge.verify.verdict`), and the runner whose pinned key signed it.
    trust: str = "unchecked"
    signer: str = ""
    # The kinds of report that the run's preset declares.
    kinds: Mapping[str, OwnKind] = field(default_factory=dict)
    # The SHA-256 of the comparison that the runner wrote, as canonical JSON, and the commit that it compares.
    comparison: str | None = None
    workload: str | None = None


def run_id(branch: str, request: str, token: int) -> str:
    """Return the id of a run. It depends on the request commit's id, so that commit cannot contain it."""
    return hashlib.sha256(f"kakeya-run\n{branch}\n{request}\n{token}\n".encode()).hexdigest()


def has_run_id(report: Mapping[str, Any]) -> bool:
    """Return whether a report names a run."""
    run = report.get("run")
    return isinstance(run, dict) and isinstance(run.get("id"), str)


def mismatches(
    report: Mapping[str, Any], run: RunBinding, deadline: Deadline | None = None
) -> Iterator[tuple[str, str]]:
    """Yield why a report is not the one that a run measured, as pairs of code and message.

    Raises:
        TooLongError: the deadline has passed.
    """
    if not has_run_id(report):
        yield "RUN_UNNAMED", "the report does not name its run"
        return
    if report["run"]["id"] != run.id:
        names = f"the report is of run {report['run']['id'][:12]}, and this is run {run.id[:12]}"
        yield "NOT_THIS_RUN", names
        return
    if report.get("kind") == COMPARE:
        yield from _comparison_mismatches(report, run)
    else:
        yield from _digest_mismatches(report, run, deadline or Deadline())
    for fault in _clock_faults(report, run):
        yield "OTHER_TIME", fault
    seconds, most = report.get("seconds"), (run.ended - run.began + _SLACK).total_seconds()
    if isinstance(seconds, int | float) and seconds > most:
        yield "NOT_THIS_RUN", f"the report took {seconds:g} s of a job of {most:g} s"
    for fault in (*_host_faults(report, run), *config_mismatches(report, run.argvs)):
        yield "NOT_THIS_RUN", fault


def _clock_faults(report: Mapping[str, Any], run: RunBinding) -> Iterator[str]:
    """Compare wall clocks. They differ, too, if the machine slept or its clock was set: a run's end ignores both."""
    try:
        at = datetime.strptime(str(report.get("created_at")), _TIME).replace(tzinfo=UTC)
    except ValueError:
        yield "the report does not say when it was written"
        return
    if not run.began - _SLACK <= at <= run.ended + _SLACK:
        job = f"from {run.began:{_TIME}} to {run.ended:{_TIME}}"
        yield f"the report was written at {at:{_TIME}}, and the job ran {job}"


def _host_faults(report: Mapping[str, Any], run: RunBinding) -> Iterator[str]:
    identity = report.get("identity")
    if not isinstance(identity, dict):
        return
    written, known = identity.get("memory_bytes"), run.host.get("memory_bytes")
    if (
        isinstance(written, int)
        and isinstance(known, int)
        and not math.isclose(written, known, rel_tol=_SIMILAR)
    ):
        yield f"the report is of a machine of {written} bytes of memory, and this one has {known}"
    versions = identity.get("versions")
    here = versions.get("mlx") if isinstance(versions, dict) else None
    there = run.versions.get("mlx")
    if here and there and here != there:
        yield f"the report is of mlx {here}, and this machine has {there}"


def _comparison_mismatches(report: Mapping[str, Any], run: RunBinding) -> Iterator[tuple[str, str]]:
    """Check that a comparison is the one that the runner wrote itself: no job may write one."""
    if run.comparison is None:
        yield "NOT_THIS_RUN", "the runner compared nothing in this run: the request has no --against"
    elif digests.report_digest(report) != run.comparison:
        yield "EDITED", "the file is not the comparison that the runner wrote"
    elif report["config"]["candidate"]["commit"] != run.workload:
        yield "NOT_THIS_RUN", "the candidate is not the workload of this run"


def _digest_mismatches(
    report: Mapping[str, Any], run: RunBinding, deadline: Deadline
) -> Iterator[tuple[str, str]]:
    """Compare the report with the digests in the log: its header, its rows in their order, and the whole."""
    rows = report.get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        yield "EDITED", "the report holds no list of rows"
        return
    header = digests.header_digest(report)
    lines = [*deadline.through(digests.lines_in(run.logs))]
    if not any(line.word == digests.REPORT for line in lines):
        if not run.is_signed:
            yield "RUN_UNNAMED", "the job's log holds no digest of a report: an older engine wrote it"
        elif not _older_rows_match(rows, lines, deadline):
            yield "EDITED", "the job's log does not hold the digest of the report's rows"
        return
    mine = [line for line in lines if line.id == header[: digests.ID_LENGTH]]
    was_cut = any(not line.word for line in lines)
    starts = [i for i, line in enumerate(mine) if line.word == digests.REPORT and line.digest == header]
    if not mine or (starts[:1] != [0] and not was_cut):
        yield (
            "EDITED",
            "the job's log does not begin with the digest of the report's models, prompts, arms and options",
        )
        return
    chain = [*digests.row_digests(deadline.through(rows), header)]
    # A job may repeat a measurement with the same header. Then one of these parts of the log belongs to this report.
    parts = [mine[start:end] for start, end in pairwise([0, *starts[1:], len(mine)])]
    whole = digests.report_digest(report)
    yield from min(([*_part_mismatches(whole, chain, part)] for part in deadline.through(parts)), key=len)


def _part_mismatches(whole: str, chain: list[str], lines: list[digests.Line]) -> Iterator[tuple[str, str]]:
    """Compare the digests of the whole report and of its rows with those that one measurement printed."""
    for line in lines:
        if line.word == digests.ROWS and chain[line.rows - 1 : line.rows] != [line.digest]:
            after = f"after {line.rows} rows"
            yield "EDITED", f"{after}, the job's log holds another digest than the report's rows have"
            return
    last = max(line.rows for line in lines)
    if last != len(chain):
        yield "EDITED", f"the job's log tells of {last} rows, and the report has {len(chain)}"
    ends = [line.digest for line in lines if line.word == digests.END]
    if not ends or ends[-1] != whole:
        yield "EDITED", "the report's claims, times or notes are not those that the run wrote"


def _older_rows_match(rows: list[Mapping[str, Any]], lines: list[digests.Line], deadline: Deadline) -> bool:
    """Return whether the log of an older engine holds the digest of the report's rows."""
    last = [*digests.row_digests(deadline.through(rows))][-1:]
    return any([line.digest] == last for line in lines)
