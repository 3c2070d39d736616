"""The one thread that owns MLX: it loads models, and advances all answers in turns.

Each answer has caches and a loop of its own. In one cycle every answer that decodes runs one round, and one of
those that still read their prompts runs one chunk of it: a long prompt delays the others by a chunk a round.
"""

import logging
import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from engine.errors import EngineError
from engine.mx import mx
from engine.serve.errors import ApiError, bug
from engine.serve.generation import Generation
from engine.serve.job import Failed, Job
from engine.serve.memory import forget_shapes, predicted
from engine.serve.metrics import Metrics
from engine.serve.models import Resident, load_resident
from engine.serve.prefix import Prefixes
from engine.serve.rounds import Forward
from engine.serve.settings import Settings

log = logging.getLogger("engine.serve")
IDLE = 1.0  # seconds between looks at what is idle


class EngineThread:
    """Runs jobs. Every method but those of the thread itself may be called from anywhere.

    Args:
        settings: the server's.
        metrics: counts what happens.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.residents: dict[str, Resident] = {}
        self.loading: str | None = None
        self._inbox: queue.SimpleQueue[Job | Callable[[], None] | None] = queue.SimpleQueue()
        self._count = threading.Lock()
        self._waiting = 0  # submitted and not begun
        self._queue: deque[Job] = deque()
        self._active: list[Generation] = []
        self._stopping = False
        self._turn = 0
        self.prefixes = (
            Prefixes(settings.prefix_cache, settings.prefill_chunk) if settings.prefix_cache else None
        )
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        """Begin to take jobs."""
        self._thread.start()

    def stop(self) -> None:
        """End all answers and the thread."""
        self._inbox.put(None)
        self._thread.join()

    def submit(self, jobs: list[Job]) -> None:
        """Queue the answers of one request, all or none.

        Raises:
            ApiError: 429, the queue is full.
        """
        with self._count:
            if self._waiting + len(jobs) > self.settings.max_queue:
                self.metrics.refused.inc()
                raise ApiError(
                    429,
                    f"{self._waiting} answers are waiting already. Try again in a few seconds.",
                    code="queue_full",
                    headers={"Retry-After": str(max(1, self._waiting // 4))},
                )
            self._waiting += len(jobs)
        for job in jobs:
            self._inbox.put(job)

    def load(self, name: str) -> "Future[Resident]":
        """Return a model, loaded in the engine's thread if it is not yet."""
        found: Future[Resident] = Future()
        if name in self.residents:
            resident = self.residents[name]
            resident.used = time.monotonic()
            found.set_result(resident)
            return found

        def load() -> None:
            try:
                found.set_result(self._loaded(name))
            except BaseException as error:  # noqa: BLE001 - whoever waits is told
                found.set_exception(error)

        self._inbox.put(load)
        return found

    @property
    def waiting(self) -> int:
        """Answers that are queued."""
        return self._waiting

    @property
    def active(self) -> list[Generation]:
        """Answers that are being made."""
        return list(self._active)

    def _loaded(self, name: str) -> Resident:
        if name not in self.residents:
            self.loading = name
            began = time.monotonic()
            log.info("loading %s", name)
            try:
                self.residents[name] = load_resident(name, self.settings.draft, self.settings.dtype)
            finally:
                self.loading = None
            log.info("loaded %s in %.1f s", name, time.monotonic() - began)
        return self.residents[name]

    def _work(self) -> None:
        if self.settings.device is not None:
            mx.set_default_device(getattr(mx, self.settings.device))
        while not self._stopping:
            self._receive()
            try:
                self._drop()
                self._admit()
                self._cycle()
            except Exception:
                log.exception("a cycle failed")  # the next one goes on with whatever is left
        for generation in self._active:
            generation.close()
            generation.job.emit(Failed(generation.job.index, _closing()))
        for job in self._queue:
            job.emit(Failed(job.index, _closing()))

    def _receive(self) -> None:
        """Take what has come; wait for something if there is nothing to do."""
        idle = not self._active and not self._queue
        while True:
            try:
                found = self._inbox.get(block=idle, timeout=IDLE)
            except queue.Empty:
                if idle:
                    self._unload()
                return
            idle = False
            if found is None:
                self._stopping = True
            elif isinstance(found, Job):
                self._queue.append(found)
            else:
                found()

    def _drop(self) -> None:
        """End what nobody waits for any more, and what is late."""
        now = time.monotonic()
        for generation in list(self._active):
            late = now > generation.job.deadline
            if generation.job.cancelled or late:
                self._end(generation, _late() if late else None)
        for job in list(self._queue):
            late = now > job.deadline
            if job.cancelled or late:
                self._queue.remove(job)
                self._begun()
                self.metrics.finished.labels("timeout" if late else "cancelled").inc()
                if late:
                    job.emit(Failed(job.index, _late()))

    def _admit(self) -> None:
        while self._queue and len(self._active) < self.settings.max_active:
            job = self._queue[0]
            try:
                needed = self._needed(job)
                if not self._fits(needed):
                    return
            except Exception as error:  # noqa: BLE001 - it is this request's failure alone
                self._queue.popleft()
                self._begun()
                self._fail(job, error)
                continue
            self._queue.popleft()
            self._begun()
            self.metrics.waited.observe(time.monotonic() - job.created)
            try:
                resident = self._loaded(job.model)
                resident.used = time.monotonic()
                generation = Generation(job, resident, self.settings.prefill_chunk, self.prefixes)
                generation.predicted = needed
                self._active.append(generation)
            except Exception as error:  # noqa: BLE001 - it is this request's failure alone
                self._fail(job, error)

    def _unload(self) -> None:
        """Give back models that nobody has asked for in a while."""
        most = self.settings.idle_seconds
        for name, resident in list(self.residents.items()):
            if not most or time.monotonic() - resident.used < most:
                continue
            del self.residents[name]
            forget_shapes()
            if self.prefixes is not None:
                self.prefixes.forget(name)
            log.info("unloaded %s after %g s without requests", name, most)
        mx.clear_cache()

    def _needed(self, job: Job) -> int:
        """Return the bytes that a job takes at most; ApiError if it can never have them."""
        if self.settings.memory_budget is None:
            return 0
        resident = self._loaded(job.model)
        needed = predicted(resident, job.options, len(job.ids), self.settings.prefill_chunk)
        room = self.settings.memory_budget - self._weights()
        if needed > room:
            said = (
                f"The answer may take {needed >> 20} MB, and {max(0, room) >> 20} MB are left beside the weights. "
                "Ask for fewer tokens or a packed cache."
            )
            raise ApiError(400, said, param="max_tokens", code="memory_budget")
        return needed

    def _fits(self, needed: int) -> bool:
        """Say whether so many bytes are free, giving back kept prefixes if that is what it takes."""
        if self.settings.memory_budget is None:
            return True
        taken = self._weights() + sum(each.predicted for each in self._active)
        room = self.settings.memory_budget - taken - needed
        if room < 0:
            return False
        if self.prefixes is not None:
            self.prefixes.budget = min(self.settings.prefix_cache, room)
            self.prefixes.shrink(self.prefixes.budget)
        return True

    def _weights(self) -> int:
        return sum(each.nbytes for each in self.residents.values())

    def _begun(self) -> None:
        with self._count:
            self._waiting -= 1

    def _cycle(self) -> None:
        """Run one round of each answer, and one chunk of one prompt."""
        for each in self._active:
            each.together = max(each.together, len(self._active))
        reading = [each for each in self._active if each.prefilling]
        turns = [each for each in self._active if not each.prefilling]
        for generation in turns:
            generation.alone = len(turns) == 1
        if reading:
            self._turn += 1
            turns.insert(0, reading[self._turn % len(reading)])
            turns[0].alone = len(turns) == 1
        waiting = [(each, asked) for each in turns if (asked := self._advance(each)) is not None]
        for resident in {generation.resident for generation, _ in waiting}:
            self._together(resident, [each for each in waiting if each[0].resident is resident])

    def _together(self, resident: Resident, waiting: list[tuple[Generation, Forward]]) -> None:
        """Run the forwards that a model's answers wait for, at once if they can be."""
        joined = [each for each in waiting if resident.joint.takes(each[1].run)]
        if len(joined) > 1:
            self.metrics.joint.observe(len(joined))
            try:
                outputs = resident.joint.forward([f.run for _, f in joined], [f.tokens for _, f in joined])
            except Exception as error:  # noqa: BLE001 - answers of other models go on
                for generation, _ in joined:
                    self._end(generation, error)
                outputs = []
            for (generation, _), output in zip(joined, outputs, strict=False):
                generation.joint += 1
                self._advance(generation, output)
            waiting = [each for each in waiting if each not in joined]
        for generation, asked in waiting:
            try:
                output = asked.run.forward(asked.tokens)
            except Exception as error:  # noqa: BLE001 - the others go on
                self._end(generation, error)
            else:
                self._advance(generation, output)

    def _advance(self, generation: Generation, output: Any = None) -> Forward | None:
        """Advance an answer by a turn, passing on what it gives; return the forward that it waits for."""
        first = not generation.stats.steps
        try:
            piece = generation.turn(output)
        except Exception as error:  # noqa: BLE001 - the others go on
            self._end(generation, error)
            return None
        if piece is None or isinstance(piece, Forward):
            return piece
        if first:
            self.metrics.first.observe(time.monotonic() - generation.job.created)
        self.metrics.generated.inc(piece.tokens)
        if generation.done:
            generation.resident.used = time.monotonic()
            self._active.remove(generation)
            self.metrics.count(generation)
        generation.job.emit(piece)
        return None

    def _end(self, generation: Generation, error: Exception | None) -> None:
        self._active.remove(generation)
        try:
            generation.close()
        except Exception:
            log.exception("an answer could not be closed")
        if error is None:
            self.metrics.finished.labels("cancelled").inc()
        else:
            self._fail(generation.job, error)

    def _fail(self, job: Job, error: Exception) -> None:
        if isinstance(error, EngineError):
            remedy = f" Try: {error.fix}." if error.fix else ""
            error = ApiError(422, f"{error.message}.{remedy}", code="unusable")
        elif not isinstance(error, ApiError):
            error_id = f"err-{secrets.token_hex(6)}"
            log.error("%s", error_id, exc_info=error)
            error = bug(error_id)
        reason = "timeout" if error.status == 408 else "error"  # noqa: PLR2004 - HTTP's own number
        self.metrics.finished.labels(reason).inc()
        job.emit(Failed(job.index, error))


def _late() -> ApiError:
    return ApiError(408, "The request took longer than this server allows.", code="timeout")


def _closing() -> ApiError:
    return ApiError(503, "The server is shutting down. Try again later.", code="shutting_down")
