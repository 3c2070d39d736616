"""The engine over MLX, with the thread's interface."""

import logging
from typing import Any, cast

from engine.dflash.propose.answers import Answers
from engine.errors import BadInput
from engine.mx import mx
from engine.serve.backend import Job, Memory, Options
from engine.serve.metrics import Metrics
from engine.serve.prefix_cache.prefix import Prefixes
from engine.serve.prefix_cache.store import Store
from engine.serve.resident import Resident, expected_weights, load_resident
from engine.serve.scheduler.generation import Generation
from engine.serve.scheduler.prediction import predicted, shapes
from engine.serve.settings import Settings
from engine.serve.turns.kit import Answer, LoadedModel

log = logging.getLogger("engine.serve")


class MlxKit:
    """Models of mlx-lm, answers with drafts, and the prefix cache."""

    name = "mlx"

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self.store: Store | None = None
        self.prefixes: Prefixes | None = None
        if settings.prefix_store:
            self.store = Store(settings.prefix_store, settings.prefix_store_bytes, metrics.stored)
        if settings.prefix_cache or self.store is not None:
            self.prefixes = Prefixes(settings.prefix_cache, settings.prefill_chunk, self.store)

    def prepare(self) -> None:
        """Set MLX's device and its limit of memory."""
        if self._settings.device is not None:
            mx.set_default_device(getattr(mx, device_of(self._settings.device)))
        if self._settings.memory_budget is not None:
            mx.set_memory_limit(self._settings.memory_budget)  # above this size, MLX releases free buffers

    def load(self, name: str) -> LoadedModel:
        """Load a model with its drafter. Under a memory budget, weights are not copied for speed."""
        once = self._settings.memory_budget is not None
        resident = load_resident(name, self._settings.draft, self._settings.dtype, once=once)
        resident.answers = Answers(self._settings.recent_answers)
        return resident

    def expected(self, name: str) -> int:
        """Return the bytes that a model's weights will take, its drafter's among them."""
        return expected_weights(name, self._settings.draft, self._settings.dtype)

    def runs(self, model: LoadedModel) -> bool:
        """Return whether a model can still run a token."""
        logits = cast("Resident", model).pair.target(mx.zeros((1, 1), mx.int32))
        return bool(mx.isfinite(logits).all().item())

    def unloaded(self, name: str) -> None:
        """Forget a model's prefixes and shapes, and free MLX's buffers."""
        shapes.cache_clear()
        if self.prefixes is not None:
            self.prefixes.forget(name)
        mx.clear_cache()

    def predicted(self, model: LoadedModel, options: Options, prompt: int) -> int:
        """Return the maximum memory in bytes of an answer, without the weights."""
        stored = self._settings.prefix_store is not None and options.prefix
        resident = cast("Resident", model)
        return predicted(resident, options, prompt, self._settings.prefill_chunk, stored=stored)

    def begin(self, job: Job, model: LoadedModel) -> Answer:
        """Begin an answer."""
        return Generation(job, cast("Resident", model), self._settings.prefill_chunk, self.prefixes)

    def room(self, nbytes: int) -> None:
        """Let the prefix cache take at most this many bytes."""
        if self.prefixes is not None:
            self.prefixes.budget = min(self._settings.prefix_cache, nbytes)
            self.prefixes.shrink(self.prefixes.budget)

    def count(self, answer: Answer) -> None:
        """Record a complete answer in the metrics."""
        self._metrics.count(answer)

    def memory(self) -> Memory:
        """Return the memory of prefixes and of MLX."""
        active, peak = int(mx.get_active_memory()), int(mx.get_peak_memory())
        return Memory(
            prefixes=self.prefixes.nbytes if self.prefixes else 0,
            device={"mlx_active_bytes": active, "mlx_peak_bytes": peak},
        )

    def stats(self) -> dict[str, Any]:
        """Return the statistics of prefixes."""
        return {
            "prefixes": self.prefixes.stats() if self.prefixes else None,
            "prefix_store": self.store.stats() if self.store else None,
        }

    def end(self) -> None:
        """Finish writing the pending prefixes."""
        if self.store is not None and not self.store.flush():
            log.warning("some prefixes could not be written to the prefix store in time")


def device_of(name: str | None) -> str:
    """Return MLX's device for a name, ``cpu`` or ``gpu``; MLX's own choice without one, and for ``auto``.

    Raises:
        BadInput: MLX does not have it here.
    """
    here = {
        "cpu": True,
        "gpu": mx.is_available(mx.gpu),
        "mps": mx.metal.is_available(),
        "cuda": mx.cuda.is_available(),
    }
    if name in (None, "auto"):
        return "gpu" if here["gpu"] else "cpu"
    if not here.get(name):
        fix = "leave the option out, or name a device that `kakeya-engine probe` shows"
        raise BadInput(f"--device {name}: MLX has no such device on this machine", fix)
    return "cpu" if name == "cpu" else "gpu"
