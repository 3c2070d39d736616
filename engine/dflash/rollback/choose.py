"""Which rollback a cache gets; and rollback by trimming."""

from typing import Any

from engine.cache.kinds import CLASSES, Layout, layout_of
from engine.cache.protocol import Cache
from engine.cache.roundtrip import KakeyaLatticeMLXCache
from engine.cache.wrapping import map_nested
from engine.dflash.rollback.carry import Carry, Carrying
from engine.dflash.rollback.late import LateGrowing, LateRing
from engine.dflash.rollback.recurrent import Recompute
from engine.dflash.rollback.rollback import CacheRollback, Rollback, check_growth
from engine.errors import BadInput, RollbackError
from engine.lm import cache as lm_cache
from engine.mx import mx, nn

KINDS = ("auto", "late", "trim", "carry")


class Trim:
    """Roll back a growing cache by its own ``trim``.

    Sound where the entries of a forward lie behind all others, and reading stops at ``offset``. A ring is
    not such a cache: once it wraps, the forward has overwritten what trimming would have to bring back.
    """

    name = "trim"

    def __init__(self, cache: Any) -> None:
        self.stand_in = cache
        self._before = 0

    def begin(self) -> None:
        """Record the length."""
        self._before = self.stand_in.offset

    def check(self, rows: int, keep: int) -> None:  # noqa: ARG002
        """See that the forward added ``rows`` entries (RollbackError)."""
        check_growth(self.stand_in, self._before, rows)

    def commit(self, rows: int, keep: int) -> None:
        """Drop the last ``rows - kept`` entries.

        Raises:
            RollbackError: fewer were dropped than asked for; the cache is then not to be used any more.
        """
        if keep < rows:
            self._drop(rows - keep)

    def abandon(self) -> None:
        """Drop the rows that the forward pass added, if it added any."""
        if self.stand_in.offset != self._before:
            self._drop(self.stand_in.offset - self._before)

    def _drop(self, count: int) -> None:
        length = self.stand_in.offset
        dropped = self.stand_in.trim(count)
        if dropped != count or self.stand_in.offset != length - count:
            raise RollbackError(
                f"{type(self.stand_in).__name__} dropped {dropped} of {count} tokens "
                f"and holds {self.stand_in.offset} of {length}"
            )


def rollback_for(caches: list[Cache], kind: str = "auto", model: nn.Module | None = None) -> Rollback:
    """Return a rollback over the caches of one generation, of batch 1, on which ``model`` will run.

    ``auto`` is trimming for growing caches, late commit for rings, and recomputation for recurrent states; ``late``
    commits late to growing caches too, except mlx-lm's quantized ones; ``trim`` does nothing else; ``carry`` takes
    snapshots, and runs what a partly rejected block kept again at the head of the next. A model whose recurrent layers
    cannot run again by themselves, because they write keys and values too, gets ``carry`` instead of ``auto`` or
    ``late``.

    Raises:
        BadInput: there is no such kind, a cache's class is unknown, or the kind cannot roll a cache back.
    """
    if kind not in KINDS:
        raise BadInput(f"no rollback {kind!r}", ", ".join(KINDS))
    cache_rollbacks: list[CacheRollback] = []

    def stand_in(cache: Any) -> Any:
        cache_rollbacks.append(_cache_rollback(cache, kind))
        return cache_rollbacks[-1].stand_in

    stand_ins = [map_nested(cache, stand_in) for cache in caches]
    recurrent = any(isinstance(part, Recompute) for part in cache_rollbacks)
    if recurrent and model is not None and not _recomputes(model):
        return rollback_for(caches, "carry")
    make: type[Rollback] = Carrying if kind == "carry" else Rollback
    return make(cache_rollbacks, caches, stand_ins)


def _recomputes(model: nn.Module) -> bool:
    """Try, without computing anything, whether a model's recurrent layers provide the inputs for recomputation."""
    caches = lm_cache.make_prompt_cache(model)
    trial = rollback_for(caches)
    trial.forward(trial.prepare(model), mx.zeros((1, 2), mx.int32))
    try:
        trial.commit(1)
    except RollbackError:
        return False
    return True


def _cache_rollback(cache: Any, kind: str) -> CacheRollback:
    inner = cache.inner if isinstance(cache, KakeyaLatticeMLXCache) else cache
    layout = layout_of(inner)
    _check(inner, layout, kind)
    if kind == "carry":
        return Carry(cache, inner)
    if layout == "ring":
        return LateRing(inner, cache)
    if layout == "states":
        return Recompute(inner)
    return LateGrowing(inner, cache) if kind == "late" and CLASSES[type(inner)].joins else Trim(cache)


def _check(inner: Any, layout: Layout, kind: str) -> None:
    """Refuse a cache that a kind of rollback cannot take back."""
    if layout == "unknown":
        raise BadInput(
            f"no rollback is known for a {type(inner).__name__}",
            "mlx-lm's own loop needs none: kakeya-engine bench native",
        )
    if kind == "carry":
        if getattr(inner, "keep", 0):
            raise BadInput(
                f"rollback {kind} cannot serve a ring that keeps its first {inner.keep} tokens: "
                "mlx-lm hides them from all rows of a forward but the first",
                "take rollback late",
            )
    elif layout == "ring":
        if kind == "trim":
            raise BadInput(
                f"a {type(inner).__name__} cannot be trimmed: once it wraps, the tokens it would need are gone",
                "take rollback late",
            )
        if inner.keep >= inner.max_size:
            raise BadInput(
                f"a ring of {inner.max_size} tokens that keeps the first {inner.keep} has no room",
                "make a larger ring, or let it keep fewer",
            )
    elif layout == "states":
        if kind == "trim":
            raise BadInput("a recurrent state cannot be trimmed", "take rollback auto")
        if inner.lengths is not None or inner.left_padding is not None:
            raise BadInput("recurrent states of a padded batch cannot be taken back", "decode one sequence")
