"""A target's small operations compiled together, for CPUs: the same figures in less time.

On a CPU each operation costs microseconds beside its arithmetic, and MLX computes a norm as eight of them, a
rotary embedding as fifteen with all its angles anew in every layer. On a GPU both are one kernel, and nothing is
replaced. Nor is anything in the model itself: what is changed is a copy that shares its weights.
"""

from functools import partial
from typing import Any

from engine.dflash.rotary import Rotations, rotate
from engine.lm import gemma3_text
from engine.mx import mx, nn


def compiled(model: nn.Module) -> nn.Module:
    """Return a model of the same figures, bit for bit in float32, and the same weights; on a GPU the model itself.

    It is for one generation: tables are kept that another thread must not finish.
    """
    if not pays():
        return model
    tables: dict[tuple[Any, ...], Rotations] = {}
    return _copy(model, tables)


def pays() -> bool:
    """Return whether anything is replaced on this device."""
    return mx.default_device().type == mx.cpu


class Norm(nn.RMSNorm):
    """MLX's norm."""

    def __call__(self, x: mx.array) -> mx.array:
        """See :class:`mlx.nn.RMSNorm`."""
        return _norm(x, self.weight, self.eps)


class ShiftedNorm(gemma3_text.RMSNorm):
    """Gemma's norm, whose stored weight is what it adds to 1."""

    def __call__(self, x: mx.array) -> mx.array:
        """See :class:`mlx_lm.models.gemma3_text.RMSNorm`."""
        return _shifted_norm(x, self.weight, self.eps)


class Rope(nn.RoPE):
    """MLX's rotary embedding of halves, from a table that all layers of its kind share."""

    def __call__(self, x: mx.array, offset: Any = 0) -> mx.array:
        """See :class:`mlx.nn.RoPE`; what a table cannot give is computed as there."""
        if not isinstance(offset, int) or x.dtype != mx.float32 or x.shape[-1] != self.dims:
            return super().__call__(x, offset)
        return _rotate(x, *self.table.at(offset, x.shape[-2]))


@partial(mx.compile, shapeless=True)
def _norm(x: mx.array, weight: mx.array, eps: float) -> mx.array:
    return mx.fast.rms_norm(x, weight, eps)


@partial(mx.compile, shapeless=True)
def _shifted_norm(x: mx.array, weight: mx.array, eps: float) -> mx.array:
    return mx.fast.rms_norm(x, 1.0 + weight, eps)


_rotate = mx.compile(rotate)
_KINDS = {nn.RMSNorm: Norm, gemma3_text.RMSNorm: ShiftedNorm}


def _copy(value: Any, tables: dict[tuple[Any, ...], Rotations]) -> Any:
    """Return a module, or a list of modules, with everything in it replaced; itself where nothing is."""
    if isinstance(value, list):
        made = [_copy(item, tables) for item in value]
        return made if any(a is not b for a, b in zip(made, value, strict=True)) else value
    if not isinstance(value, nn.Module):
        return value
    if type(value) is nn.RoPE and not value.traditional:
        made = _shallow(value, Rope)
        kind = (value.dims, value.base, value.scale)
        made.table = tables.setdefault(kind, Rotations(value, value.dims))
        return made
    if type(value) in _KINDS:
        return _shallow(value, _KINDS[type(value)])
    inner = {name: _copy(item, tables) for name, item in value.items()}
    changed = {name: item for name, item in inner.items() if item is not value[name]}
    if not changed:
        return value
    made = _shallow(value, type(value))
    dict.update(made, changed)
    return made


def _shallow(module: nn.Module, kind: type[nn.Module]) -> Any:
    made = kind.__new__(kind)
    dict.update(made, module)
    made.__dict__.update(module.__dict__)
    return made
