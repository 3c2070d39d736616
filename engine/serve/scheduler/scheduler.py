"""Advances all active answers in turns, and computes their rounds together if possible."""

from collections.abc import Iterable
from typing import Any

from engine.dflash.propose.proposer import Wanted, batched_drafts, can_share
from engine.mx import mx
from engine.serve.resident import Resident
from engine.serve.scheduler.generation import Generation
from engine.serve.scheduler.rounds import Awaited, Draft, Forward, Verdict
from engine.serve.turns import scheduler


class Scheduler(scheduler.Scheduler):
    """The active answers over MLX. Everything here runs in the engine's thread."""

    def _compute(self, waiting: list[tuple[Generation, Awaited]]) -> None:
        """Run the drafters and forward passes that answers wait for."""
        for resident in {generation.resident for generation, _ in waiting}:
            own = [each for each in waiting if each[0].resident is resident]
            drafting = [(each, wanted) for each, wanted in own if isinstance(wanted, Draft)]
            forwards = [(each, wanted) for each, wanted in own if isinstance(wanted, Forward)]
            self._together(resident, forwards + self._drafted(drafting))

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
