"""Generates an answer with the ``dflash`` package on this engine's caches. Falls back to the engine's own loop."""

from collections.abc import Generator
from dataclasses import replace

from engine.dflash.generation import Run
from engine.dflash.step import Step
from engine.errors import EngineError
from engine.inject import NAME
from engine.inject.package import steps
from engine.serve.backend import Job
from engine.serve.models import Resident


class UnusedError(Exception):
    """The package cannot be used for an answer. No part of the answer was sent yet."""


class ThroughPackage:
    """The rounds of one answer.

    Args:
        job: the request for the answer.
        resident: the job's model.

    Attributes:
        strategy: how the caches were passed to the package.

    Raises:
        UnusedError: the package lacks an option, or cannot be used here.
    """

    def __init__(self, job: Job, resident: Resident) -> None:
        options = job.options
        if options.guided or options.min_p:
            raise UnusedError("it has no grammars, penalties, biases, log-probabilities or min_p")
        if options.seed is not None and options.temperature > 0:
            raise UnusedError("it cannot repeat a seed")
        try:
            self._package = resident.package()
        except EngineError as error:
            raise UnusedError(error.message) from error
        self.strategy = self._package.decision.strategy
        self._job = job

    def rounds(self, run: Run, chunk: int) -> Generator[Step, None, None]:
        """Yield the steps. The package fills the run's caches; the run handles stops and text.

        Raises:
            UnusedError: the package did not use these caches.
        """
        options = self._job.options
        responses = self._package.stream(
            self._job.ids,
            run.caches,
            options.max_tokens,
            chunk=chunk,
            temperature=options.temperature,
            top_p=min(1.0, options.top_p),
            top_k=options.top_k,
        )
        first = True
        try:
            for step in steps(responses, self._package.block, options.max_tokens):
                if not step.tokens:
                    continue
                tokens, text = run.take(step.tokens)
                seconds, first = (run.clock.restart() if first else 0.0), False
                yield replace(
                    step,
                    tokens=tokens,
                    text=text,
                    accepted=min(step.accepted, len(tokens)),
                    drafter=NAME if step.proposed else "none",
                    finish_reason=run.finish_reason,
                    timing=run.clock.stop(),
                    prefill=seconds,
                )
                run.clock.restart()
                if run.finish_reason is not None:
                    return
        except EngineError as error:
            if not first:
                raise
            raise UnusedError(error.message) from error
        finally:
            responses.close()
