"""``kakeya-engine codec rd``: distortion beside the bits that are really stored."""

import json
import time
from pathlib import Path

import click

from engine.cli.types import ListOf

DISTRIBUTIONS = ("gaussian", "t4", "outliers")


@click.command()
@click.option("--dim", type=click.Choice([64, 128, 256, 512]), default=128, show_default=True)
@click.option("--n-vectors", type=click.IntRange(64, 1 << 20), default=4096, show_default=True)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@click.option("--bits", type=ListOf((2, 3, 4, 5, 6, 8)), default="2,3,4,6,8", show_default=True)
@click.option("--groups", type=ListOf((32, 64, 128)), default="64,128", show_default=True)
@click.option("--distributions", type=ListOf(DISTRIBUTIONS), default=",".join(DISTRIBUTIONS))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the report here.")
@click.option("--json", "as_json", is_flag=True, help="Print the report instead of a table.")
def rd(*, out: Path | None, as_json: bool, **config: object) -> None:
    """Print the rate-distortion table of the codecs on seeded data."""
    from engine import report
    from engine.codec.rd import KIND, table

    start = time.perf_counter()
    rows = table(**config)
    made = report.envelope(KIND, config=config, rows=rows, seconds=time.perf_counter() - start)
    if out:
        report.write(out, made)
    if as_json:
        click.echo(json.dumps(made, indent=2, allow_nan=False))
    else:
        _show(made)
    if out:
        click.echo(f"wrote {out}", err=True)


def _show(made: dict) -> None:
    from rich.console import Console
    from rich.table import Table

    config = made["config"]
    title = f"mean rel-MSE, D={config['dim']}, {config['n_vectors']} vectors, seed {config['seed']}"
    shown = Table(title=title, caption="H: Hadamard first. Bits count every stored byte. Limit: 2^-2R.")
    for name in ("codec", "bits/value", *config["distributions"], "limit"):
        shown.add_column(name, justify="left" if name == "codec" else "right")
    by_codec: dict[tuple, dict] = {}
    for row in made["rows"]:
        key = (row["stored_bits_per_value"], row["codec"], row["bits"], row["group"], row["rotated"])
        by_codec.setdefault(key, {})[row["distribution"]] = row
    for key in sorted(by_codec):
        rows = by_codec[key]
        any_row = next(iter(rows.values()))
        errors = [f"{rows[name]['rel_mse']:.3e}" for name in config["distributions"]]
        shown.add_row(_label(any_row), f"{key[0]:.3f}", *errors, f"{any_row['limit']:.3e}")
    Console().print(shown)


def _label(row: dict) -> str:
    return f"{row['codec']} b{row['bits']} g{row['group']}" + (" H" if row["rotated"] else "")
