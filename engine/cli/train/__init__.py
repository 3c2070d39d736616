"""``kakeya-engine train``: drafters and restorers for any target."""

import click

from bridge.common.cli.commands import LazyGroup

COMMANDS = {
    "drafter": "Train a DFlash drafter for any target that mlx-lm loads; after ^C, run again to continue.",
    "head": "Train an EAGLE-3 head for any target that mlx-lm loads; after ^C, run again to continue.",
    "restorer": "Train a restorer for any target that mlx-lm loads; after ^C, run again to continue.",
}


@click.group(cls=LazyGroup, package=__name__, table=COMMANDS)
def command() -> None:
    """Train a drafter or restorer for any target."""
