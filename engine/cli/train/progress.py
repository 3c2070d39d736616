"""One line of figures at a time, on stderr."""

from typing import Any

import click


def say(line: dict[str, Any], steps: int, seconds_a_step: float) -> None:
    """Print where a run stands: ``line`` has ``step`` and the figures to show."""
    left = (steps - line["step"]) * seconds_a_step
    figures = [f"{name.replace('_', ' ')} {value:.4g}" for name, value in line.items() if name != "step"]
    click.echo(f"step {line['step']} of {steps}  {'  '.join(figures)}  {left / 60:.0f} min left", err=True)
