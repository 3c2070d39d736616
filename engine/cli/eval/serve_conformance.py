"""``kakeya-engine eval serve-conformance``."""

from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import option
from bridge.common.cli.progress import progress
from engine.cli import options
from engine.cli.reporting import put_out, show_tables
from engine.cli.types import CACHE_SPEC, numbers


@click.command(name="serve-conformance")
@options.model
@options.draft
@option(
    "--cache", CACHE_SPEC, "all",
    help="Packed cache beside raw ones: e8v@4.25, affine@4g64, ...; all stands for these two, raw for none.",
)  # fmt: skip
@option("--clients", numbers(1, 8), "1,4", help="Clients at once.")
@option("--max-tokens", click.IntRange(24, 1 << 12), 32, help="Maximum tokens per answer.")
@options.out_and_json
def command(
    *, model: str, draft: str | None, dtype: str | None, out: Path | None, as_json: bool, **settings: Any
) -> None:
    """Ask the server in every combination of drafts, caches, kept prompts, clients and grammars.

    Each answer is compared with that of a single client without drafts and kept prompts. The report holds the digest
    of each answer's tokens, where two answers part and how near the two tokens are, and counters that show which
    features ran.
    """
    from engine.cache.spec import parse
    from engine.errors import BadInput
    from engine.evals import serve_conformance as conformance

    caches: tuple[str, ...] = conformance.CACHES
    if settings["cache"] != "all":
        spec = parse(settings["cache"])
        if not spec.packs:
            message = f"{spec.text} packs nothing, so it is not smaller than raw"
            raise BadInput(message, "take e8v@... or affine@...")
        caches = tuple(dict.fromkeys(("raw", spec.text)))
    clients = tuple(dict.fromkeys(settings["clients"]))
    matrix = conformance.Matrix(caches=caches, clients=clients, max_tokens=settings["max_tokens"])
    with progress("asking", "cells") as (on_start, on_cell):
        report = conformance.measured(model, draft, dtype, matrix, settings["cache"], on_start, on_cell)
    put_out(report, out, show_tables, as_json=as_json)
