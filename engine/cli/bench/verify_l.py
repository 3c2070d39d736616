"""``kakeya-engine bench verify-l``: the cost of verifying L tokens."""

import json
from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import option
from bridge.common.cli.progress import progress
from engine.cli import options as shared
from engine.cli.types import CacheSpecs, Numbers


@click.command("verify-l")
@shared.model
@option("--lengths", Numbers(1, 64), "1,2,4,6,8,12,16")
@option("--contexts", Numbers(1, 1 << 20), "128,1024")
@option("--caches", CacheSpecs(), "raw", help="Cache specs, separated by commas.")
@option("--repeats", click.IntRange(1, 1000), 10)
@shared.threads
@shared.out_and_json
def command(*, out: Path | None, as_json: bool, **options: Any) -> None:
    """Time a forward pass over L new tokens after a cached context.

    The cost relative to one token says how many drafts must be accepted for speculation to be faster. Lengths
    and caches are interleaved. Each cache has a report of its own: with several caches, --json prints one report
    per line, and the cache's name is inserted before the suffix of --out.
    An interrupted run with --out resumes where it stopped.
    """
    from engine.measure import report

    measured, journal = _measured(options, out)
    for spec, result in measured.items():
        if out:
            path = out if len(measured) == 1 else out.with_name(f"{out.stem}-{spec}{out.suffix}")
            report.write(path, result)
            click.echo(f"wrote {path}", err=True)
        if as_json:
            click.echo(json.dumps(result, allow_nan=False, indent=2 if len(measured) == 1 else None))
    journal.close()
    if not as_json:
        from engine.cli.bench.show import verify_table

        verify_table(measured)


def _measured(options: dict[str, Any], out: Path | None) -> tuple[dict[str, dict[str, Any]], Any]:
    from engine.cache.spec import parse
    from engine.cli.measured import choose_threads, tell_left_out
    from engine.dflash.target.context import check_context
    from engine.evals.recall import usable
    from engine.evals.verify_cost import Sweep, reports
    from engine.models import load

    specs = tuple(dict.fromkeys(parse(spec).text for spec in options["caches"]))
    pair = load(options["model"], draft=False, dtype=options["dtype"])
    _, left_out = usable(pair.target, specs, 0)
    tell_left_out(left_out)
    remaining = tuple(spec for spec in specs if spec not in left_out)
    longest = max(options["contexts"]) + max(options["lengths"])
    check_context(pair.target, pair.name, longest)
    lengths, contexts = (tuple(dict.fromkeys(options[name])) for name in ("lengths", "contexts"))
    chosen = choose_threads(pair, options["threads"], out)
    sweep = Sweep(lengths, contexts, remaining, options["repeats"], left_out, chosen)
    with progress("verifying", "passes") as (on_start, on_run):
        return reports(pair, sweep, out, on_start, on_run)
