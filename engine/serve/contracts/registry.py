"""The models that the earlier programs listed: their shapes, and the channels that they offered first.

The shapes are those of the models' own configurations. They stand here so that a model that is not on this machine can
be shown; once it is, its folder counts.
"""

from dataclasses import dataclass

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
    """A model of their lists."""

    shape: Shape
    default: str = LONG  # the cache of requests that name no channel
    mlx_default: str | None = None  # the same of the program for MLX, if it differs


LISTED = {
    "qwen3-4b": Listed(Shape(36)),
    "qwen3-8b": Listed(Shape(36), DEFAULT),
    "qwen3.5-4b": Listed(Shape(32, (256,), (8,))),
    "qwen2-1.5b": Listed(Shape(28), DEFAULT),
    "llama-3.2-3b-instruct": Listed(Shape(28)),
    "llama-3.1-8b-instruct": Listed(Shape(32)),
    "mistral-7b-instruct-v0.3": Listed(Shape(32), mlx_default=DEFAULT),
    "gemma-4-e4b": Listed(Shape(42, (256, 512), (20, 4))),
    "deepseek-r1-distill-qwen-1.5b": Listed(Shape(28), DEFAULT),
    "deepseek-r1-distill-qwen-7b": Listed(Shape(28)),
    "glm-4-9b-chat": Listed(Shape(40)),
}
