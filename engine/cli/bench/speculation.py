"""Shared code of commands that measure speculative decoding: options, and failing if the tokens are wrong."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from engine.cli.measured import carry_out
from engine.cli.types import ListOf

DRAFTERS = ("dflash", "lookup", "adaptive")
TORCH = "torch"
ROLLBACKS = ("auto", "late", "trim", "carry")
LOOPS = ("lazy", "fused", "two-phase", "eager")


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--drafters``, ``--rollbacks``, ``--loops``, ``--block-size``, ``--package`` and ``--fixed-length``."""
    for option in reversed(
        (
            click.option(
                "--drafters", type=ListOf((*DRAFTERS, TORCH)), default=",".join(DRAFTERS), show_default=True
            ),
            click.option("--rollbacks", type=ListOf(ROLLBACKS), default="auto", show_default=True),
            click.option(
                "--loops",
                type=ListOf(LOOPS),
                default="lazy",
                show_default=True,
                help="How a round runs: lazy and fused wait for the device once, two-phase twice, eager per draft.",
            ),
            click.option(
                "--block-size",
                type=click.IntRange(1, 64),
                help="Maximum tokens verified per pass; 1: no drafts.",
            ),
            click.option(
                "--package/--no-package", default=True, show_default=True, help="Also run the dflash package."
            ),
            click.option(
                "--content-channel",
                is_flag=True,
                help="Chat models: begin answers behind the content channel's mark.",
            ),
            click.option(
                "--torch-device",
                type=click.Choice(["cpu", "mps", "cuda"]),
                help="For the drafter torch.  [default: the best one]",
            ),
            click.option(
                "--fixed-length",
                is_flag=True,
                help="Decode --max-tokens tokens, past the natural end of answers.",
            ),
        )
    ):
        command = option(command)
    return command


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


def carry_out_checked(
    ctx: click.Context, job: Any, arms: Sequence[Any], out: Path | None, *, as_json: bool
) -> None:
    """Measure and write the report; fail if our own loop decoded other tokens than its oracle."""
    from engine.cli.bench.show import spec_table
    from engine.evals.speculation.bench import faults

    report = carry_out(job, "decoding", "runs", spec_table, out, as_json=as_json)
    problems = faults(report["rows"], arms)
    for fault in problems:
        click.echo(f"error: {fault}, and no near tie explains it", err=True)
    if problems:
        ctx.exit(1)
