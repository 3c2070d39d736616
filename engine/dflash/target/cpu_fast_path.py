"""Makes a target faster on a CPU: a copy with the same results, except for rounding; and layers that begin early.

MLX computes lazily, and the host evaluates a round's outcome only after the whole graph was built. For a small model on
a CPU, building takes a tenth of a round or more, while the device waits. So each layer's output is evaluated as soon as
its graph is built. The results do not change. This is not done on a GPU: there, command buffers are submitted while the
graph is built anyway, and no further gain was measured.
"""

from typing import Any

from engine.dflash.target.rotary import with_tables
from engine.dflash.target.small_gemm import with_products
from engine.dflash.target.taps import LayerWrapper, find_layers, hidden_of, with_layers
from engine.errors import BadInput
from engine.mx import mx, nn, on_cpu

# For passes over more rows than this, such as a prompt's, the time to build the graph is negligible.
ROWS = 64


def quick_copy(target: nn.Module) -> nn.Module:
    """Return a copy with rotary tables and this machine's products over few rows; on a GPU the target itself.

    Use the copy for one generation only, see ``engine.dflash.target.rotary.with_tables``.
    """
    return with_products(with_tables(target))


class EarlyEval(LayerWrapper):
    """Calls a layer, and lets the device start to compute it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the layer's result, and start computing it."""
        returned = self._layer(*args, **kwargs)
        hidden = hidden_of(returned)
        if hidden.shape[-2] <= ROWS:
            mx.async_eval(hidden)
        return returned


def with_early_eval(model: nn.Module) -> nn.Module:
    """Return a model with the same weights and results whose layers are computed as soon as their graph is built.

    On a GPU, or if the layers are not found, return the model itself. The model never changes.
    """
    if not on_cpu():
        return model
    try:
        path, layers = find_layers(model)
    except BadInput:
        return model
    # The last layer is evaluated together with the results that depend on it.
    return with_layers(model, path, [*map(EarlyEval, layers[:-1]), layers[-1]])
