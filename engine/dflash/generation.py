"""The state of one generation: what the draft-verify loop reads and advances."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from engine.cache.protocol import Cache
from engine.dflash.interrupts import postponed
from engine.dflash.propose.adaptive import Policy, RoundPlan
from engine.dflash.propose.costs import LOOKUP, PLAIN
from engine.dflash.propose.lookup import BLOCK, Lookup
from engine.dflash.propose.proposer import Proposer
from engine.dflash.rollback import Rollback
from engine.dflash.sampling import Sampler
from engine.dflash.step import Step, Timing
from engine.dflash.stops import Stops
from engine.dflash.target.cpu_fast_path import quick_copy, with_early_eval
from engine.mx import integers, mx, nn, on_cpu, tree

# The ways to compute a round's graphs, which differ in how often the host waits. See `stream_generate`.
LOOPS = ("lazy", "fused", "two-phase", "eager")
_DRAFTS_FIRST = ("two-phase", "eager")

FRESH = 256  # tokens after which MLX's free buffers are released, as in mlx-lm
FREED = 512  # the same for tokens of a prompt

# A call of the target with tokens and ``cache``, which returns logits and taps: layers' outputs that the drafter reads.
TappedForward = Callable[..., tuple[mx.array, mx.array | None]]


def evaluates_early(loop: str) -> bool:
    """Return whether a loop starts to compute layers while the graph is built; ``fused`` does not, for comparison."""
    return loop != "fused" and on_cpu()


def block_limits(proposer: Proposer | None, *, lookup: bool, size: int | None = None) -> tuple[int, int]:
    """Return the maximum numbers of rows to verify at once, and of rows that the draft model may draft.

    Both are ``size``, if it is given. Otherwise the model's is the one that it was trained with; drafts of prompt
    lookup may be longer.
    """
    if size is not None:
        return size, size
    model = proposer.block if proposer else 0
    return max(model, BLOCK if lookup else 1), model


def _without_taps(model: nn.Module, tokens: mx.array, cache: list[Any]) -> tuple[mx.array, None]:
    return model(tokens, cache=cache), None


class Run:
    """One generation.

    Between rounds the caches hold all committed tokens except the last one, ``pending``, with which the next round's
    forward pass begins. So the prompt's last token is pending at first, and the answer's last token is never computed.
    The caches may hold earlier tokens too. At most ``room`` tokens are committed. ``blocks`` limits the rows of a round
    (``block_limits``), and ``loop`` is one of ``LOOPS``.
    """

    def __init__(
        self,
        target: nn.Module,
        caches: list[Cache],
        *,
        rollback: Rollback,
        proposer: Proposer | None,
        lookup: Lookup | None,
        sampler: Sampler,
        stops: Stops,
        policy: Policy,
        room: int,
        blocks: tuple[int, int],
        loop: str = "lazy",
    ) -> None:
        self.caches, self.rollback = caches, rollback
        self.proposer, self.lookup = proposer, lookup
        self.sampler, self.stops, self.policy = sampler, stops, policy
        self.room, self.blocks, self.loop = room, blocks, loop
        self.finish_reason: str | None = None
        self.pending = mx.zeros((1, 0), mx.int32)
        self.clock = Clock()
        # Each wrapper around the target adds one thing. Weights stay the same, and results except for rounding.
        fast = quick_copy(target)  # a CPU computes its products over few rows faster
        reversible = rollback.prepare(fast)  # its recurrent layers record what a rollback needs
        early = with_early_eval(reversible) if evaluates_early(loop) else reversible  # layers begin at once
        self._model = early
        # Returns the taps too. Not a method: a reference cycle would keep the caches alive until the garbage
        # collector runs.
        self._forward: TappedForward = proposer.tap(early) if proposer else partial(_without_taps, early)
        self._syncs = 0
        self._prefill = 0.0

    def reading(self, ids: Sequence[int], chunk: int, start: int = 0) -> Iterator[int]:
        """Run all of the prompt but its last token through the target, ``chunk`` tokens at once, handing on the taps.

        The caches hold the first ``start`` of the ids already.

        Yields:
            How many of the ids are in the caches now. Exhaust the iterator: its end prepares the answer.
        """
        prompt = mx.array(list(ids), mx.int32)[None]
        for at in range(start, len(ids) - 1, chunk):
            end = min(at + chunk, len(ids) - 1)
            with postponed():
                self.advance(prompt[:, at:end])
                mx.eval(self.states, self.proposer.state if self.proposer else [])
            if end == len(ids) - 1 or at // FREED != end // FREED:
                mx.clear_cache()
            yield end
        self.pending = prompt[:, -1:]
        self.policy.begin()
        if self.lookup:  # matches are not observed: answers repeat themselves far more than prompts
            self.lookup.feed(ids)
        self._prefill = self.clock.restart()

    def plan(self) -> RoundPlan:
        """Return the plan of the next round."""
        block, model = self.blocks
        if self.proposer is None:
            return self.policy.choose(self.room, block, self.match, model=0)
        return self.policy.choose(self.room, block, self.match, model=model, kind=self.proposer.kind)

    @property
    def match(self) -> int:
        """How many of the last tokens agree with the looked-up match."""
        return self.lookup.length if self.lookup else 0

    @property
    def wants_drafts(self) -> bool:
        """Whether a looked-up match is worth leaving plain decoding for."""
        return self.policy.wants_drafts(self.room, self.blocks[0], self.match)

    def propose(self, plan: RoundPlan) -> tuple[mx.array, mx.array | None]:
        """Return drafts ``[1, n]``, on the device, and the distributions from which they were drawn."""
        if plan.drafter == LOOKUP and self.lookup is not None:
            return mx.array([self.lookup.propose(plan.size)], mx.int32), None
        if self.proposer is None:
            raise ValueError(f"nothing drafts by {plan.drafter}")
        drafts, drawn_from = self.proposer.propose(self.pending, plan.size, self.sampler)
        if self.proposer.config.cuts:
            self._syncs += 1
        if self.loop != "fused":
            mx.async_eval(drafts)
        if self.loop in _DRAFTS_FIRST:
            mx.eval(drafts)
            self._syncs += 1
        return drafts, drawn_from

    def accept(
        self, logits: mx.array, drafts: mx.array, drawn_from: mx.array | None
    ) -> tuple[int, int, list[int]]:
        """Wait for the result of a round: the number of accepted drafts, the token after them, and all drafts."""
        if self.loop == "eager":
            return self._accept_each(logits, drafts)
        return self.outcome(self.judge(logits, drafts, drawn_from))

    def judge(self, logits: mx.array, drafts: mx.array, drawn_from: mx.array | None) -> mx.array:
        """Return the result of a round on the device: accepted drafts, the token after them, and all drafts."""
        accepted, following = self.sampler.accept(logits, drafts, drawn_from)
        return mx.concatenate([accepted, following.astype(mx.int32), drafts[0]])

    def outcome(self, verdict: mx.array) -> tuple[int, int, list[int]]:
        """Wait for what ``judge`` returned. It is the round's only wait, if the loop is lazy or fused."""
        n, last, *proposed = self.read(verdict)
        return n, last, proposed

    def _accept_each(self, logits: mx.array, drafts: mx.array) -> tuple[int, int, list[int]]:
        """Read the target's choices one by one, up to the first that differs from its draft."""
        proposed = self.read(drafts[0])
        for i, draft in enumerate(proposed):
            (chosen,) = self.read(mx.argmax(logits[:, i], axis=-1))
            if chosen != draft:
                return i, chosen, proposed
        (last,) = self.read(mx.argmax(logits[:, -1], axis=-1))
        return len(proposed), last, proposed

    def advance(self, tokens: mx.array) -> mx.array:
        """Run tokens ``[1, L]`` that are kept in any case; return their logits."""
        logits: mx.array
        logits, taps = self.rollback.advance(self._forward, tokens)
        self._feed(taps, tokens)
        return logits

    def forward(self, tokens: mx.array) -> tuple[mx.array, mx.array | None]:
        """Open a round: return logits and taps of tokens ``[1, L]``, on the device."""
        output: tuple[mx.array, mx.array | None] = self.rollback.forward(self._forward, tokens)
        return output

    def read(self, tokens: mx.array) -> list[int]:
        """Wait for integers from the device: a synchronisation."""
        self._syncs += 1
        return integers(tokens)

    def keep(self, rows: int, taps: mx.array | None, tokens: mx.array | None = None) -> None:
        """Close the round: the first ``rows`` of its tokens, ``[1, L]``, are in the caches now.

        A head needs the tokens, to draft after them.
        """
        self.rollback.commit(rows)
        if taps is not None:
            self._feed(taps[:, :rows], None if tokens is None else tokens[:, :rows])

    def take(self, tokens: Sequence[int]) -> tuple[tuple[int, ...], str]:
        """Commit tokens up to the first stop or the limit; return them, and the text that became final."""
        cut = self.stops.take(tokens)
        if self.room // FRESH != (self.room - len(cut.tokens)) // FRESH:
            mx.clear_cache()  # rounds of many sizes leave buffers of many sizes behind
        self.room -= len(cut.tokens)
        self.pending = mx.array([cut.tokens[-1:]], mx.int32)
        if self.lookup:
            self.policy.observe_matches(self.lookup.feed(cut.tokens))
        if cut.stopped:
            self.finish_reason = "stop"
        elif not self.room:
            self.finish_reason = "length"
            return cut.tokens, cut.text + self.stops.flush()
        return cut.tokens, cut.text

    def report(
        self,
        plan: RoundPlan,
        match: int,
        accepted: int,
        tokens: tuple[int, ...],
        text: str,
        verified: int | None = None,
    ) -> Step:
        """Return the round's step; the policy learns from the round.

        ``match`` is the looked-up match's length when the round was planned. ``accepted`` counts the drafts that the
        target agreed with, also those after a stop. ``verified`` is the number of verified drafts, if not all were.
        """
        timing, prefill = self.clock.stop(), self._prefill
        self._prefill = 0.0
        if verified is not None:
            # The first draft that was cut is known to be wrong; nothing is known about the later ones.
            plan = replace(plan, size=verified + 1)
        self.policy.learn(plan, match, accepted, timing.total)
        plain = plan.drafter == PLAIN
        return Step(
            tokens,
            accepted=min(accepted, len(tokens)),
            text=text,
            drafter=plan.drafter,
            proposed=0 if plain else plan.size if verified is None else verified,
            finish_reason=self.finish_reason,
            timing=timing,
            syncs=self._syncs,
            prefill=prefill,
        )

    @contextmanager
    def closing(self) -> Iterator[None]:
        """When the block ends for any reason, bring the caches into the state between two rounds."""
        try:
            yield
        finally:
            with postponed():
                self.rollback.settle(self._model)
                # Another thread may use the caches next, and could not finish this one's computations.
                mx.eval(self.states)

    def _feed(self, taps: mx.array | None, tokens: mx.array | None) -> None:
        if taps is not None and self.proposer is not None:
            self.proposer.feed(taps, tokens)

    @property
    def states(self) -> list[mx.array]:
        """All arrays in the caches, for evaluation."""
        leaves = tree.tree_flatten([cache.state for cache in self.caches])
        return [leaf for _, leaf in leaves if isinstance(leaf, mx.array)]


class Clock:
    """Times the phases of a round: drafting, verifying, and the rest."""

    def __init__(self) -> None:
        self._laps: dict[str, float] = {}
        self._start = self._last = time.perf_counter()

    def restart(self) -> float:
        """Begin a round; return the seconds since the last one began."""
        now = time.perf_counter()
        passed, self._start, self._last = now - self._start, now, now
        self._laps = {}
        return passed

    def lap(self, name: str) -> None:
        """Record the time since the last lap as ``draft``, ``verify`` or ``wait``."""
        now = time.perf_counter()
        self._laps[name] = self._laps.get(name, 0.0) + now - self._last
        self._last = now

    def stop(self) -> Timing:
        """Return the round's measured times. All other time since the round began is overhead."""
        total = time.perf_counter() - self._start
        draft, verify, wait = (self._laps.get(name, 0.0) for name in ("draft", "verify", "wait"))
        return Timing(draft, verify + wait, max(0.0, total - draft - verify - wait), wait)
