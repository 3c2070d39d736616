"""Shared code of commands that measure speculative decoding: options, and failing if the tokens are wrong."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import flag, option, options
from engine.cli.measured import carry_out, choose_threads
from engine.cli.options import fixed_length
from engine.cli.types import ListOf

DRAFTERS = ("dflash", "lookup", "adaptive")
TORCH = "torch"
ROLLBACKS = ("auto", "late", "trim", "carry")
LOOPS = ("lazy", "fused", "two-phase", "eager")


speculative = options(
    option("--drafters", ListOf((*DRAFTERS, TORCH)), ",".join(DRAFTERS)),
    option("--rollbacks", ListOf(ROLLBACKS), "auto"),
    option(
        "--loops", ListOf(LOOPS), "lazy",
        help="How a round runs: lazy and fused wait for the device once, two-phase twice, eager per draft.",
    ),
    option("--block-size", click.IntRange(1, 64), help="Maximum tokens verified per pass; 1: no drafts."),
    option("--package/--no-package", bool, True, help="Also run the dflash package."),
    flag("--content-channel", "Chat models: begin answers behind the content channel's mark."),
    option(
        "--torch-device", click.Choice(["cpu", "mps", "cuda"]),
        help="For the drafter torch.  [default: the best one]",
    ),
    fixed_length,
)  # fmt: skip


def plan_of(options: dict[str, Any]) -> Any:
    """Return the :class:``engine.evals.speculation.bench.SpeculationPlan`` that options ask for."""
    from engine.evals.speculation.bench import RESCALED, SpeculationPlan

    if options.get("embed_scale") == "both":
        options = {**options, "drafters": (*options["drafters"], RESCALED)}
    names = (
        *("drafters", "rollbacks", "loops", "cache", "max_tokens", "repeats", "max_repeats", "package"),
        *("fixed_length", "content_channel", "torch_device"),
    )
    return SpeculationPlan(block=options["block_size"], **{name: options[name] for name in names})


def compare(
    ctx: click.Context, pair: Any, workloads: Sequence[Any], options: dict[str, Any], *,
    chat: bool, out: Path | None, as_json: bool, **kind: str,
) -> None:  # fmt: skip
    """Measure and write the report; fail if our own loop decoded other tokens than its oracle."""
    from engine.cli.bench.show import spec_table
    from engine.evals.speculation.bench import acceptance_warning, faults
    from engine.evals.speculation.job import speculation

    threads = choose_threads(pair, options["threads"], out)
    job, arms = speculation(pair, workloads, plan_of(options), chat=chat, threads=threads, **kind)
    report = carry_out(job, "decoding", "runs", spec_table, out, as_json=as_json)
    if warning := acceptance_warning(report["rows"]):
        click.echo(f"warning: {warning}", err=True)
    problems = faults(report["rows"], arms)
    for fault in problems:
        click.echo(f"error: {fault}, and no near tie explains it", err=True)
    if problems:
        ctx.exit(1)
