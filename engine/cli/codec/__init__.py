"""``kakeya-engine codec``: the error of the KV codecs."""

import click

from bridge.common.cli.commands import LazyGroup

COMMANDS = {
    "rd": "Print the rate-distortion table of the codecs, on seeded data or on a model's keys and values.",
}


@click.group(cls=LazyGroup, package=__name__, table=COMMANDS)
def command() -> None:
    """Measure the KV codecs."""
