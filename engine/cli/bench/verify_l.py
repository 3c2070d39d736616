"""``kakeya-engine bench verify-l``: the cost of verifying L tokens."""

import json
from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import option
from bridge.common.cli.progress import progress
from engine.cli import options as shared
from engine.cli.reporting import choose_threads, show_tables, tell_left_out
from engine.cli.types import CACHE_SPECS, numbers


@click.command("verify-l")
@shared.model
@option("--lengths", numbers(1, 64), "1,2,4,6,8,12,16", help="New tokens of a pass.")
@option("--contexts", numbers(1, 1 << 20), "128,1024", help="Cached tokens before a pass.")
@option("--caches", CACHE_SPECS, "raw", help="Cache specs, separated by commas.")
@option("--repeats", click.IntRange(1, 1000), 10, help="Passes of each length and cache.")
@shared.threads
@shared.out_and_json
def command(*, out: Path | None, as_json: bool, **options: Any) -> None:
    """Time a forward pass over L new tokens after a cached context.

    The cost relative to one token says how many drafts must be accepted for speculation to be faster. Lengths
    and caches are interleaved. Each cache has a report of its own: with several caches, --json prints one report
    per line, and the cache's name is inserted before the suffix of --out.
    An interrupted run with --out resumes where it stopped.
    """
    from engine.cache.spec import parse
    from engine.dflash.target.context import check_context
    from engine.evals.recall import try_caches
    from engine.evals.verify_cost import Sweep, job
    from engine.harness import report
    from engine.harness.job import run_all
    from engine.models import load

    specs = tuple(dict.fromkeys(parse(spec).text for spec in options["caches"]))
    pair = load(options["model"], draft=False, dtype=options["dtype"])
    _, left_out = try_caches(pair.target, specs, 0)
    tell_left_out(left_out)
    lengths, contexts = options["lengths"], options["contexts"]
    check_context(pair.target, pair.name, max(contexts) + max(lengths))
    threads = choose_threads(pair, options["threads"], out)
    remaining = tuple(spec for spec in specs if spec not in left_out)
    sweep = Sweep(lengths, contexts, remaining, options["repeats"], left_out)
    with progress("verifying", "passes") as (on_start, on_pass):
        measured, journal = run_all(job(pair, sweep, threads), out, on_start, on_pass)
    several = len(measured) > 1
    for spec, result in measured.items():
        if out:
            path = out.with_name(f"{out.stem}-{spec}{out.suffix}") if several else out
            report.write(path, result)
            click.echo(f"wrote {path}", err=True)
        if as_json:
            click.echo(json.dumps(result, allow_nan=False, indent=None if several else 2))
    journal.close()
    if not as_json:
        for result in measured.values():
            show_tables(result)
