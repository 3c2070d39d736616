"""Generates one answer in turns. A turn is a chunk of its prompt or a round of decoding."""

import hashlib
import logging
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

from engine.cache import make_caches
from engine.dflash import Stats
from engine.dflash.generation import Run, blocks_of
from engine.dflash.propose.adaptive import Adaptive, Fixed, Policy
from engine.dflash.propose.costs import Nominal
from engine.dflash.propose.lookup import Lookup
from engine.dflash.propose.proposer import Proposer
from engine.dflash.rollback import rollback_for
from engine.dflash.sampling import Sampler, Sampling
from engine.dflash.step import Step, live_bytes, ratio
from engine.dflash.stops import Stops
from engine.errors import EngineError
from engine.inject import NAME as PACKAGE
from engine.inject.package import Package, check_options
from engine.inject.package import rounds as package_rounds
from engine.serve.backend import Job, Options, Piece
from engine.serve.models import Resident
from engine.serve.prefix_cache.namespace import BlockPath
from engine.serve.prefix_cache.prefix import Prefixes
from engine.serve.scheduler.guide import Guide
from engine.serve.scheduler.rounds import Awaited, Reported, rounds

log = logging.getLogger("engine.serve")


class Generation:
    """An answer in progress, with its caches.

    Args:
        job: the request for it.
        resident: the job's model.
        chunk: prompt tokens per forward pass.
        prefixes: the prefix cache, or None.

    Attributes:
        prefilling: whether the prompt is still being read.
        done: whether the answer is complete.
        stats: totals over its rounds.
        predicted: bytes of memory reserved for it.
        cached: number of prompt tokens from the prefix cache.
        alone: whether no other answer is being decoded; set by the caller.
        together: the largest number of concurrent answers, including this one.
        joint: number of rounds whose forward pass was shared with other answers.
        joint_drafts: number of rounds whose drafts were shared.
    """

    def __init__(self, job: Job, resident: Resident, chunk: int, prefixes: Prefixes | None = None) -> None:
        self.job, self.resident = job, resident
        self.prefilling, self.done = True, False
        self.stats, self.cached, self.predicted = Stats(), 0, 0
        self.together, self.joint, self.joint_drafts, self.alone = 1, 0, 0, True
        self.fallback: str | None = None
        self._tokens: list[int] = []
        self._digest = hashlib.sha256()  # of the tokens
        self._closing = ExitStack()
        self._chunk, self._prefixes = chunk, prefixes if job.options.prefix else None
        self._path: BlockPath | None = None
        options = job.options
        self._package = self._by_package(options) if options.draft == PACKAGE else None
        self._with_draft = self._drafts(options)
        self._key = (resident.name, options.cache, options.boundary, self._with_draft)
        self._begin()
        self._turns = self._all_turns()

    def _begin(self) -> None:
        """Create the caches and the run over them."""
        options, pair = self.job.options, self.resident.pair
        self.caches = make_caches(pair.target, options.cache, options.boundary)
        stops = Stops(pair.tokenizer, None, options.stop)
        self._guide = self._guided(options, stops) if options.guided else None
        proposer = Proposer(pair.draft, pair.target) if self._with_draft else None
        lookup = Lookup() if options.draft in ("auto", "lookup") else None
        # If a grammar cuts drafts, their cost and acceptance say nothing about other answers.
        kind = (*self._key, options.grammar is not None)
        self._policies = _policies(options) or self.resident.policies(kind)
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
            policy=self._policies[0],
            room=options.max_tokens,
            blocks=blocks_of(proposer, lookup=lookup is not None),
        )

    def turn(self, output: Any = None) -> Piece | Awaited | None:
        """Read a chunk of the prompt, or decode a round.

        Args:
            output: what the last turn asked for.

        Returns:
            What is new of the answer; or what the round waits for.
        """
        try:
            step = self._turns.send(output)
        except StopIteration:
            return None
        if self.done:
            self.close()
        return step

    def close(self) -> None:
        """Release the caches."""
        self._turns.close()
        self._closing.close()

    @property
    def nbytes(self) -> int:
        """Bytes of the caches, including the drafter's context."""
        proposer = self._run.proposer
        return live_bytes(self.caches) + (proposer.nbytes if proposer else 0)

    def _all_turns(self) -> Generator[Piece | Awaited | None, Any, None]:
        if self._package is not None and (yield from self._packaged(self._package)):
            return
        self._closing.enter_context(self._run.closing())
        self._run.clock.restart()
        yield from self._restore()
        for at in self._run.reading(self.job.ids, self._chunk, self.cached):
            if self._prefixes is not None and at % self._chunk == 0:
                self._prefixes.keep(self._key, self.job.ids[:at], self.caches, self._run.proposer, self._path)
            yield None
        self.prefilling = False
        # Random draws depend on the rounds, and a seed must give the same result with other clients: share no rounds.
        repeatable = self.job.options.seed is not None and self.job.options.temperature > 0
        turns = rounds(
            self._run,
            self._guide,
            lambda: self.alone and not repeatable,
            self._policies[1],
            sharing=not repeatable,
        )
        step = next(turns, None)
        while step is not None:
            if isinstance(step, Awaited):
                step = turns.send((yield step))
            else:
                yield self._piece(*step)
                step = next(turns, None)

    def _packaged(self, package: Package) -> Generator[Piece | None, None, bool]:
        """Let the package generate the answer. Returns whether it did."""
        yield None  # it reads the whole prompt in one turn, so let the other answers have their turns first
        options = self.job.options
        sampling = {
            "temperature": options.temperature, "top_p": min(1.0, options.top_p), "top_k": options.top_k
        }  # fmt: skip
        self._run.clock.restart()
        try:
            steps = package_rounds(
                package, self._run, self.job.ids, options.max_tokens, chunk=self._chunk, **sampling
            )
            for step in steps:
                self.prefilling = False
                yield self._piece(step, None)
        except EngineError as error:
            if not self.prefilling:
                raise
            self._refused(error)
            self._begin()
            return False
        return True

    def _by_package(self, options: Options) -> Package | None:
        drawn_by_seed = options.seed is not None and options.temperature > 0
        try:
            check_options(guided=options.guided, min_p=options.min_p, drawn_by_seed=drawn_by_seed)
            return self.resident.package()
        except EngineError as error:
            self._refused(error)
            return None

    def _refused(self, error: EngineError) -> None:
        self._package = None
        self.fallback = (
            f"The dflash package was not used: {error.message}. The answer was decoded without drafts."
        )
        log.warning("%s", self.fallback)

    def _restore(self) -> Generator[None, None, None]:
        """Take the beginning of the prompt from the prefix cache. Yields to other answers while files are read."""
        if self._prefixes is None:
            return
        ids, path = self.job.ids[:-1], None
        if self._prefixes.store is not None:
            options = self.job.options
            namespace = self._prefixes.store.namespace(
                self.resident, options.cache, options.boundary, self._chunk, drafts=self._with_draft
            )
            self._path = namespace.path_of(self.job.ids)
            path = yield from self._prefixes.fetch(self._key, ids, self._path)
        self.cached = self._prefixes.restore(self._key, ids, self.caches, self._run.proposer, path)

    def _piece(self, step: Step, logprobs: Reported) -> Piece:
        self.stats.add(step)
        if warning := self.resident.watch.add(step):
            log.warning("%s: %s", self.resident.name, warning)
        self._tokens += step.tokens
        self._digest.update("".join(f"{token}," for token in step.tokens).encode())
        self.done = step.finish_reason is not None
        report = self.report() if self.done or self.job.options.live else {}
        if logprobs is not None and step.tokens and step.tokens[-1] in self._run.stops.tokens:
            logprobs = logprobs[:-1]
        return Piece(self.job.index, step.text, len(step.tokens), logprobs, step.finish_reason, report)

    def report(self) -> dict[str, Any]:
        """Return the answer's ``x_kakeya``: how it was generated."""
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
            "joint_drafts": self.joint_drafts,
            "injection": self._package.decision.strategy if self._package is not None else None,
            "stop": self._run.stops.matched,
            "closed_early": self._guide is not None and self._guide.forced_to_end,
            "token_digest": f"sha256:{self._digest.hexdigest()}",
            "prefill_seconds": self.stats.prefill,
            "decode_seconds": self.stats.seconds,
            "fallback": self.fallback,
            "agreement": self._agreement(),
            **({"token_ids": self._tokens} if self.done and self.job.options.token_ids else {}),
        }

    def _agreement(self) -> dict[str, Any] | None:
        """Return whether blocks of the model compute what single rows do, if the answer may have used any."""
        agreement = self.resident.agreement
        return agreement.as_dict() if agreement and self._run.blocks[0] > 1 else None

    def _drafts(self, options: Options) -> bool:
        if options.draft == "dflash" and self.resident.pair.draft is None:
            self.fallback = (
                f"No DFlash drafter is loaded for {self.resident.name}; it decoded without drafts."
            )
        return options.draft in ("auto", "dflash") and self.resident.pair.draft is not None

    def _guided(self, options: Options, stops: Stops) -> Guide:
        state = None
        if options.grammar:
            state = self.resident.grammars.start(options.grammar)
        return Guide(options, self.job.ids, self.resident.vocabulary, state, stops.tokens)


def _policies(options: Options) -> tuple[Policy, Policy] | None:
    """Return the policies of a request that must decide on its own: alone, and beside other answers."""
    if options.draft in ("lookup", "dflash"):
        return Fixed(), Fixed()
    if options.seed is not None and options.temperature > 0:
        return Adaptive(Nominal()), Adaptive(Nominal())
    return None
