"""What every measurement does: rows into a journal, from there into a report."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.measure import provenance, report
from engine.measure.journal import Journal

Made = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A measurement that can be interrupted.

    Attributes:
        kind: of the report.
        sections: ``models``, ``workloads``, ``prompts`` and ``arms`` of the report.
        config: every option of the run.
        key: the fields by which a row is known.
        steps: how often ``measure`` reports progress.
        measure: appends the rows that a journal lacks, and calls its second argument after each step.
        claims: from the sections and ``rows`` to the report's claims.
    """

    kind: str
    sections: dict[str, Any]
    config: dict[str, Any]
    key: Sequence[str]
    steps: int
    measure: Callable[[Journal, Callable[[], None]], None]
    claims: Callable[[Made], list[Made]]


def run(
    job: Job,
    out: Path | None = None,
    on_start: Callable[[int], None] = lambda _: None,
    on_step: Callable[[], None] = lambda: None,
) -> tuple[Made, Journal]:
    """Measure, or go on where an interrupted run of the same stopped; return the report, and the journal to close.

    ``seconds`` are those of this run: what an earlier one took before it was interrupted is not known.

    Args:
        job: what is measured.
        out: the report's file, beside which the rows are kept; None keeps them in memory.
        on_start: told the number of steps.
        on_step: called after each.
    """
    began = time.perf_counter()
    journal = Journal(out, {**job.sections, "config": job.config, "code": provenance.code()}, job.key)
    on_start(job.steps)
    job.measure(journal, on_step)
    made = report.envelope(
        job.kind,
        config={**job.config, "resumed_rows": journal.resumed},
        rows=journal.rows,
        claims=job.claims({**job.sections, "rows": journal.rows}),
        seconds=time.perf_counter() - began,
        **job.sections,
    )
    return made, journal
