"""Rotary position embeddings from tables: the same figures, without computing angles in every layer and round."""

from collections.abc import Callable

from engine.dflash.config import DraftConfig
from engine.lm import rope_utils
from engine.mx import mx

PAGE = 1024  # positions of which a table is made at a time


def rotate(x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
    """Return ``x`` with its last axis' halves rotated by angles that broadcast to a half."""
    left, right = mx.split(x, 2, axis=-1)
    return mx.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


class Rotations:
    """Cosines and sines of positions, whatever kind of rotary embedding they come from.

    Args:
        rope: mlx-lm's or MLX's embedding of halves, from ``[1, 1, rows, dim]`` and an ``offset``.
        dim: of a head, all of it rotated.
    """

    def __init__(self, rope: Callable[..., mx.array], dim: int) -> None:
        self.rope = rope
        self.unit = mx.array([1.0] * (dim // 2) + [0.0] * (dim // 2))
        self.page = (0, 0, self.unit, self.unit)  # first position, positions, cosines, sines

    @classmethod
    def of(cls, config: DraftConfig) -> "Rotations":
        """Return those of a drafter's configuration."""
        rope = rope_utils.initialize_rope(
            config.head_dim,
            base=config.rope_theta,
            traditional=False,
            scaling_config=config.rope_scaling,
            max_position_embeddings=config.max_position_embeddings,
        )
        return cls(rope, config.head_dim)

    def at(self, start: int, rows: int) -> tuple[mx.array, mx.array]:
        """Return cosines and sines, ``[rows, dim / 2]`` each, of the positions from ``start``."""
        first, size, cos, sin = self.page
        if not first <= start <= start + rows <= first + size:
            first, size = start, max(rows, PAGE)
            # Rotating (1, 0) gives (cos, sin), whatever scaling the embedding applies.
            unit = mx.broadcast_to(self.unit, (1, 1, size, self.unit.size))
            cos, sin = mx.split(self.rope(unit, offset=first)[0, 0], 2, axis=-1)
            self.page = (first, size, cos, sin)
        return cos[start - first : start - first + rows], sin[start - first : start - first + rows]
