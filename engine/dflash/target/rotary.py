"""Rotary position embeddings from tables: the same figures, without computing angles in every layer and round.

On a GPU MLX's embedding is one kernel. On a CPU it is fifteen small operations, a tenth of the time that a small
model takes for a token: there a target runs as a copy that reads tables. (Compiling them would save a little more;
but MLX compiles for a CPU with its C++ compiler, which a first answer would wait for by many seconds.)
"""

from collections.abc import Callable
from typing import Any

from engine.dflash.config import DraftConfig
from engine.dflash.target.clones import as_kind, with_replaced
from engine.lm import rope_utils
from engine.mx import mx, nn, on_cpu

PAGE = 1024  # positions of which a table is made at a time


def rotate(x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
    """Return ``x`` with its last axis' halves rotated, by a table's rows that broadcast to it."""
    half = x.shape[-1] // 2
    return x * cos + mx.concatenate([x[..., half:], x[..., :half]], axis=-1) * sin


class Rotations:
    """Cosines and sines of positions, whatever kind of rotary embedding they come from.

    ``rope`` rotates halves, from ``[1, 1, rows, dim]`` and an ``offset``; all of a head's ``dim`` values are rotated.
    """

    def __init__(self, rope: Callable[..., mx.array], dim: int) -> None:
        self.rope = rope
        self.unit = mx.array([1.0] * (dim // 2) + [0.0] * (dim // 2))
        self.page = (0, 0, self.unit, self.unit)  # first position, positions, cosines, sines
        self.last = (0, 0, self.unit, self.unit)  # likewise, of what was asked for last: every layer asks

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
        """Return cosines and sines, ``[rows, dim]`` each, of the positions from ``start``.

        They are what :func:``rotate`` takes: the same for both halves, but the first half's sines are negative.
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
    """MLX's embedding, from a table that all layers of its kind share."""

    def __call__(self, x: mx.array, offset: Any = 0) -> mx.array:
        """See :class:``mlx.nn.RoPE``; whatever the table lacks is computed as there."""
        if not isinstance(offset, int) or x.dtype != mx.float32 or x.shape[-1] != self.dims:
            rotated: mx.array = super().__call__(x, offset)
            return rotated
        return rotate(x, *self.table.at(offset, x.shape[-2]))


def with_tables(model: nn.Module) -> nn.Module:
    """Return a model of the same figures, bit for bit, and the same weights; on a GPU the model itself.

    The model itself is left as it is. What is returned is for one generation: tables are kept in it that another
    thread must not finish.
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
