"""The models that the earlier programs listed: their shapes, and the channels that they offered first.

The shapes are those of the models' own configurations. They stand here so that a model can be shown that is not on this
machine.
"""

from dataclasses import dataclass

from engine.checkpoints.published import FOUR_BIT, four_bit_name
from engine.models.catalogue import ADVANCED, DEFAULT, LONG

LABELS = {DEFAULT: "near-lossless", LONG: "balanced", ADVANCED: "aggressive"}  # of their channels


@dataclass(frozen=True)
class Shape:
    """The keys and values of a model."""

    layers: int  # in all
    dims: tuple[int, ...] = (128,)  # sizes of a head
    counts: tuple[int, ...] = ()  # for each size, the layers that keep such heads; empty: all


@dataclass(frozen=True)
class Listed:
    """A model in the earlier programs' lists, with full or 4-bit weights."""

    name: str  # of the full weights
    shape: Shape
    default: str = LONG  # the cache of requests that name no channel
    mlx_default: str | None = None  # the same of the program for MLX, if it differs


_FULL = (
    Listed("qwen3-4b", Shape(36)),
    Listed("qwen3-8b", Shape(36), DEFAULT),
    Listed("qwen3.5-4b", Shape(32, (256,), (8,))),
    Listed("qwen2-1.5b", Shape(28), DEFAULT),
    Listed("llama-3.2-3b-instruct", Shape(28)),
    Listed("llama-3.1-8b-instruct", Shape(32)),
    Listed("mistral-7b-instruct-v0.3", Shape(32), mlx_default=DEFAULT),
    Listed("gemma-4-e4b", Shape(42, (256, 512), (20, 4))),
    Listed("deepseek-r1-distill-qwen-1.5b", Shape(28), DEFAULT),
    Listed("deepseek-r1-distill-qwen-7b", Shape(28)),
    Listed("glm-4-9b-chat", Shape(40)),
)
LISTED = {row.name: row for row in _FULL}
LISTED |= {four_bit_name(row.name): row for row in _FULL if row.name in FOUR_BIT}


def names(*, mlx: bool) -> tuple[str, ...]:
    """Return the names of the models that a program lists. Only MLX can load 4-bit weights."""
    return tuple(LISTED) if mlx else tuple(row.name for row in _FULL)
