"""Predicts the maximum memory of an answer before it is computed."""

from functools import lru_cache
from typing import Any

from engine.cache import make_caches
from engine.cache.kinds import layout_of
from engine.checkpoints import files, hub
from engine.dflash.step import live_bytes
from engine.inject import NAME as PACKAGE
from engine.models import registry
from engine.models.target import chosen_dtype
from engine.mx import mx
from engine.serve.backend import Options
from engine.serve.models import Resident, tree_bytes
from engine.serve.prefix_cache.snapshots import flat
from engine.serve.settings import drafter_of

GRAIN = 256  # tokens by which mlx-lm's caches and the drafter's context grow
WIDTHS = 24  # hidden states that a row of a forward keeps alive, by and large: a bound, not a measurement


def expected_weights(name: str, draft: str, dtype: str | None) -> int:
    """Return the size of a model's weights in memory, each kept once, in bytes, from the headers of its files.

    Args:
        name: a name, a folder or a hub id.
        draft: see :func:``engine.serve.models.load_resident``.
        dtype: the type to load it in, or None.

    Raises:
        BadInput: it is not there, or not whole.
    """
    chosen = chosen_dtype(dtype)
    folders = [hub.folder_of(reference) for _, _, reference in registry.find(name, drafter_of(draft)).parts()]
    return sum(files.loaded_bytes(folder, chosen.size if chosen else None) for folder in folders)


def predicted(resident: Resident, options: Options, prompt: int, chunk: int, *, stored: bool = False) -> int:
    """Return the maximum memory of an answer in bytes, without the weights.

    Args:
        resident: its model.
        options: how it is decoded.
        prompt: number of prompt tokens.
        chunk: maximum prompt tokens per forward pass.
        stored: whether a part of the prompt may come from files, which are held until they are joined.
    """
    tokens = prompt + options.max_tokens + GRAIN
    total = 0
    for kind, most, nbytes in _shapes(resident, options.cache, options.boundary):
        if kind == "growing":
            total += nbytes * -(-(tokens + (prompt if stored else 0)) // GRAIN)
        else:
            total += nbytes * -(-min(tokens, most + chunk) // GRAIN) if kind == "ring" else nbytes
    if options.draft == PACKAGE and resident.drafted and not resident.has_package:
        total += tree_bytes(resident.pair.draft)
    if options.draft in ("auto", "dflash", PACKAGE) and resident.pair.draft is not None:
        config = resident.pair.draft.config
        row = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4
        total += row * (tokens + GRAIN + (prompt if stored else 0))
    return total + chunk * 4 * (resident.vocabulary + WIDTHS * resident.width)


@lru_cache(maxsize=64)
def _shapes(resident: Resident, spec: str, boundary: int) -> list[tuple[str, int, int]]:
    """Return kind, maximum size and bytes per :data:``GRAIN`` tokens of each cache, without computing anything."""
    caches = make_caches(resident.pair.target, spec, boundary)
    resident.pair.target(mx.zeros((1, GRAIN), mx.int32), cache=caches)
    return [_shape(cache) for cache in flat(caches)]


def forget_shapes() -> None:
    """Clear the cached facts about models, so that the models can be freed."""
    _shapes.cache_clear()


def _shape(cache: Any) -> tuple[str, int, int]:
    layout = layout_of(cache)
    if layout == "growing":
        return "growing", 0, live_bytes([cache])
    if layout == "ring" and not cache.empty():
        tokens = cache.keys.shape[2]
        return "ring", cache.max_size, cache.nbytes * GRAIN // max(1, tokens)
    return "states", 0, live_bytes([cache])
