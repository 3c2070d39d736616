"""Lets the device begin a forward pass while the host still builds the rest of it.

MLX computes what it is asked for, and the host asks for a round's outcome once the whole pass is built. For a small
model on a CPU building takes a tenth of a round or more, in which the device waits. So each layer's output is asked for
as soon as it is built. What is computed stays the same.

A GPU is left alone: there its buffers of commands are handed over while a pass is built anyway, and nothing more was
measured.
"""

from typing import Any

from engine.dflash.target.taps import find_layers, hidden_of, with_layers
from engine.errors import BadInput
from engine.mx import mx, nn

# Passes over more rows, such as those of a prompt, take far longer than they take to build.
ROWS = 64


class Starter:
    """Wraps a layer: calls it, and lets the device begin. All other attributes are the layer's."""

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the layer's result, and start computing it."""
        returned = self._layer(*args, **kwargs)
        hidden = hidden_of(returned)
        if hidden.shape[-2] <= ROWS:
            mx.async_eval(hidden)
        return returned

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_layer":
            raise AttributeError(name)
        return getattr(self._layer, name)


def with_starts(model: nn.Module) -> nn.Module:
    """Return a model of the same figures and weights whose layers are computed as soon as they are built.

    On a GPU, and where the layers are not found, it is the model itself, which is left as it is in any case.
    """
    if not starts_pay():
        return model
    try:
        path, layers = find_layers(model)
    except BadInput:
        return model
    # The last one is evaluated together with the results that depend on it.
    return with_layers(model, path, [*map(Starter, layers[:-1]), layers[-1]])


def starts_pay() -> bool:
    """Return whether :func:``with_starts`` changes anything on this device."""
    return mx.default_device().type == mx.cpu
