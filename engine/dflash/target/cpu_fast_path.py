"""What makes a target quicker on a CPU: a copy that computes the same, but for rounding, and layers that begin early.

MLX computes what it is asked for, and the host asks for a round's outcome once the whole pass is built. For a small
model on a CPU building takes a tenth of a round or more, in which the device waits. So each layer's output is asked for
as soon as it is built. What is computed stays the same. A GPU is left alone: there its buffers of commands are handed
over while a pass is built anyway, and nothing more was measured.
"""

from typing import Any

from engine.dflash.target.rotary import with_tables
from engine.dflash.target.small_gemm import with_products
from engine.dflash.target.taps import LayerWrapper, find_layers, hidden_of, with_layers
from engine.errors import BadInput
from engine.mx import mx, nn, on_cpu

# Passes over more rows, such as those of a prompt, take far longer than they take to build.
ROWS = 64


def quick_copy(target: nn.Module) -> nn.Module:
    """Return a copy with rotary tables and this machine's products over few rows; on a GPU the target itself.

    It is for one generation, see :func:``engine.dflash.target.rotary.with_tables``.
    """
    return with_products(with_tables(target))


class EarlyEval(LayerWrapper):
    """Calls a layer, and lets the device begin."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the layer's result, and start computing it."""
        returned = self._layer(*args, **kwargs)
        hidden = hidden_of(returned)
        if hidden.shape[-2] <= ROWS:
            mx.async_eval(hidden)
        return returned


def with_early_eval(model: nn.Module) -> nn.Module:
    """Return a model of the same figures and weights whose layers are computed as soon as they are built.

    On a GPU, and where the layers are not found, it is the model itself, which is left as it is in any case.
    """
    if not on_cpu():
        return model
    try:
        path, layers = find_layers(model)
    except BadInput:
        return model
    # The last one is evaluated together with the results that depend on it.
    return with_layers(model, path, [*map(EarlyEval, layers[:-1]), layers[-1]])
