"""Prints progress lines on standard error, at a limited rate without a terminal."""

from collections.abc import Callable
from typing import Any

import click

from bridge.common.cli.progress import Bounded


def sayer(steps: int) -> Callable[[dict[str, Any], float], None]:
    """Return a function that prints the progress of a run from its figures and the seconds per step."""
    bounded = Bounded(_say)
    return lambda line, seconds: bounded(line, steps, seconds, last=line["step"] == steps)


def _say(line: dict[str, Any], steps: int, seconds_a_step: float) -> None:
    """Print the progress: ``line`` has ``step`` and the figures to show."""
    remaining = (steps - line["step"]) * seconds_a_step
    figures = [f"{name.replace('_', ' ')} {value:.4g}" for name, value in line.items() if name != "step"]
    click.echo(
        f"step {line['step']} of {steps}  {'  '.join(figures)}  {remaining / 60:.0f} min left", err=True
    )
