"""What commands that measure speculative decoding share: drafters and rollbacks, and failing where it is wrong."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from engine.cli.measured import carry_out
from engine.cli.types import ListOf

DRAFTERS = ("dflash", "lookup", "adaptive")
ROLLBACKS = ("auto", "late", "trim", "carry")


def options(command: Callable) -> Callable:
    """Add ``--drafters``, ``--rollbacks``, ``--block-size`` and ``--package``."""
    for option in reversed(
        (
            click.option("--drafters", type=ListOf(DRAFTERS), default=",".join(DRAFTERS), show_default=True),
            click.option("--rollbacks", type=ListOf(ROLLBACKS), default="auto", show_default=True),
            click.option(
                "--block-size",
                type=click.IntRange(1, 64),
                help="Rows to verify at once, at most; 1 drafts nothing.",
            ),
            click.option(
                "--package/--no-package", default=True, show_default=True, help="Run the dflash package too."
            ),
        )
    ):
        command = option(command)
    return command


def plan_of(asked: dict[str, Any]) -> Any:
    """Return the :class:`engine.evals.speculation.bench.Plan` that options ask for."""
    from engine.evals.speculation.bench import Plan

    names = ("drafters", "rollbacks", "cache", "max_tokens", "repeats", "package")
    return Plan(block=asked["block_size"], **{name: asked[name] for name in names})


def carry_out_checked(
    ctx: click.Context, job: Any, arms: Sequence[Any], out: Path | None, *, as_json: bool
) -> None:
    """Measure and put the report out; fail where our own loop decoded otherwise than it has to."""
    from engine.cli.bench.show import spec_table
    from engine.evals.speculation.bench import faults

    made = carry_out(job, "decoding", "runs", spec_table, out, as_json=as_json)
    found = faults(made["rows"], arms)
    for fault in found:
        click.echo(f"error: {fault}, and no near tie explains it", err=True)
    if found:
        ctx.exit(1)
