"""Admits requests: a request begins once the budget has room for the most memory that its answer may need."""

from engine.serve.backend import Job
from engine.serve.errors import ApiError
from engine.serve.settings import Settings
from engine.serve.turns.kit import Kit
from engine.serve.turns.residents import Residents


class Admission:
    """Accounts for the memory of weights and answers (by prediction); what the kit keeps may use the rest."""

    def __init__(self, settings: Settings, residents: Residents, kit: Kit) -> None:
        self._settings, self._residents, self._kit = settings, residents, kit

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
        needed = self._kit.predicted(resident, job.options, len(job.ids))
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
        self._kit.room(room)
        return True
