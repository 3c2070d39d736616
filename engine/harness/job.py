"""Runs a measurement: runs its turns one after the other, saves their rows in a journal, and writes the report."""

import gc
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.dflash.target.context import check_context
from engine.harness import provenance
from engine.harness.arm import Arm, Turn
from engine.harness.journal import Journal
from engine.harness.prompt_sets import Workload, refuse_repeats
from engine.harness.report import OpenReport
from engine.harness.rows import Row
from engine.harness.steady import Further
from engine.harness.threads import CHOSEN
from engine.models import Pair

Sections = dict[str, Any]
ONLY = ""  # the report's name in jobs that write only one


def config_of(plan: Any) -> Sections:
    """Return the ``config`` of a report: the fields of a plan (a dataclass) as JSON values."""
    return {name: list(x) if isinstance(x, tuple) else x for name, x in asdict(plan).items()}


def by_turn(turn: Turn[Any, Any]) -> Row:
    """Return the fields that identify a turn's row: arm, prompt and number of the repeat."""
    return {"arm": turn.arm.name, "prompt": turn.prompt.id, "repeat": turn.repeat}


def sections(
    pair: Pair,
    workloads: Iterable[Workload],
    arms: Iterable[Arm[Any]],
    *,
    chat: bool = False,
    oracle: bool = True,
    answer: int = 0,
) -> Sections:
    """Return the sections of a report on arms that run on encoded prompts, which at most ``answer`` tokens follow.

    Raises:
        BadInput: two prompts have the same text, or one is longer than the model can read.
    """
    workloads = tuple(workloads)
    refuse_repeats(workloads)
    lengths = [len(prompt.ids) for workload in workloads for prompt in workload.prompts]
    check_context(pair.target, pair.name, max(lengths, default=0) + answer)
    return {
        "models": pair.describe(),
        "workloads": {workload.name: workload.section(chat=chat) for workload in workloads},
        "prompts": [prompt.section(some.name) for some in workloads for prompt in some.prompts],
        "arms": [arm.section(oracle=oracle) for arm in arms],
    }


@dataclass(frozen=True)
class Job:
    """A measurement that can be interrupted."""

    kind: str  # of the report
    sections: Sections  # `models`, `workloads`, `prompts` and `arms` of the report
    config: dict[str, Any]  # every option of the run
    turns: Sequence[Turn[Any, Any]]  # what runs, in this order
    # A function from a turn to its rows, without the fields of `names`; with `started_s` if it takes times.
    measure: Callable[[Turn[Any, Any]], Iterable[Row]]
    # A function from a turn to the fields that identify its rows, by which the journal finds a turn.
    names: Callable[[Turn[Any, Any]], Row] = by_turn
    # A function from the rows so far to the next turns; it is called again after each list of turns.
    further: Further = lambda _: iter(())
    finish: Callable[[list[Row]], None] = lambda _: None  # completes the rows when all are there
    # For each report by its name, the sections that it adds to `config`; most jobs make one report.
    reports: Mapping[str, Sections] = field(default_factory=lambda: {ONLY: {}})
    report_of: Callable[[Row], str] = lambda _: ONLY  # from a row to the name of its report


def run_all(
    job: Job,
    out: Path | None = None,
    on_start: Callable[[int], None] = lambda _: None,
    on_step: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Sections], Journal]:
    """Run a job's turns, or the remaining turns of an interrupted run.

    Returns the reports by name, and the journal of their rows, which the caller closes once they are written.
    ``seconds`` in a report covers this run only, not an earlier one that was interrupted. The rows are saved beside
    ``out``, the report's file; None keeps them in memory. ``on_start`` is called with the number of turns, and again if
    there are more, ``on_step`` after each turn.
    """
    began = time.perf_counter()
    key = tuple(job.names(job.turns[0])) if job.turns else ()
    known = {**job.sections, "config": job.config, "code": provenance.code()}
    chosen = {name: job.config[name] for name in CHOSEN if name in job.config}
    journal = Journal(out, known, key, chosen=chosen)
    resumed = {"resumed_rows": journal.resumed}
    reports = {
        name: OpenReport(job.kind, {**job.config, **resumed, **config}, **job.sections)
        for name, config in job.reports.items()
    }
    for row in journal.rows:
        reports[job.report_of(row)].add(row, is_new=False)
    total = 0
    gc.collect()
    gc.freeze()  # exempt all present objects, so that collecting garbage before each run is quick
    try:
        for turns in itertools.chain([job.turns], job.further(journal.rows)):
            total += len(turns)
            on_start(total)
            for turn in turns:
                names = job.names(turn)
                if tuple(names.values()) not in journal:
                    started = {"started_s": time.perf_counter()}
                    rows = [names | started | row for row in job.measure(turn)]
                    for row in rows:
                        journal.append(row)
                        reports[job.report_of(row)].add(row)
                    if len(rows) > 1:
                        reports[job.report_of(rows[-1])].flush()  # these rows began together
                on_step()
    finally:
        gc.unfreeze()
    job.finish(journal.rows)
    seconds = time.perf_counter() - began
    return {
        name: report.close([row for row in journal.rows if job.report_of(row) == name], seconds)
        for name, report in reports.items()
    }, journal


def run(job: Job, out: Path | None = None, *callbacks: Callable[..., None]) -> tuple[Sections, Journal]:
    """Measure, and return the only report and the journal, to be closed. See ``run_all`` for the arguments."""
    reports, journal = run_all(job, out, *callbacks)
    (report,) = reports.values()
    return report, journal
