"""The command line ``python -m training``."""

import click

from bridge.common.cli.commands import LazyGroup

COMMANDS = {
    "measure": "Measure a model of the bundled family: held-out loss, recall, accepted drafts.",
    "overlap": "Count what the text of a drafter shares with HumanEval.",
    "prompts": "Write prompts of code and chat that a model answers, to train its drafter on.",
    "target": "Train a target of the bundled family on this machine's Python sources; after ^C, run again to continue.",
}


@click.group(cls=LazyGroup, package=__name__, table=COMMANDS)
def cli() -> None:
    """Train and measure the bundled models. Needs torch."""
