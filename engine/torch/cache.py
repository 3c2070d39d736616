"""KV caches for transformers that store packed codes.

Transformers' dynamic layers only move tokens along one axis (growing, windows, cropping, choosing rows of a batch) and
never read them. So each layer here is transformers' own with rows of bytes as tokens.
"""

from typing import Any

import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from bridge.reports.cache_spec import CacheSpec
from engine.errors import BadInput
from engine.live_bytes import live_bytes
from engine.torch.codecs import Coder, rows_of, sides_of
from engine.torch.view import PackedView

DEFAULT = "e8v@4.25"
RAW = "raw"


class _Packed(DynamicLayer):
    """What the packed layers share: rows, uint8 ``[batch, heads, tokens, bytes]``, in ``keys`` and ``values``."""

    sides: tuple[CacheSpec, CacheSpec]
    coders: tuple[Coder, Coder]
    dims: tuple[int, int]

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Choose the codecs for the head sizes of the first vectors."""
        super().lazy_initialization(key_states, value_states)
        self.dims = key_states.shape[-1], value_states.shape[-1]
        keys, values = (
            Coder(rows_of(side, dim), key_states.dtype)
            for side, dim in zip(self.sides, self.dims, strict=True)
        )
        self.coders = keys, values
        self.keys = self.values = torch.empty(0, dtype=torch.uint8, device=self.device)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Append keys and values ``[batch, heads, tokens, dim]``; return views of all that attention reads."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        stored = super().update(*self._encoded(key_states, value_states), *args, **kwargs)
        sides = zip(stored, self.coders, self.dims, strict=True)
        return tuple(PackedView(rows, coder, dim) for rows, coder, dim in sides)

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last tokens, and release their memory."""
        super().crop(tokens_to_remove)
        if self.is_initialized and self.get_seq_length():
            self.keys, self.values = self.keys.clone(), self.values.clone()

    def _encoded(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        of_keys, of_values = self.coders
        if self.sides[0] == self.sides[1] and keys.shape == values.shape:
            # One call takes half the time of two if there are few tokens.
            first, second = of_keys.encode(torch.stack([keys, values]))
            return first, second
        return of_keys.encode(keys), of_values.encode(values)


class PackedLayer(_Packed):
    """A growing layer."""

    def __init__(self, sides: tuple[CacheSpec, CacheSpec]) -> None:
        super().__init__()
        self.sides = sides


class PackedSlidingLayer(_Packed, DynamicSlidingWindowLayer):
    """A layer that keeps the last tokens only."""

    def __init__(self, sliding_window: int, sides: tuple[CacheSpec, CacheSpec]) -> None:
        DynamicSlidingWindowLayer.__init__(self, sliding_window)
        self.sides = sides


def kakeya_cache(model: Any, spec: str = DEFAULT, boundary: int = 0) -> Cache:
    """Return a cache for one call of ``model.generate(..., cache=...)``, or for one sequence of forward passes.

    Args:
        model: a causal language model of transformers.
        spec: see ``bridge.reports.cache_spec``. Layers that keep no keys and values, such as state-space layers, stay
            the model's own.
        boundary: how many of the first and of the last key-value layers stay raw.

    Raises:
        BadInput: no such spec, a format of MLX's, a negative boundary, a model with an encoder, or head sizes that the
            codec does not have.
    """
    if boundary < 0:
        raise BadInput(f"boundary is {boundary}", "the number of layers left raw at either end, 0 or more")
    if getattr(model.config, "is_encoder_decoder", False):
        raise BadInput("this model has an encoder", "take a causal language model")
    cache = DynamicCache(config=model.config)
    sides = sides_of(spec)
    if {side.family for side in sides} == {RAW}:
        return cache
    _check(model.config.get_text_config(decoder=True), sides)
    holders = [
        i for i, layer in enumerate(cache.layers) if type(layer) in (DynamicLayer, DynamicSlidingWindowLayer)
    ]
    for i in holders[boundary : len(holders) - boundary]:
        window = getattr(cache.layers[i], "sliding_window", None)
        cache.layers[i] = PackedLayer(sides) if window is None else PackedSlidingLayer(window, sides)
    return cache


def cache_bytes(cache: Cache) -> int:
    """Return the bytes of the arrays in a cache, counted as for MLX's caches."""
    return live_bytes(cache.layers)


def packed_layers(cache: Cache) -> int:
    """Return how many of a cache's layers store codes."""
    return sum(isinstance(layer, _Packed) for layer in cache.layers)


def _check(config: Any, sides: tuple[CacheSpec, CacheSpec]) -> None:
    """Refuse head sizes that the codec does not have, as far as the configuration names them."""
    dim: Any = getattr(config, "head_dim", None)
    if dim is None and hasattr(config, "num_attention_heads"):
        dim = config.hidden_size // config.num_attention_heads
    for side in sides if isinstance(dim, int) else ():
        rows_of(side, dim)
