"""Runs a measurement: its turns one after the other, their rows into a journal, the journal into a report."""

import gc
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engine.measure import provenance, report
from engine.measure.journal import Journal
from engine.measure.rows import Row
from engine.measure.schedule import Turn
from engine.measure.steady import Further

Made = dict[str, Any]


def _nothing(_: list[Row]) -> None:
    """Leave the rows as they are."""


def _no_turns(_: Sequence[Row]) -> Iterator[list[Turn[Any, Any]]]:
    """Add none."""
    return iter(())


@dataclass(frozen=True)
class Job:
    """A measurement that can be interrupted.

    Attributes:
        kind: of the report.
        sections: ``models``, ``workloads``, ``prompts`` and ``arms`` of the report.
        config: every option of the run.
        turns: what runs, in this order.
        names: from a turn to the fields that identify its rows; the journal finds a turn by them.
        measure: from a turn to the rest of each of its rows, with ``started_s`` if it takes times.
        claims: from the sections and ``rows`` to the report's claims.
        further: from the rows so far to turns that follow these, asked for again after each list of them.
        finish: completes the rows when all are there.
        one_report: whether all rows make one report.
    """

    kind: str
    sections: Made
    config: dict[str, Any]
    turns: Sequence[Turn[Any, Any]]
    names: Callable[[Turn[Any, Any]], Row]
    measure: Callable[[Turn[Any, Any]], Iterable[Row]]
    claims: Callable[[Made], list[Made]]
    further: Further = _no_turns
    finish: Callable[[list[Row]], None] = _nothing
    one_report: bool = True


class Measured(NamedTuple):
    """The rows of a job, their journal, which the caller closes after writing the report, and the seconds they took."""

    journal: Journal
    seconds: float


def measure(
    job: Job,
    out: Path | None = None,
    on_start: Callable[[int], None] = lambda _: None,
    on_step: Callable[[], None] = lambda: None,
) -> Measured:
    """Run a job's turns, or those that an interrupted run of the same did not come to.

    Args:
        job: what is measured.
        out: the report's file, beside which the rows are kept; None keeps them in memory.
        on_start: told the number of turns, and anew if there are more.
        on_step: called after each.
    """
    began = time.perf_counter()
    key = tuple(job.names(job.turns[0])) if job.turns else ()
    known = {**job.sections, "config": job.config, "code": provenance.code()}
    journal = Journal(out, known, key, tell=job.one_report)
    total = 0
    gc.collect()
    gc.freeze()  # what is there now stays, so that collecting before each run is quick
    try:
        for turns in itertools.chain([job.turns], job.further(journal.rows)):
            total += len(turns)
            on_start(total)
            for turn in turns:
                names = job.names(turn)
                if tuple(names.values()) not in journal:
                    started = {"started_s": time.perf_counter()}
                    made = list(job.measure(turn))
                    for row in made:
                        journal.append(names | started | row)
                    if len(made) > 1:
                        journal.tell()  # rows that began together are told together
                on_step()
    finally:
        gc.unfreeze()
    job.finish(journal.rows)
    return Measured(journal, time.perf_counter() - began)


def run(
    job: Job,
    out: Path | None = None,
    on_start: Callable[[int], None] = lambda _: None,
    on_step: Callable[[], None] = lambda: None,
) -> tuple[Made, Journal]:
    """Measure, and return the report and the journal to close; arguments are those of :func:``measure``.

    ``seconds`` covers this run only, not an earlier one that was interrupted.
    """
    began = time.perf_counter()
    journal, _ = measure(job, out, on_start, on_step)
    made = report.envelope(
        job.kind,
        config={**job.config, "resumed_rows": journal.resumed},
        rows=journal.rows,
        claims=job.claims({**job.sections, "rows": journal.rows}),
        seconds=time.perf_counter() - began,
        **job.sections,
    )
    return made, journal
