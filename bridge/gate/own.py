"""Judges a report of a kind that a preset declares: its schema, its claims, and whether the run vouches for the file.

The job prints one line for each file that it vouches for, and the runner's log keeps it:

    kakeya-file RUN SHA256

RUN is the run's id, which nobody knows before the request is committed: so no input of a requester contains the line.
"""

from collections.abc import Callable, Iterator, Mapping
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

Fault = tuple[str, str]


def judge_own(
    kind: OwnKind, report: Mapping[str, Any], digest: str, run: RunBinding, deadline: Deadline
) -> Iterator[Fault]:
    """Yield what is wrong with a report; if nothing is, which checks there were.

    Raises:
        TooLongError: the deadline has passed.
    """
    deadline.check()
    faults = [*vouching_faults(digest, run, deadline), *_schema_faults(kind, report, deadline.check)]
    derived = 0
    samples: list[int] = []
    for claim in kind.claims:
        deadline.check()
        outcome = derive(claim, report)
        if not isinstance(outcome, Derived):
            faults.append(outcome)
        elif outcome.samples:
            derived += 1
            samples.append(outcome.samples)
    yield from faults
    if not faults:
        yield "CHECKED", _checked(len(kind.claims), derived, samples)


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


def _checked(claims: int, derived: int, samples: list[int]) -> str:
    """Return which checks there were, and no more than those."""
    parts = ["schema"]
    if derived:
        count = f"{samples[0]}" if len(set(samples)) == 1 else f"{min(samples)} to {max(samples)}"
        parts.append(f"{_plural(derived, 'claim')} derived again from {count} sample{'s' * (count != '1')}")
    if unchecked := claims - derived:
        parts.append(f"{_plural(unchecked, 'claim')} as the run wrote {'it' if unchecked == 1 else 'them'}")
    return ", ".join([*parts, "file vouched for by the run"])


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"
