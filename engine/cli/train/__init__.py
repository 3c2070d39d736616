"""``kakeya-engine train``: the bundled family, drafters and restorers for any target."""

import click

from engine.cli.lazy import LazyGroup

COMMANDS = {
    "drafter": "engine.cli.train.drafter:drafter",
    "measure": "engine.cli.train.measure:measure",
    "restorer": "engine.cli.train.restorer:restorer",
    "target": "engine.cli.train.target:target",
}


@click.group(cls=LazyGroup, commands_at=COMMANDS)
def train() -> None:
    """Train a drafter or restorer for any target, or retrain the bundled models."""
