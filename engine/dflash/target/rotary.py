"""Rotary position embeddings from tables: the same values, without computing angles in every layer and round.

On a GPU, MLX's embedding is one kernel. On a CPU, it is fifteen small operations, a tenth of a small model's time
for a token. So a target runs there as a copy that reads tables. (Compiled operations would save a little more, but
MLX compiles for a CPU with the C++ compiler, and the first answer would have to wait for many seconds.)
"""

from collections.abc import Callable
from typing import Any

from engine.dflash.config import DraftConfig
from engine.dflash.target.clones import as_kind, with_replaced
from engine.lm import rope_utils
from engine.mx import mx, nn, on_cpu

PAGE = 1024  # positions for which a table is computed at a time


def rotate(x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
    """Return ``x`` with the halves of its last axis rotated, by rows of a table that broadcast to ``x``."""
    half = x.shape[-1] // 2
    return x * cos + mx.concatenate([x[..., half:], x[..., :half]], axis=-1) * sin


class Rotations:
    """Cosines and sines of positions, from any kind of rotary embedding.

    ``rope`` rotates halves, from ``[1, 1, rows, dim]`` and an ``offset``; all of a head's ``dim`` values are rotated.
    """

    def __init__(self, rope: Callable[..., mx.array], dim: int) -> None:
        self.rope = rope
        self.unit = mx.array([1.0] * (dim // 2) + [0.0] * (dim // 2))
        self.page = (0, 0, self.unit, self.unit)  # first position, positions, cosines, sines
        self.last = (0, 0, self.unit, self.unit)  # likewise, of the last request: every layer repeats it

    @classmethod
    def of(cls, config: DraftConfig) -> "Rotations":
        """Return the rotations of a drafter's configuration."""
        rope = rope_utils.initialize_rope(
            config.head_dim,
            base=config.rope_theta,
            traditional=False,
            scaling_config=config.rope_scaling,
            max_position_embeddings=config.max_position_embeddings,
        )
        return cls(rope, config.head_dim)

    def at(self, start: int, rows: int) -> tuple[mx.array, mx.array]:
        """Return cosines and sines, ``[rows, dim]`` each, of the positions from ``start``.

        In the form for ``rotate``: the same values for both halves, but with negative sines in the first half.
        """
        if self.last[:2] == (start, rows):
            return self.last[2:]
        first, size, cos, sin = self.page
        if not first <= start <= start + rows <= first + size:
            first, size = start, max(rows, PAGE)
            # Rotating (1, 0) gives (cos, sin), whatever scaling the embedding applies.
            unit = mx.broadcast_to(self.unit, (1, 1, size, self.unit.size))
            turned, half = self.rope(unit, offset=first)[0, 0], self.unit.size // 2
            cos = mx.concatenate([turned[:, :half], turned[:, :half]], axis=-1)
            sin = mx.concatenate([-turned[:, half:], turned[:, half:]], axis=-1)
            self.page = (first, size, cos, sin)
        rows_wanted = slice(start - first, start - first + rows)
        self.last = (start, rows, cos[rows_wanted], sin[rows_wanted])
        return self.last[2:]


class TableRope(nn.RoPE):
    """MLX's embedding, with a table that all layers of the same kind share."""

    def __call__(self, x: mx.array, offset: Any = 0) -> mx.array:
        """See ``mlx.nn.RoPE``; whatever the table lacks is computed as there."""
        if not isinstance(offset, int) or x.dtype != mx.float32 or x.shape[-1] != self.dims:
            rotated: mx.array = super().__call__(x, offset)
            return rotated
        return rotate(x, *self.table.at(offset, x.shape[-2]))


def with_tables(model: nn.Module) -> nn.Module:
    """Return a model with the same weights and bit-identical outputs; on a GPU the model itself.

    The given model does not change. Use the result for one generation only: in MLX, no other thread can finish the
    tables in it.
    """
    if not on_cpu():
        return model
    tables: dict[tuple[Any, ...], Rotations] = {}

    def replace(module: nn.Module) -> nn.Module:
        if type(module) is not nn.RoPE or module.traditional:
            return module
        wrapped = as_kind(module, TableRope)
        key = (module.dims, module.base, module.scale)
        wrapped.table = tables.setdefault(key, Rotations(module, module.dims))
        return wrapped

    replaced: nn.Module = with_replaced(model, replace)
    return replaced
