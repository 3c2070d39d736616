"""Predicts the most memory that an answer may need."""

from functools import lru_cache
from typing import Any

from engine.cache import make_caches
from engine.cache.kinds import layout_of
from engine.inject import NAME as PACKAGE
from engine.live_bytes import live_bytes
from engine.mx import mx, parameter_bytes
from engine.serve.backend import Options
from engine.serve.prefix_cache.snapshots import flat
from engine.serve.resident import Resident

GRAIN = 256  # tokens by which mlx-lm's caches and the drafter's context grow
WIDTHS = 24  # about how many hidden states a row of a forward pass keeps alive: a bound, not a measurement


def predicted(resident: Resident, options: Options, prompt: int, chunk: int, *, stored: bool = False) -> int:
    """Return the maximum memory in bytes of an answer to ``prompt`` tokens, without the weights.

    If a part of the prompt may be ``stored`` in files, these are held until they are joined.
    """
    tokens, draft = prompt + options.max_tokens + GRAIN, resident.pair.draft
    total = 0
    for kind, most, nbytes in shapes(resident, options.cache, options.boundary):
        if kind == "growing":
            total += nbytes * -(-(tokens + (prompt if stored else 0)) // GRAIN)
        else:
            total += nbytes * -(-min(tokens, most + chunk) // GRAIN) if kind == "ring" else nbytes
    if options.draft == PACKAGE and draft is not None and resident.package is None:
        total += parameter_bytes(draft)
    if draft is not None and options.draft in ("auto", draft.kind, PACKAGE):
        total += draft.config.bytes_a_token * (tokens + GRAIN + (prompt if stored else 0))
    return total + chunk * 4 * (resident.vocabulary + WIDTHS * resident.width)


@lru_cache(maxsize=64)
def shapes(resident: Resident, spec: str, boundary: int) -> list[tuple[str, int, int]]:
    """Return kind, maximum size and bytes per ``GRAIN`` tokens of each cache, without computing anything.

    ``cache_clear`` lets the models be freed.
    """
    caches = make_caches(resident.pair.target, spec, boundary)
    resident.pair.target(mx.zeros((1, GRAIN), mx.int32), cache=caches)
    return [_shape(cache) for cache in flat(caches)]


def _shape(cache: Any) -> tuple[str, int, int]:
    layout = layout_of(cache)
    if layout == "ring" and not cache.empty():
        return "ring", cache.max_size, cache.nbytes * GRAIN // max(1, cache.keys.shape[2])
    return "growing" if layout == "growing" else "states", 0, live_bytes([cache])
