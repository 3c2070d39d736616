"""Shared by the training commands: options, the run, and the resulting files."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.common.cli.commands import FOLDER, REFERENCE, option, options
from bridge.common.cli.progress import Bounded
from bridge.common.whole_files import atomic_write

if TYPE_CHECKING:
    from engine.train.run import Trainer


for_a_target = options(
    option("--target name", REFERENCE, required=True, help="Bundled name, folder or hub id of the target."),
    option("--out", FOLDER, required=True, help="Output folder for checkpoints, log and model."),
    option(
        "--text", click.Path(exists=True, path_type=Path), multiple=True,
        help="Files or folders with training text.  [default: this machine's Python sources]",
    ),
    option("--steps", click.IntRange(1, 1_000_000), 800, help="Training steps."),
)  # fmt: skip
seed = option("--seed", click.IntRange(0, 2**31 - 1), 0, help="Seed of the random numbers.")


def carry_out(
    run: "Trainer[Any]", folder: Path, save: Callable[[Path], None], described: dict[str, Any]
) -> None:
    """Train to the end, and let ``save`` write the result to a folder. ``training.json`` is written beside it.

    ``described`` is what that file contains in addition to the plan.
    """
    run_to_the_end(run)
    save(folder)
    write_description(folder, {"plan": asdict(run.plan), **described})


def run_to_the_end(run: "Trainer[Any]", **schedule: int) -> None:
    """Train, and print the progress on standard error. ``schedule`` has options of ``Trainer.run``."""
    if run.step:
        click.echo(f"going on from step {run.step}", err=True)
    steps, show = run.plan.steps, Bounded(_show)
    run.run(lambda line: show(line, steps, last=line["step"] == steps), **schedule)


def _show(line: dict[str, Any], steps: int) -> None:
    step, minutes = line["step"], (steps - line["step"]) * line["s_per_step"] / 60
    figures = [f"{name.replace('_', ' ')} {value:.4g}" for name, value in line.items() if name != "step"]
    click.echo(f"step {step} of {steps}  {'  '.join(figures)}  {minutes:.0f} min left", err=True)


def write_description(folder: Path, described: dict[str, Any]) -> None:
    """Write ``training.json`` beside a trained model, and print the model's folder."""
    with atomic_write(folder / "training.json") as part:
        part.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    click.echo(folder)
