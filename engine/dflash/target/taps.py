"""Records the outputs of selected layers of a target, in addition to its logits.

A shallow copy of the model is run: the modules on the path to the list of layers are copied without their
weights, and in the copied list, recorders wrap the selected layers. The model itself never changes. Every
generation has its own copy, so concurrent generations do not see each other's outputs.
"""

import copy
from collections.abc import Sequence
from typing import Any

from engine.cache.protocol import Attended
from engine.errors import BadInput
from engine.mx import mx, nn


class LayerWrapper:
    """Replaces a layer in a copy of a model. All attributes except its own are the layer's."""

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_layer":
            raise AttributeError(name)
        return getattr(self._layer, name)


class Recorder(LayerWrapper):
    """Calls a layer and records its output."""

    _returned: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the layer's result."""
        self._returned = self._layer(*args, **kwargs)
        return self._returned

    def take(self) -> mx.array:
        """Return the last hidden states and forget them, so that their buffers are not kept alive."""
        returned, self._returned = self._returned, None
        return hidden_of(returned)


def hidden_of(returned: Any) -> mx.array:
    """Return the hidden states in a layer's result.

    Layers of some models return more, such as shared keys and values; the hidden states come first.
    """
    while isinstance(returned, tuple):
        returned = returned[0]
    hidden: mx.array = returned
    return hidden


class Tapped:
    """A model whose forward pass also returns the outputs of selected layers.

    Use a ``Tapped`` for one generation at a time; creating one costs nothing.

    Args:
        model: an mlx-lm model, which does not change. Its weights are shared, so later changes to them count here.
        layer_ids: counted from 0, in the order of the returned outputs.

    Raises:
        BadInput: the model's layers are not found, or one of the ids is not among them.
    """

    def __init__(self, model: nn.Module, layer_ids: tuple[int, ...] | list[int]) -> None:
        path, layers = find_layers(model)
        beyond = [i for i in layer_ids if not 0 <= i < len(layers)]
        if beyond or not layer_ids:
            raise BadInput(
                f"the model has layers 0 to {len(layers) - 1}, requested are {list(layer_ids)}",
                "take a drafter that was made for this target",
            )
        recorders = {i: Recorder(layers[i]) for i in set(layer_ids)}
        self._order = [recorders[i] for i in layer_ids]
        self._model = with_layers(model, path, [recorders.get(i, layer) for i, layer in enumerate(layers)])

    def forward(self, tokens: mx.array, cache: Sequence[Attended] | None = None) -> tuple[mx.array, mx.array]:
        """Return logits and taps of tokens ``[batch, length]``, neither computed yet; the target's caches advance.

        These are logits ``[batch, length, vocabulary]`` and the chosen layers' outputs side by side ``[batch, length,
        chosen * hidden]``, before the final norm. What of the logits is not read is not computed.
        """
        logits = self._model(tokens, cache=cache)
        outputs = {id(recorder): recorder.take() for recorder in set(self._order)}
        taps = [outputs[id(recorder)] for recorder in self._order]
        return logits, taps[0] if len(taps) == 1 else mx.concatenate(taps, axis=-1)


def find_layers(model: nn.Module) -> tuple[tuple[str, ...], list[nn.Module]]:
    """Return the attribute names that lead to a model's list of layers (the list's own name last), and the list.

    Raises:
        BadInput: the model has no list of layers, or it cannot be found.
    """
    layers = getattr(model, "layers", None)
    if isinstance(model, nn.Module) and layers:
        waiting: list[tuple[tuple[str, ...], nn.Module]] = [((), model)]
        for path, module in waiting:  # breadth first: the list grows during the loop
            for name, value in module.items():
                if isinstance(value, list) and len(value) == len(layers):
                    if all(a is b for a, b in zip(value, layers, strict=True)):
                        return (*path, name), value
                elif isinstance(value, nn.Module):
                    waiting.append(((*path, name), value))
    raise BadInput(
        f"the layers of {type(model).__module__}.{type(model).__name__} are not found",
        "a language model of mlx-lm, all of its layers on this machine",
    )


def with_layers(module: nn.Module, path: tuple[str, ...], layers: list[Any]) -> nn.Module:
    """Return a copy of a module with another list at ``path``; only the modules along the path are copied."""
    copied = copy.copy(module)
    name, *rest = path
    copied[name] = with_layers(module[name], tuple(rest), layers) if rest else layers
    return copied
