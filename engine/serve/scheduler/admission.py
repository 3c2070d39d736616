"""Admits requests: a request begins once the budget has room for the most memory that its answer may need."""

from functools import lru_cache
from typing import Any

from engine.cache import make_caches
from engine.cache.kinds import layout_of
from engine.inject import NAME as PACKAGE
from engine.live_bytes import live_bytes
from engine.mx import mx, parameter_bytes
from engine.serve.backend import Job, Options
from engine.serve.errors import ApiError
from engine.serve.prefix_cache.prefix import Prefixes
from engine.serve.prefix_cache.snapshots import flat
from engine.serve.resident import Resident
from engine.serve.scheduler.residents import Residents
from engine.serve.settings import Settings

GRAIN = 256  # tokens by which mlx-lm's caches and the drafter's context grow
WIDTHS = 24  # about how many hidden states a row of a forward pass keeps alive: a bound, not a measurement


class Admission:
    """Accounts for the memory of weights and answers (by prediction); the prefix cache may use the rest."""

    def __init__(self, settings: Settings, residents: Residents, prefixes: Prefixes | None) -> None:
        self._settings, self._residents, self._prefixes = settings, residents, prefixes

    def loads(self, name: str, used_bytes: dict[str, int]) -> bool:
        """Return whether a model may be loaded now. Unloads idle models if that is needed.

        ``used_bytes`` are reserved for running answers, by model. ApiError 503 if the model is larger than the budget.
        """
        if not self._residents.make_place(name, used_bytes):
            return False
        budget = self._settings.memory_budget
        if budget is None or not (needed := self._residents.expected(name)):
            return True
        if needed > budget:
            message = (
                f"The model {name} takes {needed >> 20} MB, and the memory budget is {budget >> 20} MB. "
                "Raise --memory-budget, or choose a smaller model."
            )
            raise ApiError(503, message, param="model", code="memory_budget")
        return self._room(needed, {*used_bytes}, used_bytes)

    def reserve(self, job: Job, used_bytes: dict[str, int]) -> int | None:
        """Return a job's maximum memory in bytes, without its model; None if that is not free yet.

        Evicts cached prefixes and idle models if needed. ApiError 400 if the budget can never hold it.
        """
        budget = self._settings.memory_budget
        if budget is None:
            return 0
        resident = self._residents.get(job.model)
        stored = self._settings.prefix_store is not None and job.options.prefix
        needed = predicted(resident, job.options, len(job.ids), self._settings.prefill_chunk, stored=stored)
        room = budget - resident.nbytes
        if needed > room:
            message = (
                f"The answer may take {needed >> 20} MB, and {max(0, room) >> 20} MB are left beside the weights. "
                "Ask for fewer tokens or a packed cache."
            )
            raise ApiError(400, message, param="max_tokens", code="memory_budget")
        return needed if self._room(needed, {*used_bytes, job.model}, used_bytes) else None

    def _room(self, needed: int, busy: set[str], used_bytes: dict[str, int]) -> bool:
        budget = self._settings.memory_budget
        assert budget is not None  # noqa: S101 - called with a budget alone
        room = budget - self._residents.nbytes - sum(used_bytes.values()) - needed
        if room < 0:
            if room + self._residents.idle_bytes(busy) < 0:
                return False
            room += self._residents.make_room(-room, busy)
        if self._prefixes is not None:
            self._prefixes.budget = min(self._settings.prefix_cache, room)
            self._prefixes.shrink(self._prefixes.budget)
        return True


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
    if options.draft in ("auto", "dflash", PACKAGE) and draft is not None:
        config = draft.config
        row = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4
        total += row * (tokens + GRAIN + (prompt if stored else 0))
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
