"""A measurement on the command line: a bar, a report, its plot, a table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from engine.cli.output import put_out
from engine.cli.progress import progress

Sections = dict[str, Any]


def carry_out(
    job: Any,
    title: str,
    unit: str,
    show: Callable[[Sections], None],
    out: Path | None,
    *,
    as_json: bool,
    picture: Callable[[Sections], str] | None = None,
) -> Sections:
    """Run a job of :mod:``engine.measure.job``, put its report out and return it.

    Args:
        job: what is measured.
        title: the word beside the bar.
        unit: what a step is, in the plural.
        show: prints the report.
        out: where it goes.
        as_json: print it as JSON instead.
        picture: its plot, as SVG.
    """
    from engine.measure.job import run

    tell_left_out(job.config.get("left_out", {}))
    with progress(title, unit) as (on_start, on_step):
        report, journal = run(job, out, on_start, on_step)
    put_out(report, out, show, as_json=as_json, picture=picture(report) if picture else None)
    journal.close()
    return report


def tell_left_out(arms: dict[str, str]) -> None:
    """Say on standard error which arms are left out, and why."""
    for name, reason in arms.items():
        click.echo(f"left out: {name}: {reason}", err=True)


def choose_threads(pair: Any, requested: int | None, out: Path | None) -> Any:
    """Choose and set the BLAS threads, and say on standard error which; see :mod:``engine.measure.threads``.

    Args:
        pair: the loaded models.
        requested: the option ``--threads``.
        out: the report's file: an interrupted run of it keeps the number that it began with.
    """
    from engine.measure import threads
    from engine.measure.journal import chosen_before

    chosen = threads.choose(pair, requested, chosen_before(out))
    if chosen.by == "measured":
        rates = ", ".join(f"{count}: {rate:g} tokens/s" for count, rate in chosen.rates.items())
        click.echo(f"BLAS threads: {chosen.count}" + (f" (measured with {rates})" if rates else ""), err=True)
    return chosen
