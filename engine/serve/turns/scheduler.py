"""Advances all active answers in turns.

Each answer has its own caches and loop. In one cycle, every decoding answer runs one round, and one answer that still
reads its prompt runs one chunk. So a long prompt delays the others by one chunk per round.

Any error ends only one answer, with an error for its client. This includes a panic in a Rust library, which is a
BaseException but not an Exception in Python. An answer stays in the list of active ones until its last event.
"""

import logging
import secrets
import time
from collections.abc import Callable
from typing import Any, TypeVar

from engine.errors import EngineError
from engine.serve.backend import Job, Piece
from engine.serve.errors import ApiError, bug
from engine.serve.metrics import Metrics
from engine.serve.turns.kit import Answer, Kit
from engine.serve.turns.residents import Residents

log = logging.getLogger("engine.serve")
T = TypeVar("T")


class Scheduler:
    """The active answers. Everything here runs in the engine's thread.

    ``wake`` is called when jobs have emitted all their pieces, and ``beat`` after each step, as a sign of life.
    """

    def __init__(
        self,
        kit: Kit,
        metrics: Metrics,
        residents: Residents,
        wake: Callable[[], None],
        beat: Callable[[], None],
    ) -> None:
        self._kit, self._metrics, self._residents = kit, metrics, residents
        self._wake, self._beat = wake, beat
        self.active: list[Answer] = []
        self._turn = 0

    @property
    def used_bytes(self) -> dict[str, int]:
        """Bytes reserved for answers, by model."""
        used: dict[str, int] = {}
        for each in self.active:
            used[each.job.model] = used.get(each.job.model, 0) + each.predicted
        return used

    def cycle(self) -> None:
        """Run one round of each answer, and one chunk of one prompt."""
        for each in self.active:
            each.together = max(each.together, len(self.active))
        reading = [each for each in self.active if each.prefilling]
        turns = [each for each in self.active if not each.prefilling]
        for generation in turns:
            generation.alone = len(turns) == 1
        if reading:
            self._turn += 1
            turns.insert(0, reading[self._turn % len(reading)])
            turns[0].alone = len(turns) == 1
        self._compute([(each, wanted) for each in turns if (wanted := self._advance(each)) is not None])

    def _compute(self, waiting: list[tuple[Any, Any]]) -> None:
        """Compute what the answers wait for. In this base class, they wait for nothing."""

    def end(self, generation: Answer, error: BaseException | None) -> None:
        """End an answer early, because of an error or because it was cancelled."""
        self.active.remove(generation)
        close(generation)
        self.fail(generation.job, error)

    def fail(self, job: Job, error: BaseException | None) -> None:
        """Send a job's error to its client, unless it was cancelled (None). A bug gets an id that the log has too."""
        if error is None:
            self._metrics.finished.labels("cancelled").inc()
            return
        answer, error_id = _answer(error)
        try:
            if error_id is not None:
                log.error("%s", error_id, exc_info=error)
                self._residents.failed(job.model, error_id)
            reason = "timeout" if answer.status == 408 else "error"  # noqa: PLR2004 - HTTP's own number
            self._metrics.finished.labels(reason).inc()
        finally:
            job.fail(answer)

    def _output_of(self, compute: Callable[..., T], *args: Any, owners: list[Any]) -> T | None:
        """Call a function for some answers. If it fails, these answers end, and the others go on."""
        try:
            return compute(*args)
        except BaseException as error:  # noqa: BLE001 - answers of other models go on
            for generation in owners:
                self.end(generation, error)
            return None

    def _advance(self, generation: Answer, output: Any = None, *, wake: bool = True) -> Any:
        """Advance an answer by a turn, and pass on its output; return what it waits for."""
        try:
            piece = generation.turn(output)
            if isinstance(piece, Piece):
                self._count(generation, piece)
        except BaseException as error:  # noqa: BLE001 - the others go on
            self.end(generation, error)
            return None
        finally:
            self._beat()
        if not isinstance(piece, Piece):
            return piece
        if generation.done:
            self.active.remove(generation)
        generation.job.emit(piece)
        if wake:
            self._wake()
        return None

    def _count(self, generation: Answer, piece: Piece) -> None:
        """Record the metrics of a piece before its client gets it, so that the client is never ahead of them."""
        if generation.steps == 1:
            self._metrics.first.observe(time.monotonic() - generation.job.created)
        self._metrics.generated.inc(piece.tokens)
        if generation.done:
            self._residents.touch(generation.job.model)
            self._kit.count(generation)
            self._residents.succeeded(generation.job.model)


def close(generation: Answer) -> None:
    """Release an answer's caches, whatever state they are in."""
    try:
        generation.close()
    except BaseException:
        log.exception("an answer could not be closed")


def _answer(error: BaseException) -> tuple[ApiError, str | None]:
    """Return the error that a client gets, and the id of the error if it is a bug."""
    if isinstance(error, ApiError):
        return error, None
    if isinstance(error, EngineError):
        remedy = f" Try: {error.fix}." if error.fix else ""
        return ApiError(422, f"{error.message}.{remedy}", code="unusable"), None
    error_id = f"err-{secrets.token_hex(6)}"
    return bug(error_id), error_id
