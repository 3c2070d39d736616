"""``kakeya-engine bench``: measurements of speed, arms taking turns."""

import click

from engine.cli.lazy import LazyGroup

COMMANDS = {
    "native": "engine.cli.bench.native:native",
    "spec": "engine.cli.bench.spec:spec",
    "verify-l": "engine.cli.bench.verify_l:verify_l",
}


@click.group(cls=LazyGroup, commands_at=COMMANDS)
def bench() -> None:
    """Measure decoding speed, compared with mlx-lm."""
