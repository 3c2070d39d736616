"""Judges a report of a kind that a preset declares: its schema, its claims, and whether the run vouches for the file.

The job prints one line for each file that it vouches for, and the runner's log keeps it:

    kakeya-file RUN SHA256

RUN is the run's id, which nobody knows before the request is committed: so no input of a requester contains the line.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bridge.gate.binding import RunBinding
from bridge.gate.deadline import Deadline
from bridge.reports import digests
from bridge.reports.own.derive import Derived, derive
from bridge.reports.own.model import OwnKind
from bridge.reports.own.pointer import written
from bridge.reports.own.schema import MAX_MATCHED
from bridge.reports.own.stepwise import TOO_LONG, SchemaTooDeepError, violations

_MOST_FAULTS = 5
_SHOWN_RULE = 80
# A message names at most this many claims.
_NAMED = 5

Fault = tuple[str, str]


def judge_own(
    kind: OwnKind, report: Mapping[str, Any], digest: str, run: RunBinding, deadline: Deadline
) -> Iterator[Fault]:
    """Yield the faults of a report; without faults, a note that names the applied checks.

    Raises:
        TooLongError: the deadline has passed.
    """
    deadline.check()
    faults = [*vouching_faults(digest, run, deadline), *_schema_faults(kind, report, deadline.check)]
    derived: dict[str, int] = {}
    for claim in kind.claims:
        deadline.check()
        outcome = derive(claim, report)
        if not isinstance(outcome, Derived):
            faults.append(outcome)
        elif outcome.samples:
            derived[claim.name] = outcome.samples
    yield from faults
    if not faults:
        written = [claim.name for claim in kind.claims if claim.name not in derived]
        yield "CHECKED", _checked(str(report.get("kind")), derived, written)


def vouching_faults(digest: str, run: RunBinding, deadline: Deadline) -> Iterator[Fault]:
    """Yield why the run's log does not vouch for a file with this digest."""
    lines = [*deadline.through(digests.files_in(run.logs))]
    mine = [line.digest for line in lines if line.run == run.id]
    if digest in mine:
        return
    if mine:
        yield "EDITED", "the job's log vouches for another file: its lines kakeya-file have other digests"
    elif any(line.run for line in lines):
        yield "NOT_THIS_RUN", "the lines kakeya-file in the job's log name another run"
    elif lines:
        yield (
            "RUN_UNNAMED",
            "no line kakeya-file is in the part of the job's log that was kept; print it last",
        )
    else:
        yield "RUN_UNNAMED", "the job's log has no line kakeya-file, so the run does not vouch for this file"


def _schema_faults(kind: OwnKind, report: Mapping[str, Any], check: Callable[[], None]) -> Iterator[Fault]:
    try:
        for number, violation in enumerate(violations(kind.json_schema, report, check)):
            if number == _MOST_FAULTS:
                return
            where = written(list(violation.place))[:_SHOWN_RULE]
            if violation.keyword == TOO_LONG:
                yield (
                    "SCHEMA_MISMATCH",
                    f"{where}: is longer than the {MAX_MATCHED} characters that are matched",
                )
            else:
                yield (
                    "SCHEMA_MISMATCH",
                    f"{where}: breaks {violation.keyword}: {violation.rule[:_SHOWN_RULE]}",
                )
    except SchemaTooDeepError:
        yield "SCHEMA_MISMATCH", "the schema refers to itself without end on this report"


def _checked(kind: str, derived: Mapping[str, int], written: Sequence[str]) -> str:
    """Return a note that names the applied checks. ``derived`` has the number of samples of each claim."""
    parts = [f"{kind}: schema"]
    if derived:
        least, most = min(derived.values()), max(derived.values())
        count = f"{least}" if least == most else f"{least} to {most}"
        parts.append(f"{_named([*derived])} derived again from {count} sample{'s' * (count != '1')}")
    if written:
        parts.append(f"{_named(written)} as the run wrote {'it' if len(written) == 1 else 'them'}")
    return ", ".join([*parts, "file vouched for by the run"])


def _named(claims: Sequence[str]) -> str:
    count = "1 claim" if len(claims) == 1 else f"{len(claims)} claims"
    more = ", ..." if len(claims) > _NAMED else ""
    return f"{count} ({', '.join(claims[:_NAMED])}{more})"
