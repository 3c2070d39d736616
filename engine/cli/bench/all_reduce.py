"""``kakeya-engine bench all-reduce``."""

from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import option
from engine.cli import on_cluster, options
from engine.cli.reporting import put_out, show_tables
from engine.cli.types import numbers


@click.command(name="all-reduce")
@on_cluster.required
@option(
    "--sizes", numbers(4, 1 << 30), "4096,65536,1048576,16777216", help="Bytes of the arrays, multiples of 4."
)
@option("--repeats", click.IntRange(1, 1000), 20, help="Sums of each size.")
@options.out_and_json
def command(*, out: Path | None, as_json: bool, **settings: Any) -> None:
    """Time sums over all ranks of a cluster: a model that is split by layers waits for two a layer."""
    from engine.cluster import hosts, state
    from engine.evals import distributed

    cluster = hosts.choose(settings["cluster"], settings["backend"])
    clocks = state.Clocks.of(settings["token_timeout"], settings["load_timeout"])
    sizes = list(dict.fromkeys(size // 4 * 4 for size in settings["sizes"]))
    report = distributed.all_reduce(cluster, sizes, settings["repeats"], clocks)
    put_out(report, out, show_tables, as_json=as_json)
