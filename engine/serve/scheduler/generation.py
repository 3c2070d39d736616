"""Generates one answer in turns. A turn is a chunk of its prompt or a round of decoding."""

import logging
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

from engine.cache import make_caches
from engine.dflash.generation import Run, block_limits
from engine.dflash.kinds import KINDS
from engine.dflash.propose.adaptive import Adaptive, Fixed, Policy
from engine.dflash.propose.costs import Nominal
from engine.dflash.propose.lookup import Lookup
from engine.dflash.propose.proposer import Proposer
from engine.dflash.rollback import rollback_for
from engine.dflash.sampling import Sampler, Sampling
from engine.dflash.step import Step
from engine.dflash.stops import Stops
from engine.errors import EngineError
from engine.inject import NAME as PACKAGE
from engine.inject.package import Package, check_options
from engine.inject.package import rounds as package_rounds
from engine.live_bytes import live_bytes
from engine.serve.backend import Job, Options, Piece
from engine.serve.prefix_cache.prefix import BlockPath, Prefixes
from engine.serve.resident import Resident
from engine.serve.scheduler.guide import Guide
from engine.serve.scheduler.rounds import Awaited, Reported, rounds
from engine.serve.turns.kit import Answer

log = logging.getLogger("engine.serve")


class Generation(Answer):
    """An answer in progress, with its caches. The prompt is read in chunks of ``chunk`` tokens."""

    def __init__(self, job: Job, resident: Resident, chunk: int, prefixes: Prefixes | None = None) -> None:
        super().__init__(job)
        self.resident = resident
        self._closing = ExitStack()
        self._chunk, self._prefixes = chunk, prefixes if job.options.prefix else None
        self._path: BlockPath | None = None
        options, drafter = job.options, resident.pair.draft
        self._package = self._by_package(options) if options.draft == PACKAGE else None
        self._with_draft = drafter is not None and options.draft in ("auto", drafter.kind)
        if options.draft in KINDS and not self._with_draft:
            title = KINDS[options.draft].title
            self.fallback = f"No {title} drafter is loaded for {resident.name}; it decoded without drafts."
        self._key = (resident.name, options.cache, options.boundary, self._with_draft)
        self._begin()
        self._turns = self._all_turns()

    def _begin(self) -> None:
        options, pair = self.job.options, self.resident.pair
        self.caches = make_caches(pair.target, options.cache, options.boundary)
        splitter = options.splitter() if options.splitter is not None and options.stop else None
        stops = Stops(pair.tokenizer, None, options.stop, splitter)
        self._guide = None
        if options.guided:
            state = options.grammar.start() if options.grammar else None
            self._guide = Guide(options, self.job.ids, self.resident.vocabulary, state, stops.tokens)
        proposer = Proposer(pair.draft, pair.target) if self._with_draft else None
        # A seed must give the same result whatever was answered before, and draws depend on the rounds.
        answers = None if options.drawn_by_seed else self.resident.answers
        lookup = Lookup(answers=answers) if options.draft in ("auto", "lookup") else None
        # A grammar cuts drafts, so their cost and acceptance say nothing about answers without a grammar.
        kind = (*self._key, options.grammar is not None)
        self._policies = _policies(options) or self.resident.policies(kind)
        sampling = Sampling(options.temperature, options.top_k, options.top_p, options.min_p)
        self._run = Run(
            pair.target,
            self.caches,
            rollback=rollback_for(self.caches, "auto", pair.target),
            proposer=proposer,
            lookup=lookup,
            sampler=Sampler(sampling, options.seed),
            stops=stops,
            policy=self._policies[0],
            room=options.max_tokens,
            blocks=block_limits(
                proposer, lookup=lookup is not None, size=self.resident.block_size if proposer else None
            ),
        )

    def turn(self, output: Any = None) -> Piece | Awaited | None:
        """Read a chunk of the prompt, or decode a round.

        Returns a new piece of the answer; or the computation for which the round waits, whose result is the next turn's
        ``output``.
        """
        step = self._turns.send(output)
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
            if self._prefixes is not None and self._path is not None and at % self._chunk == 0:
                self._prefixes.keep(self._path, at, self.caches, self._run.proposer)
            yield None
        self.prefilling = False
        # An answer with a seed shares no rounds: random draws depend on the rounds, and a seed must give the
        # same result beside other clients.
        sharing = not self.job.options.drawn_by_seed
        shared = self._policies[1]
        yield from rounds(
            self._run, self._guide, lambda: self.alone and sharing, shared, self._piece, sharing=sharing
        )

    def _packaged(self, package: Package) -> Generator[Piece | None, None, bool]:
        """Let the package generate the answer. Returns whether it did."""
        yield None  # the package reads the whole prompt in one turn, so other answers have their turns first
        options = self.job.options
        self._run.clock.restart()
        top_p = min(1.0, options.top_p)
        sampling = {"temperature": options.temperature, "top_p": top_p, "top_k": options.top_k}
        most = options.max_tokens
        steps = package_rounds(package, self._run, self.job.ids, most, chunk=self._chunk, **sampling)
        try:
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
        try:
            check_options(guided=options.guided, min_p=options.min_p, drawn_by_seed=options.drawn_by_seed)
            return self.resident.load_package()
        except EngineError as error:
            self._refused(error)
            return None

    def _refused(self, error: EngineError) -> None:
        self._package = None
        reason = f"The dflash package was not used: {error.message}."
        self.fallback = f"{reason} The answer was decoded without drafts."
        log.warning("%s", self.fallback)

    def _restore(self) -> Generator[None, None, None]:
        """Take the beginning of the prompt from the prefix cache. Yields to other answers while files are read."""
        if self._prefixes is None:
            return
        namespace, store = None, self._prefixes.store
        if store is not None:
            kind = (self.job.options.cache, self.job.options.boundary, self._chunk)
            namespace = store.namespace(self.resident, *kind, drafts=self._with_draft)
        self._path = self._prefixes.path_of(self._key, self.job.ids, namespace)
        most = len(self.job.ids) - 1  # the last token must be computed
        self.cached = yield from self._prefixes.restore(self._path, most, self.caches, self._run.proposer)

    def _piece(self, step: Step, logprobs: Reported) -> Piece:
        if warning := self.resident.watch.add(step):
            log.warning("%s: %s", self.resident.name, warning)
        piece = self._add(step, logprobs, self._run.stops)
        if self.done:
            self.resident.answers.add(self._tokens)
        return piece

    def _own_report(self) -> dict[str, Any]:
        agreement = self.resident.agreement
        return {
            "injection": self._package.decision.strategy if self._package is not None else None,
            "closed_early": self._guide is not None and self._guide.forced_to_end,
            "agreement": agreement.as_dict() if agreement and self._run.blocks[0] > 1 else None,
        }


def _policies(options: Options) -> tuple[Policy, Policy] | None:
    """Return fresh policies for a request that must decide alone: one for an answer alone, one beside other answers."""
    if options.draft == "lookup" or options.draft in KINDS:
        return Fixed(), Fixed()
    if options.drawn_by_seed:
        return Adaptive(Nominal()), Adaptive(Nominal())
    return None
