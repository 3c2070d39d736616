"""``kakeya-engine bench``: measurements of speed, arms taking turns."""

import click

from bridge.common.cli.commands import LazyGroup

COMMANDS = {
    "all-reduce": "Time sums over all ranks of a cluster: a model that is split by layers waits for two a layer.",
    "distributed": "Decode on one host and on a cluster: equal tokens, the speed of both, and the memory of each rank.",
    "native": "Time mlx-lm's own generation: the baseline for other reports.",
    "spec": "Compare speculative decoding with mlx-lm's own generation.",
    "torch-parity": "Compare the backends over MLX and torch on one model: tokens, codes, bytes, KL, speed and memory.",
    "verify-l": "Time a forward pass over L new tokens after a cached context.",
}


@click.group(cls=LazyGroup, package=__name__, table=COMMANDS)
def command() -> None:
    """Measure decoding speed, compared with mlx-lm."""
