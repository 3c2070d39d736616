"""Lets mlx-lm's models attend over packed caches.

The models call ``scaled_dot_product_attention``, which each model's module has imported from
``mlx_lm.models.base``. That name is replaced in the module: packed keys go to ``engine.attention.packed``,
everything else to mlx-lm's function as before. So a routed model runs other caches unchanged.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from engine.attention import ragged
from engine.attention.packed import attend
from engine.attention.views import PackedView
from engine.lm import base
from engine.mx import mx, nn

NAME = "scaled_dot_product_attention"
_stock = base.scaled_dot_product_attention
_routed: set[ModuleType] = set()


def scaled_dot_product_attention(
    queries: mx.array,
    keys: Any,
    values: Any,
    cache: Any,
    scale: float,
    mask: mx.array | str | ragged.PerSequence | None,
    sinks: mx.array | None = None,
) -> mx.array:
    """Compute attention over arrays as mlx-lm does, and over a ``PackedView`` tile by tile."""
    if isinstance(keys, ragged.PerSequence):
        assert mask is None or isinstance(mask, ragged.PerSequence)  # noqa: S101 - the cache makes both
        own = scaled_dot_product_attention
        return ragged.attend(own, queries, keys, values, cache, mask, scale=scale, sinks=sinks)
    assert not isinstance(mask, ragged.PerSequence)  # noqa: S101 - likewise
    if isinstance(keys, PackedView) and isinstance(values, PackedView):
        return attend(queries, keys, values, scale=scale, mask=mask, sinks=sinks)
    keys, values = (x.dense() if isinstance(x, PackedView) else x for x in (keys, values))
    output: mx.array = _stock(queries, keys, values, cache=cache, scale=scale, mask=mask, sinks=sinks)
    return output


def route(layer: nn.Module) -> bool:
    """Route the attention of one layer; return whether that is possible.

    It is not if the layer computes its scores itself (Gemma 2), or caches something other than keys and values
    (multi-head latent attention). Such a layer gets decoded arrays.
    """
    attentions = [
        module for _, module in layer.named_modules() if "attention" in type(module).__name__.lower()
    ]
    if any(hasattr(module, "kv_lora_rank") for module in attentions):
        return False
    homes = {sys.modules[type(module).__module__] for module in attentions}
    return bool(homes) and all(_route_module(home) for home in homes)


@contextmanager
def without_routing() -> Iterator[None]:
    """Restore mlx-lm's own attention temporarily, so that a baseline runs the installed code."""
    for home in _routed:
        setattr(home, NAME, _stock)
    try:
        yield
    finally:
        for home in _routed:
            setattr(home, NAME, scaled_dot_product_attention)


def _route_module(home: ModuleType) -> bool:
    bound = getattr(home, NAME, None)
    if bound is _stock:
        setattr(home, NAME, scaled_dot_product_attention)
        _routed.add(home)
    return bound in (_stock, scaled_dot_product_attention)


def patched_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names that were replaced for a model, sorted: ``mlx_lm.models.llama.scaled_...``."""
    homes = {type(module).__module__ for _, module in model.named_modules()}
    return tuple(
        f"{home}.{NAME}"
        for home in sorted(homes)
        if getattr(sys.modules.get(home), NAME, None) is scaled_dot_product_attention
    )
