"""``kakeya-engine codec rd``: distortion at the bits that are actually stored."""

import time
from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import FILE, REFERENCE, flag, option
from bridge.common.cli.progress import progress
from engine.cli.reporting import put_out, show_tables
from engine.cli.types import list_of

DISTRIBUTIONS = ("gaussian", "t4", "outliers")
CODECS = ("raw", "affine", "classic", "voronoi")


@click.command()
@option("--dim", click.Choice([64, 80, 96, 112, 128, 256, 512]), 128, help="Values in a vector.")
@option("--n-vectors", click.IntRange(64, 1 << 20), 4096, help="Vectors of each distribution.")
@option("--seed", click.IntRange(0, 2**32 - 1), 0, help="Seed of the vectors.")
@option("--codecs", list_of(CODECS), ",".join(CODECS), help="Codecs to measure.")
@option("--bits", list_of((2, 3, 4, 5, 6, 8)), "2,3,4,5,6,8", help="Bits of the affine and Voronoi codecs.")
@option("--groups", list_of((32, 64, 128)), "64,128", help="Group sizes of the affine codec.")
@option("--q-ranges", list_of((2, 4, 7, 10, 31, 38, 152)), "4,7,10,38", help="Q ranges of the classic codec.")
@option(
    "--effort", click.Choice(["fast", "normal", "best"]), "normal", help="Search effort of the Voronoi codec."
)
@option(
    "--distributions", list_of(DISTRIBUTIONS), ",".join(DISTRIBUTIONS),
    help="Distributions of the vectors' values.",
)  # fmt: skip
@option(
    "--model",
    REFERENCE,
    help="Measure on keys and values of this model instead, a name, folder or hub id (with --text).",
)
@option("--text", FILE, help="Text for --model to read: its first 4,096 tokens.")
@option("--out", FILE, help="Write the report to this file.")
@flag("--json as_json", "Print the report instead of a table.")
def command(*, out: Path | None, as_json: bool, **config: Any) -> None:
    """Print the rate-distortion table of the codecs, on seeded data or on a model's keys and values."""
    if (config["model"] is None) != (config["text"] is None):
        raise click.UsageError("--model and --text go together")
    config["text"] = str(config["text"]) if config["text"] else None
    from engine.evals.rate_distortion.table import KIND, RatePlan, table
    from engine.harness.report import OpenReport

    start = time.perf_counter()
    with progress("codecs", "codecs") as (on_start, on_row):
        plan = RatePlan(**{name: config[name] for name in ("codecs", "bits", "groups", "q_ranges", "effort")})
        data, opened = _data(config), OpenReport(KIND, config)

        def add(row: dict[str, Any]) -> None:
            opened.add(row)
            on_row()

        rows = table(data, plan, on_start, add)
    report = opened.close(rows, time.perf_counter() - start)
    put_out(report, out, show_tables, as_json=as_json)


def _data(config: dict[str, Any]) -> dict[str, Any]:
    from engine.evals.rate_distortion.sources import capture_from, draw

    count, seed = config["n_vectors"], config["seed"]
    if config["model"]:
        return capture_from(config["model"], Path(config["text"]), count, seed)
    return {name: draw(name, count, config["dim"], seed) for name in config["distributions"]}
