"""``kakeya-engine codec``: what the KV codecs do to vectors."""

import click

from engine.cli.lazy import LazyGroup

COMMANDS = {
    "decode": "engine.cli.codec.decode:decode",
    "encode": "engine.cli.codec.encode:encode",
    "info": "engine.cli.codec.info:info",
    "rd": "engine.cli.codec.rd:rd",
}


@click.group(cls=LazyGroup, commands_at=COMMANDS)
def codec() -> None:
    """Measure and use the KV codecs."""
