"""The only thread that uses the engine: accepts jobs, starts them, and ends cancelled or late ones.

It gives signs of life (``Health.beat``), which show others whether it is stuck. If it cannot go on, it ends all
requests with an error and sets the reason (``Health.failure``). The process has to end then.
"""

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from engine.serve.backend import ENDING, STUCK, Health, Job, Memory
from engine.serve.errors import ApiError, closing, failed, late
from engine.serve.metrics import Metrics
from engine.serve.settings import Settings
from engine.serve.turns.admission import Admission
from engine.serve.turns.kit import Answer, Kit, LoadedModel
from engine.serve.turns.residents import Residents
from engine.serve.turns.scheduler import Scheduler, close

log = logging.getLogger("engine.serve")
IDLE = 1.0  # seconds between checks for idle models
GRACE = 2.0  # seconds for which a newly loaded model waits for the jobs of the request that needs it
TICK = 0.05  # seconds between checks for such jobs
PAUSES = (0.05, 0.2, 1.0, 5.0)  # seconds to wait after each consecutive failed cycle
HOPELESS = 60.0  # if every cycle fails for this many seconds, the thread gives up


@dataclass(eq=False)
class Load:
    """A request to load a model by its name."""

    model: str
    resident: "Future[LoadedModel]" = field(default_factory=Future)

    def fail(self, error: BaseException) -> None:
        """End the request with an error."""
        if self.resident.set_running_or_notify_cancel():
            self.resident.set_exception(error)


class TurnsThread:
    """The ``engine.serve.backend.Backend`` over a kit. Any thread may call the public methods.

    ``wake`` is called when jobs have emitted all their pieces, so that these can be delivered together.
    """

    scheduler: type[Scheduler] = Scheduler
    lacks: Collection[str] = ()

    def __init__(self, kit: Kit, settings: Settings, metrics: Metrics, wake: Callable[[], None]) -> None:
        self.kit, self.name = kit, kit.name
        self.settings, self.metrics, self._wake = settings, metrics, wake
        self._inbox: queue.SimpleQueue[Job | Load | None] = queue.SimpleQueue()
        self._count = threading.Lock()
        self.waiting = 0  # answers that are submitted but not started
        self._queue: deque[Job | Load] = deque()
        self._granted: dict[str, float] = {}  # how long newly loaded models wait for their first job
        self._stopping = threading.Event()
        self._failures, self._failing = 0, 0.0  # consecutive failed cycles, and the time of the first
        self._beat = time.monotonic()
        self._failure: str | None = None
        self._looked = 0.0  # time of the last check for idle models
        self.residents = Residents(settings, kit)
        self.models = self.residents.by_name
        self._admission = Admission(settings, self.residents, kit)
        self._scheduler = self.scheduler(kit, metrics, self.residents, wake, self._live)
        self._limited = settings.memory_budget is not None or settings.max_resident is not None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def takes(self, spec: str) -> bool:  # noqa: ARG002 - all specs are known
        """Return whether the backend has the caches of a spec."""
        return True

    def code_bytes(self, spec: str, dim: int) -> int | None:  # noqa: ARG002 - caches store decoded values
        """Return the bytes of the code of a vector of ``dim`` values; None if caches store decoded values."""
        return None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Take no more jobs, and end the thread after its current step: all answers get an error."""
        with self._count:  # so all jobs that were submitted before are in the inbox
            self._stopping.set()
        self._inbox.put(None)

    def stop(self, seconds: float = ENDING) -> bool:
        """Close, and wait for the thread. Returns whether it ended in time: a load or a long step may take longer."""
        self.close()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def submit(self, jobs: list[Job]) -> None:
        """Queue all answers of one request, or none; ApiError 429 if the queue is full, 503 if the server is ending."""
        with self._count:
            if self._stopping.is_set():
                raise self._over()
            if self.waiting + len(jobs) > self.settings.max_queue:
                self.metrics.refused.inc()
                message = f"{self.waiting} answers are waiting already. Try again in a few seconds."
                headers = {"Retry-After": str(max(1, self.waiting // 4))}
                raise ApiError(429, message, code="queue_full", headers=headers)
            self.waiting += len(jobs)
            for job in jobs:
                self._inbox.put(job)

    def load(self, name: str) -> "Future[LoadedModel]":
        """Return a model. If needed, it is loaded in the engine's thread."""
        wanted = Load(name)
        resident = self.residents.by_name.get(name)
        if resident is not None and name not in self.residents.broken_models:
            resident.used = time.monotonic()
            wanted.resident.set_result(resident)
        else:
            with self._count:
                if self._stopping.is_set():
                    raise self._over()
                self._inbox.put(wanted)
        return wanted.resident

    def health(self) -> Health:
        """Return the thread's state."""
        residents, trouble = self.residents, None
        silent = 0.0 if residents.loading else time.monotonic() - self._beat
        if self._failure is not None:
            trouble = f"the engine's thread has ended: {self._failure}"
        elif silent > STUCK:
            trouble = f"the engine's thread has not completed a step for {silent:.0f} s"
        return Health(
            beat=self._beat,
            silent=silent,
            running=self._thread.is_alive(),
            failure=self._failure,
            trouble=trouble,
            loading=residents.loading,
            broken=residents.broken_models,
            unloadable=dict(residents.unloadable),
        )

    def memory(self) -> Memory:
        """Return the memory in use."""
        return replace(self.kit.memory(), caches=sum(each.nbytes for each in self.active))

    def stats(self) -> dict[str, Any]:
        """Return the statistics of prefixes and of unloaded models."""
        return {**self.kit.stats(), "unloaded": dict(self.residents.unloaded)}

    @property
    def active(self) -> list[Answer]:
        """The active answers."""
        return list(self._scheduler.active)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # any error ends the thread, which reports it
            log.critical("the engine's thread cannot go on", exc_info=error)
            self._failure = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        self._end_all()
        self.kit.end()

    def _work(self) -> None:
        self.kit.prepare()
        while not self._stopping.is_set():
            self._live()
            self._receive()
            try:
                self._drop()
                self._admit()
                self._scheduler.cycle()
                self._failures = 0
            except BaseException as error:  # noqa: BLE001 - logged; the thread goes on, and does not spin
                self._recover(error)
            self._wake()

    def _end_all(self) -> None:
        """End all requests with an error, first those that arrive while the thread ends."""
        with self._count:
            self._stopping.set()
        self._receive(wait=False)
        for each in (*(generation.job for generation in self.active), *self._queue):
            each.fail(self._over())
        self._wake()
        for generation in self.active:
            close(generation)

    def _over(self) -> ApiError:
        return closing() if self._failure is None else failed()

    def _live(self) -> None:
        self._beat = time.monotonic()

    def _receive(self, *, wait: bool = True) -> None:
        """Accept new jobs; wait for one if there is nothing to do."""
        idle = wait and not self._scheduler.active and bool(self._granted or not self._queue)
        while True:
            try:
                message = self._inbox.get(block=idle, timeout=TICK if self._queue else IDLE)
            except queue.Empty:
                return
            idle = False
            if isinstance(message, Load) and not self._limited:
                self._queue.appendleft(message)  # this load delays no waiting job
            elif isinstance(message, Job) and message.model in self._granted:
                # The job had its turn when the load of its model began.
                loads = (i for i, each in enumerate(self._queue) if isinstance(each, Load))
                self._queue.insert(next(loads, len(self._queue)), message)
            elif message is not None:
                self._queue.append(message)

    def _drop(self) -> None:
        """End cancelled and late answers."""
        now = time.monotonic()
        for generation in self.active:
            overdue = now > generation.job.deadline
            if generation.job.cancelled or overdue:
                self._scheduler.end(generation, late() if overdue else None)
        for load in [each for each in self._queue if isinstance(each, Load) and each.resident.cancelled()]:
            self._queue.remove(load)
        for job in [each for each in self._queue if isinstance(each, Job)]:
            overdue = now > job.deadline
            if job.cancelled or overdue:
                self._queue.remove(job)
                self._begun()
                self._scheduler.fail(job, late() if overdue else None)

    def _admit(self) -> None:
        """Start jobs in order of arrival. A job that waits for memory is not overtaken."""
        self._look()
        while self._queue and not self._stopping.is_set():
            first = self._queue[0]
            if isinstance(first, Job) and len(self._scheduler.active) >= self.settings.max_active:
                return
            try:
                if not self._begin(first):
                    return
            except BaseException as error:  # noqa: BLE001 - only this request fails
                self._queue.popleft()
                self._give_up(first, error)
            else:
                self._queue.popleft()

    def _begin(self, first: Job | Load) -> bool:
        """Start a job, or return the model of a load. Returns False if there is not enough memory yet."""
        if not self._admission.loads(first.model, self._used_bytes(first)):
            return False
        resident = self.residents.get(first.model)
        if isinstance(first, Load):
            if first.resident.set_running_or_notify_cancel():  # else the client has left meanwhile
                if self._limited:
                    self._granted[first.model] = time.monotonic() + GRACE
                first.resident.set_result(resident)
            return True
        reserved = self._admission.reserve(first, self._scheduler.used_bytes)
        if reserved is None:
            return False
        self._granted.pop(first.model, None)
        self.metrics.waited.observe(time.monotonic() - first.created)
        generation = self.kit.begin(first, resident)
        generation.predicted = reserved
        self._begun()
        self._scheduler.active.append(generation)
        return True

    def _used_bytes(self, first: Job | Load) -> dict[str, int]:
        """Return the models that must not be unloaded for a job or load, with the bytes reserved for their answers.

        Requests that load different models would otherwise unload each other's before the first answer.
        """
        now = time.monotonic()
        self._granted = {name: until for name, until in self._granted.items() if now < until}
        granted = dict.fromkeys(self._granted, 0) if isinstance(first, Load) else {}
        return granted | self._scheduler.used_bytes

    def _look(self) -> None:
        """Unload broken models and, at intervals, idle ones."""
        busy = self._scheduler.used_bytes
        self.residents.unload_broken(busy)
        if time.monotonic() - self._looked >= IDLE:
            self._looked = time.monotonic()
            self.residents.unload_idle({*busy, *(each.model for each in self._queue)})

    def _give_up(self, first: Job | Load, error: BaseException) -> None:
        if isinstance(first, Load):
            first.fail(error)
        else:
            self._begun()
            self._scheduler.fail(first, error)

    def _recover(self, error: BaseException) -> None:
        """Fail the jobs of a broken cycle, so that each failure ends at least one job, and pause; or give up."""
        log.error("a cycle failed", exc_info=error)
        for generation in self.active:
            self._scheduler.end(generation, error)
        if self._queue:  # the first waiting job may be the cause
            self._give_up(self._queue.popleft(), error)
        if not self._failures:
            self._failing = time.monotonic()
        elif time.monotonic() - self._failing > HOPELESS:
            raise error
        self._stopping.wait(PAUSES[min(self._failures, len(PAUSES) - 1)])
        self._failures += 1

    def _begun(self) -> None:
        with self._count:
            self.waiting -= 1
