"""Advances all active answers in turns.

Each answer has its own caches and loop. In one cycle, every decoding answer runs one round, and one answer that still
reads its prompt runs one chunk. So a long prompt delays the others by one chunk per round.

Any error ends only one answer, with an error for its client. This includes a panic in a Rust library, which is a
BaseException but not an Exception in Python. An answer stays in the list of active ones until its last event.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from engine.dflash.propose.proposer import Wanted, batched_drafts, can_share
from engine.errors import EngineError
from engine.mx import mx
from engine.serve.backend import Job, Piece
from engine.serve.errors import ApiError, bug
from engine.serve.metrics import Metrics
from engine.serve.resident import Resident
from engine.serve.scheduler.generation import Generation
from engine.serve.scheduler.residents import Residents
from engine.serve.scheduler.rounds import Awaited, Draft, Forward, Verdict

log = logging.getLogger("engine.serve")
T = TypeVar("T")


class Scheduler:
    """The active answers. Everything here runs in the engine's thread.

    ``wake`` is called when jobs have emitted all their pieces, and ``beat`` after each step, as a sign of life.
    """

    def __init__(
        self, metrics: Metrics, residents: Residents, wake: Callable[[], None], beat: Callable[[], None]
    ) -> None:
        self._metrics, self._residents, self._wake, self._beat = metrics, residents, wake, beat
        self.active: list[Generation] = []
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
        waiting = [(each, wanted) for each in turns if (wanted := self._advance(each)) is not None]
        for resident in {generation.resident for generation, _ in waiting}:
            own = [each for each in waiting if each[0].resident is resident]
            drafting = [(each, wanted) for each, wanted in own if isinstance(wanted, Draft)]
            forwards = [(each, wanted) for each, wanted in own if isinstance(wanted, Forward)]
            self._together(resident, forwards + self._drafted(drafting))

    def end(self, generation: Generation, error: BaseException | None) -> None:
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

    def _drafted(self, drafting: list[tuple[Generation, Draft]]) -> list[tuple[Generation, Forward]]:
        """Run the drafters that answers wait for, together if possible. Returns their next requests."""
        proposers = [draft.run.proposer for _, draft in drafting]
        outputs: Iterable[Any]
        if len(drafting) > 1 and can_share(proposers):
            wanted = [
                Wanted(proposer, draft.run.pending, draft.plan.size, draft.run.sampler)
                for proposer, (_, draft) in zip(proposers, drafting, strict=True)
            ]
            outputs = self._output_of(batched_drafts, wanted, owners=[each for each, _ in drafting]) or []
            for generation, _ in drafting:
                generation.joint_drafts += 1
        else:  # one after another, so that a run's clock counts only its own drafts
            outputs = (
                self._output_of(draft.run.propose, draft.plan, owners=[each]) for each, draft in drafting
            )
        drafted = [
            (generation, self._advance(generation, output))
            for (generation, _), output in zip(drafting, outputs, strict=False)
            if output is not None
        ]
        return [(generation, wanted) for generation, wanted in drafted if isinstance(wanted, Forward)]

    def _together(self, resident: Resident, waiting: list[tuple[Generation, Forward]]) -> None:
        """Run the forward passes that a model's answers wait for, together if possible."""
        joined = [each for each in waiting if resident.joint.takes(each[1].run)]
        if len(joined) > 1:
            self._metrics.joint.observe(len(joined))
            runs, tokens = [forward.run for _, forward in joined], [forward.tokens for _, forward in joined]
            owners = [generation for generation, _ in joined]
            outputs = self._output_of(resident.joint.forward, runs, tokens, owners=owners) or []
            for generation in owners:
                generation.joint += 1
            results = zip(owners, outputs, strict=False)
            self._judged([(each, self._advance(each, output)) for each, output in results])
            waiting = [each for each in waiting if each not in joined]
        for generation, forward in waiting:
            verified = self._output_of(forward.run.forward, forward.tokens, owners=[generation])
            if verified is not None:
                self._judged([(generation, self._advance(generation, verified))])

    def _judged(self, judging: list[tuple[Generation, Awaited | None]]) -> None:
        """Compute the outcomes that rounds are about to read, with one wait for all; then end these rounds."""
        verdicts = {each: wanted.values for each, wanted in judging if isinstance(wanted, Verdict)}
        owners = list(verdicts)
        self._output_of(mx.eval, list(verdicts.values()), owners=owners)
        for generation in owners:
            if generation in self.active:
                self._advance(generation, wake=False)
        self._wake()

    def _output_of(self, compute: Callable[..., T], *args: Any, owners: list[Generation]) -> T | None:
        """Call a function for some answers. If it fails, these answers end, and the others go on."""
        try:
            return compute(*args)
        except BaseException as error:  # noqa: BLE001 - answers of other models go on
            for generation in owners:
                self.end(generation, error)
            return None

    def _advance(self, generation: Generation, output: Any = None, *, wake: bool = True) -> Awaited | None:
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

    def _count(self, generation: Generation, piece: Piece) -> None:
        """Record the metrics of a piece before its client gets it, so that the client is never ahead of them."""
        if generation.stats.steps == 1:
            self._metrics.first.observe(time.monotonic() - generation.job.created)
        self._metrics.generated.inc(piece.tokens)
        if generation.done:
            generation.resident.used = time.monotonic()
            self._metrics.count(generation)
            self._residents.succeeded(generation.job.model)


def close(generation: Generation) -> None:
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
