"""``kakeya-engine bench``: measurements of speed, arms taking turns."""

import click

from bridge.common.cli.commands import LazyGroup

COMMANDS = {
    "all-reduce": "Time sums over all ranks of a cluster.",
    "distributed": "Compare decoding on a cluster with one host.",
    "native": "Time mlx-lm's own generation: the baseline for other reports.",
    "spec": "Compare speculative decoding with mlx-lm's own generation.",
    "torch-parity": "Compare the backends over MLX and torch: tokens, codes, bytes, KL, speed and memory.",
    "verify-l": "Time a forward pass over L new tokens after a cached context.",
}


@click.group(cls=LazyGroup, package=__name__, table=COMMANDS)
def command() -> None:
    """Measure decoding speed, compared with mlx-lm."""
