"""What an answer will take at most, told before anything of it is computed."""

from functools import lru_cache
from typing import Any

from engine.cache import make_caches
from engine.lm import cache as lm_cache
from engine.mx import mx
from engine.serve.job import Options
from engine.serve.models import Resident
from engine.serve.snapshots import GROWING, flat

GRAIN = 256  # tokens by which mlx-lm's caches and the drafter's context grow
WIDTHS = 24  # hidden states that a row of a forward keeps alive, by and large: a bound, not a measurement


def predicted(resident: Resident, options: Options, prompt: int, chunk: int) -> int:
    """Return the bytes that an answer takes at most, beside the weights.

    Args:
        resident: its model.
        options: how it is decoded.
        prompt: the tokens of its prompt.
        chunk: the most tokens of it that run at once.
    """
    tokens = prompt + options.max_tokens + GRAIN
    total = 0
    for kind, most, nbytes in _shapes(resident, options.cache, options.boundary):
        if kind == "growing":
            total += nbytes * -(-tokens // GRAIN)
        else:
            total += nbytes * -(-min(tokens, most + chunk) // GRAIN) if kind == "ring" else nbytes
    if options.draft in ("auto", "dflash") and resident.pair.draft is not None:
        config = resident.pair.draft.config
        row = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4
        total += row * (tokens + GRAIN)
    return total + chunk * 4 * (resident.vocabulary + WIDTHS * resident.width)


@lru_cache(maxsize=64)
def _shapes(resident: Resident, spec: str, boundary: int) -> list[tuple[str, int, int]]:
    """Return kind, largest size and bytes for :data:`GRAIN` tokens of each cache; nothing is computed for it."""
    caches = make_caches(resident.pair.target, spec, boundary)
    resident.pair.target(mx.zeros((1, GRAIN), mx.int32), cache=caches)
    return [_shape(cache) for cache in flat(caches)]


def forget_shapes() -> None:
    """Forget what was found out about models, so that they can be freed."""
    _shapes.cache_clear()


def _shape(cache: Any) -> tuple[str, int, int]:
    if type(cache) in GROWING:
        return "growing", 0, cache.nbytes
    if isinstance(cache, lm_cache.RotatingKVCache):
        tokens = cache.keys.shape[2]
        return "ring", cache.max_size, cache.nbytes * GRAIN // max(1, tokens)
    return "states", 0, cache.nbytes
