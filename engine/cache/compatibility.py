"""Checks whether a model can run over caches of a spec. Nothing is computed: MLX checks shapes when it queues work."""

from typing import Any

from bridge.reports.cache_spec import CacheSpec
from engine.cache.packed import PackedMixin
from engine.cache.protocol import Cache
from engine.cache.roundtrip import KakeyaLatticeMLXCache
from engine.cache.wrapping import flat
from engine.codec.kinds import make_codec
from engine.errors import EngineError
from engine.lm import cache as lm_cache
from engine.mx import mx, nn

WORD = 32  # bits of the words that affine codes are packed into
ROWS = (2, 1)  # a block, then a single token: some models treat them differently


def refusal(model: nn.Module, caches: list[Cache], spec: CacheSpec) -> str | None:
    """Return why a model cannot run over fresh caches of a spec, in one line; None if it can.

    Do not use the caches afterwards.
    """
    raw = lm_cache.make_prompt_cache(model)
    if _error(model, raw):
        return None  # it runs over no caches at all; an actual run reports why
    for counterpart, cache in zip(flat(raw), flat(caches), strict=True):
        if getattr(counterpart, "keys", None) is None:
            continue
        for x, side in zip((counterpart.keys, counterpart.values), spec.sides, strict=True):
            if reason := _misfit(cache, x.shape[-1], side):
                return reason
    # The published codec's work depends on head sizes alone.
    return None if spec.family == "classic" else _error(model, caches)


def _error(model: nn.Module, caches: list[Cache]) -> str | None:
    for cache in flat(caches):
        if isinstance(cache, PackedMixin):
            cache.blank = True  # because even queuing the search for codes takes long
    try:
        for rows in ROWS:
            model(mx.zeros((1, rows), mx.int32), cache=caches)
    except TypeError:
        return "its attention takes keys and values as plain arrays only"
    except Exception as error:  # noqa: BLE001 - whatever a model or MLX raises over these caches
        return " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return None


def _misfit(cache: Any, dim: int, side: CacheSpec) -> str | None:
    """Return why a cache cannot hold vectors of ``dim`` values; None if it can, or stores vectors unchanged."""
    if isinstance(cache, PackedMixin | KakeyaLatticeMLXCache):
        try:
            make_codec(side, dim)
        except EngineError as error:
            return error.message
    if not isinstance(cache, lm_cache.QuantizedKVCache):
        return None
    bits, group = int(side.fields["bits"]), int(side.fields["group"])
    if dim == 0 or dim % group:
        return f"it stores vectors of {dim} values, which groups of {group} do not divide"
    reserved, packed = dim // (WORD // bits), dim * bits // WORD
    if reserved != packed:  # mlx-lm counts whole codes in a word, but MLX packs codes across words
        return (
            f"it stores vectors of {dim} values, for which mlx-lm reserves {reserved} words at {bits} bits and MLX "
            f"needs {packed}"
        )
    return None
