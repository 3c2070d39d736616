"""``kakeya-engine train``: the bundled family, drafters and restorers for any target."""

import click

from bridge.common.lazy import LazyGroup

COMMANDS = {
    "drafter": "Train a DFlash drafter for any target that mlx-lm loads; after ^C, run again to continue.",
    "measure": "Measure a model of the bundled family: held-out loss, recall, accepted drafts.",
    "restorer": "Train a restorer for any target that mlx-lm loads; after ^C, run again to continue.",
    "target": "Train a target of the bundled family on this machine's Python sources; after ^C, run again to continue.",
}


@click.group(cls=LazyGroup, package=__name__, table=COMMANDS)
def command() -> None:
    """Train a drafter or restorer for any target, or retrain the bundled models."""
