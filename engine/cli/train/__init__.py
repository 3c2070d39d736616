"""``kakeya-engine train``: the bundled family, and drafters for any target."""

import click

from engine.cli.lazy import LazyGroup

COMMANDS = {
    "drafter": "engine.cli.train.drafter:drafter",
    "measure": "engine.cli.train.measure:measure",
    "target": "engine.cli.train.target:target",
}


@click.group(cls=LazyGroup, commands_at=COMMANDS)
def train() -> None:
    """Train a drafter for any target, or the bundled family anew."""
