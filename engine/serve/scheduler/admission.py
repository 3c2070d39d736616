"""Admits requests: a request begins once its predicted memory is free within the budget."""

from engine.serve.backend import Job
from engine.serve.errors import ApiError
from engine.serve.prefix_cache.prefix import Prefixes
from engine.serve.scheduler.memory import predicted
from engine.serve.scheduler.residents import Residents
from engine.serve.settings import Settings


class Admission:
    """Accounts for memory: weights, the predicted bytes of answers, and the prefix cache in the rest.

    Args:
        settings: the server's.
        residents: the loaded models.
        prefixes: kept prompts, or None.
    """

    def __init__(self, settings: Settings, residents: Residents, prefixes: Prefixes | None) -> None:
        self._settings, self._residents, self._prefixes = settings, residents, prefixes

    def loads(self, name: str, used_bytes: dict[str, int]) -> bool:
        """Return whether a model may be loaded now. Unloads idle models if that is needed.

        Args:
            name: the model.
            used_bytes: bytes reserved for running answers, by model.

        Raises:
            ApiError: 503, the model itself is larger than the budget.
        """
        budget = self._settings.memory_budget
        needed = self._residents.expected(name) if budget is not None else 0
        if budget is None or not needed:
            return True
        if needed > budget:
            message = f"The model {name} takes {needed >> 20} MB, and the memory budget is {budget >> 20} MB."
            raise ApiError(
                503,
                f"{message} Raise --memory-budget, or choose a smaller model.",
                param="model",
                code="memory_budget",
            )
        return self._room(needed, set(used_bytes), used_bytes)

    def needed(self, job: Job) -> int:
        """Return a job's maximum memory in bytes, without its model; ApiError 400 if the budget can never hold it."""
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
        return needed

    def fits(self, job: Job, needed: int, used_bytes: dict[str, int]) -> bool:
        """Return whether so many bytes are free for a job. Evicts cached prefixes and idle models if needed."""
        if self._settings.memory_budget is None:
            return True
        return self._room(needed, {*used_bytes, job.model}, used_bytes)

    def _room(self, needed: int, busy: set[str], used_bytes: dict[str, int]) -> bool:
        budget = self._settings.memory_budget
        assert budget is not None  # noqa: S101 - asked for with a budget alone
        room = budget - self._residents.nbytes - sum(used_bytes.values()) - needed
        if room < 0:
            if room + self._residents.idle_bytes(busy) < 0:
                return False
            room += self._residents.make_room(-room, busy)
        if self._prefixes is not None:
            self._prefixes.budget = min(self._settings.prefix_cache, room)
            self._prefixes.shrink(self._prefixes.budget)
        return True
