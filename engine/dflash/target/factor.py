"""The factor by which a target multiplies its embedding rows before its first layer."""

from typing import Any

from engine.dflash.target.embeddings import TargetEmbeddings
from engine.dflash.target.taps import LayerWrapper, find_layers, with_layers
from engine.mx import mx, nn, number

TOKENS = (1, 2, 3, 4)
# Half types round each value by up to 0.4 %.
NEAR = 0.01
DIGITS = 3


class _First(LayerWrapper):
    """Stands for the first layer and keeps its input."""

    received: mx.array | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arrays = (value for value in (*args, *kwargs.values()) if isinstance(value, mx.array))
        self.received = next(arrays, None)
        return self._layer(*args, **kwargs)


def factor_of(target: nn.Module) -> float:
    """Return the target's factor: its attribute if it has one, otherwise computed from its first layer's input.

    Most models with a factor, such as Gemma 2 and 3, have no attribute for it. Returns 1 if the first layer's input is
    not a multiple of the rows.
    """
    embeddings = TargetEmbeddings.of(target)
    if embeddings.embed_scale != 1:
        return embeddings.embed_scale
    tokens = mx.array([TOKENS])
    rows, first_input = embeddings.embed(tokens).astype(mx.float32), _first_input(target, tokens)
    if first_input is None or first_input.shape != rows.shape:
        return 1.0
    first_input = first_input.astype(mx.float32)
    factor = number((first_input * rows).sum() / mx.square(rows).sum())
    beside = number(mx.abs(first_input - factor * rows).max() / mx.abs(first_input).max())
    return round(factor, DIGITS) if beside <= NEAR else 1.0


def _first_input(target: nn.Module, tokens: mx.array) -> mx.array | None:
    path, layers = find_layers(target)
    first = _First(layers[0])
    with_layers(target, path, [first, *layers[1:]])(tokens)  # the rest of the pass is never computed
    return first.received
