"""How the command line shows a measurement: progress, the report, its plot, its tables."""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from bridge.common.cli.output import rich_console
from bridge.common.cli.progress import progress
from bridge.common.whole_files import atomic_write

Sections = dict[str, Any]
WIDTH = 100  # the least width of tables, also without a terminal


def carry_out(
    job: Any, title: str, unit: str, show: Callable[[Sections], None], out: Path | None, *,
    as_json: bool, plot: bool = False,
) -> Sections:  # fmt: skip
    """Run a job of ``engine.harness.job``, write and print its report, and return it.

    ``title`` is the word beside the progress bar, ``unit`` the plural of what it counts; for ``plot``, see
    ``put_out``.
    """
    from engine.harness.job import run

    tell_left_out(job.config.get("left_out", {}))
    with progress(title, unit) as (on_start, on_step):
        report, journal = run(job, out, on_start, on_step)
    put_out(report, out, show, as_json=as_json, plot=plot)
    journal.close()
    return report


def tell_left_out(arms: dict[str, str]) -> None:
    """Print on standard error which arms are left out, and why."""
    for name, reason in arms.items():
        click.echo(f"left out: {name}: {reason}", err=True)


def choose_threads(pair: Any, requested: int | None, out: Path | None) -> Any:
    """Choose, set and print (on standard error) the number of BLAS threads; see ``engine.harness.threads``.

    An interrupted run of the report ``out`` keeps its number.
    """
    from engine.harness import threads
    from engine.harness.journal import recorded_choices

    chosen = threads.choose(pair, requested, recorded_choices(out))
    if chosen.by == "measured":
        rates = ", ".join(f"{count}: {rate:g} tokens/s" for count, rate in chosen.rates.items())
        click.echo(f"BLAS threads: {chosen.count}" + (f" (measured with {rates})" if rates else ""), err=True)
    return chosen


def show_tables(report: Sections, claims: Collection[str] = ()) -> None:
    """Print the tables of a report as ``kakeya report`` does, and its claims with some names over all prompts."""
    from bridge.reports.views.kinds import claims_in, shown
    from bridge.reports.views.rows import claims_tables
    from bridge.reports.views.terminal import rich_table

    chosen = [claim for claim in claims_in(report) if claim.name in claims and not claim.where]
    for table in (*shown(report)[0], *claims_tables(chosen)[:1]):
        print_table(rich_table(table, max_rows=None))


def print_table(table: Any) -> None:
    """Print a table of rich's."""
    rich_console(width=max(rich_console().width, WIDTH)).print(table)


def plots(report: Sections) -> str:
    """Return the plots of a report as SVG."""
    from bridge.common.drawing.svg import svg_file
    from bridge.reports.views.kinds import shown

    return svg_file(shown(report)[1])


def put_out(
    document: Sections, out: Path | None, show: Callable[[Sections], None], *,
    as_json: bool, plot: bool = False,
) -> None:  # fmt: skip
    """Write a report, and a ``plot`` of it beside it, and print it as JSON or as a table."""
    from engine.harness import report

    if out:
        report.write(out, document)
        if plot:
            with atomic_write(out.with_suffix(".svg")) as part:
                part.write_text(plots(document), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        show(document)
    if out:
        click.echo(f"wrote {out}", err=True)
