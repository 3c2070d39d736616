"""One answer in the making, advanced a turn at a time: a chunk of its prompt, or a round of its decoding."""

from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

from engine.cache import make_caches
from engine.dflash import Stats
from engine.dflash.generation import Run
from engine.dflash.loop import BLOCK
from engine.dflash.propose.adaptive import Adaptive, Fixed, Policy
from engine.dflash.propose.estimates import Nominal
from engine.dflash.propose.lookup import Lookup
from engine.dflash.propose.proposer import Proposer
from engine.dflash.rollback import rollback_for
from engine.dflash.sampling import Sampler, Sampling
from engine.dflash.step import Step, live_bytes, ratio
from engine.dflash.stops import Stops
from engine.serve.guide import Guide
from engine.serve.job import Job, Options, Piece
from engine.serve.models import Resident
from engine.serve.prefix import Prefixes
from engine.serve.rounds import Forward, Reported, rounds


class Generation:
    """An answer with the caches that it owns.

    Args:
        job: what to make.
        resident: the job's model.
        chunk: tokens of the prompt to run at once.
        prefixes: kept prefixes, or None.

    Attributes:
        prefilling: whether the prompt is still being read.
        done: whether the answer is complete.
        stats: what its rounds added up to.
        predicted: the bytes that it was admitted for.
        cached: how many tokens of the prompt came from a kept prefix.
        alone: whether no other answer is decoded now; to be set by whoever advances them.
        together: the most answers that were made at the same time, this one counted.
        joint: rounds whose forward was shared with other answers.
    """

    def __init__(self, job: Job, resident: Resident, chunk: int, prefixes: Prefixes | None = None) -> None:
        self.job, self.resident = job, resident
        self.prefilling, self.done = True, False
        self.stats, self.cached, self.predicted = Stats(), 0, 0
        self.together, self.joint, self.alone = 1, 0, True
        self.fallback: str | None = None
        self._closing = ExitStack()
        self._chunk, self._prefixes = chunk, prefixes if job.options.prefix else None
        options, pair = job.options, resident.pair
        self.caches = make_caches(pair.target, options.cache, options.boundary)
        self._with_draft = self._drafts(options)
        stops = Stops(pair.tokenizer, None, options.stop)
        self._guide = self._guided(options, stops) if options.guided else None
        proposer = Proposer(pair.draft, pair.target) if self._with_draft else None
        lookup = Lookup() if options.draft in ("auto", "lookup") else None
        block = proposer.block if proposer else BLOCK if lookup else 1
        self._key = (resident.name, options.cache, options.boundary, self._with_draft)
        if self._prefixes is not None:
            self.cached = self._prefixes.restore(self._key, job.ids[:-1], self.caches, proposer)
        self._run = Run(
            pair.target,
            self.caches,
            rollback=rollback_for(self.caches, "auto", pair.target),
            proposer=proposer,
            lookup=lookup,
            sampler=Sampler(
                Sampling(options.temperature, options.top_k, options.top_p, options.min_p), options.seed
            ),
            stops=stops,
            policy=_policy(options),
            room=options.max_tokens,
            block=block,
        )
        self._turns = self._all_turns()

    def turn(self, output: Any = None) -> Piece | Forward | None:
        """Read a chunk of the prompt, or decode a round.

        Args:
            output: what the forward gave that the last turn asked for.

        Returns:
            What is new of the answer; or a forward that the round waits for.
        """
        try:
            made = self._turns.send(output)
        except StopIteration:
            return None
        if self.done:
            self.close()
        return made

    def close(self) -> None:
        """Give the caches back."""
        self._turns.close()
        self._closing.close()

    @property
    def nbytes(self) -> int:
        """Bytes of the caches, the drafter's context among them."""
        proposer = self._run.proposer
        return live_bytes(self.caches) + (proposer.nbytes if proposer else 0)

    def _all_turns(self) -> Generator[Piece | Forward | None, Any, None]:
        self._closing.enter_context(self._run.closing())
        self._run.clock.restart()
        for at in self._run.reading(self.job.ids, self._chunk, self.cached):
            if self._prefixes is not None and at % self._chunk == 0:
                self._prefixes.keep(self._key, self.job.ids[:at], self.caches, self._run.proposer)
            yield None
        self.prefilling = False
        # Draws depend on how rounds are made: what a seed repeats must not depend on who else is served.
        repeatable = self.job.options.seed is not None and self.job.options.temperature > 0
        turns = rounds(self._run, self._guide, lambda: self.alone and not repeatable)
        made = next(turns, None)
        while made is not None:
            if isinstance(made, Forward):
                made = turns.send((yield made))
            else:
                yield self._piece(*made)
                made = next(turns, None)

    def _piece(self, step: Step, logprobs: Reported) -> Piece:
        self.stats.add(step)
        self.done = step.finish_reason is not None
        report = self.report() if self.done else {}
        if logprobs is not None and step.tokens and step.tokens[-1] in self._run.stops.tokens:
            logprobs = logprobs[:-1]
        return Piece(self.job.index, step.text, len(step.tokens), logprobs, step.finish_reason, report)

    def report(self) -> dict[str, Any]:
        """Return the answer's ``x_kakeya``: what really happened."""
        used = sorted(name for name in self.stats.by_drafter if name != "none")
        cache = self.job.options.cache
        return {
            "draft": "+".join(used) or "none",
            "cache": cache if not self.job.options.boundary else f"{cache}-b{self.job.options.boundary}",
            "rounds": self.stats.verify_steps,
            "proposed": self.stats.proposed,
            "accepted": self.stats.accepted,
            "accept_length": ratio(self.stats.accepted, self.stats.verify_steps),
            "cached_tokens": self.cached,
            "cache_bytes": self.nbytes,
            "together": self.together,
            "joint_rounds": self.joint,
            "stop": self._run.stops.matched,
            "closed_early": self._guide is not None and self._guide.landed,
            "prefill_seconds": self.stats.prefill,
            "fallback": self.fallback,
        }

    def _drafts(self, options: Options) -> bool:
        if options.draft == "dflash" and self.resident.pair.draft is None:
            self.fallback = (
                f"No DFlash drafter is loaded for {self.resident.name}; it decoded without drafts."
            )
        return options.draft in ("auto", "dflash") and self.resident.pair.draft is not None

    def _guided(self, options: Options, stops: Stops) -> Guide:
        walk = None
        if options.grammar:
            walk = self.resident.grammars.walk(options.grammar)
        return Guide(options, self.job.ids, self.resident.vocabulary, walk, stops.tokens)


def _policy(options: Options) -> Policy:
    if options.draft in ("lookup", "dflash"):
        return Fixed()
    return Adaptive(Nominal() if options.seed is not None and options.temperature > 0 else None)
