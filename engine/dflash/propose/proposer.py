"""The draft model's side of a generation: its context of target states, and its drafts."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeGuard

from engine.dflash.drafter.context import DraftContext
from engine.dflash.drafter.dspark import count_confident
from engine.dflash.drafter.model import Block, DFlashDrafter, states_of
from engine.dflash.sampling import Sampler
from engine.dflash.shape import DFLASH
from engine.dflash.target.taps import Tapped
from engine.mx import mx, nn

WAITING = 64  # rows of taps that may wait for the next draft
Drafts = tuple[mx.array, mx.array | None]


class Proposer:
    """A drafter bound to a target, with the context of one generation.

    Taps are read together with the next draft. While nothing is drafted, a limited number of rows of taps wait. The
    first ``start`` tokens in the target's caches are never seen.

    Raises:
        BadInput: the drafter was made for another target.
    """

    def __init__(self, draft: DFlashDrafter, target: nn.Module, start: int = 0) -> None:
        self.config = draft.config
        self.block = self.config.verified_rows  # the most to verify
        self.bound = draft.bind(target)
        self.unread = self.bound.make_cache(start)  # the context without the taps that wait
        self._waiting: list[mx.array] = []

    def tap(self, model: nn.Module) -> Callable[..., tuple[mx.array, mx.array]]:
        """Return a function that is called like the model, and returns logits and taps."""
        return Tapped(model, self.config.target_layer_ids).forward

    def feed(self, taps: mx.array) -> None:
        """Read the taps ``[1, rows, chosen * hidden]`` of committed tokens, now or with the next draft."""
        self._waiting.append(taps)
        if sum(part.shape[1] for part in self._waiting) >= WAITING:
            mx.async_eval(self.context.state)

    @property
    def context(self) -> DraftContext:
        """The context after reading all waiting taps. Copy it to keep it."""
        if (waited := self.take_taps()) is not None:
            self.bound.absorb(waited, self.unread)
        return self.unread

    def restore(self, context: DraftContext) -> None:
        """Continue with a copy of a kept context."""
        self._waiting, self.unread = [], context

    @property
    def state(self) -> list[mx.array]:
        """Everything that is kept, to be evaluated."""
        return [*self._waiting, *self.unread.state]

    @property
    def nbytes(self) -> int:
        """Bytes of the context."""
        return self.unread.nbytes

    def propose(self, pending: mx.array, n: int, sampler: Sampler) -> Drafts:
        """Draft ``n`` tokens after the last committed one, ``[1, 1]``. Nothing is computed before it is read.

        Returns drafts ``[1, n]``, int32, fewer if the drafter's confidence cuts the block; and the probabilities
        ``[1, n, vocabulary]`` that they were drawn from, None if nothing was drawn.
        """
        drawn: list[mx.array] = []

        def pick(logits: mx.array) -> mx.array:
            chosen, probabilities = sampler.draw(logits)
            if probabilities is not None:
                drawn.append(probabilities)
            return chosen

        drafts = self.bound.propose(
            pending, self.take_taps(), self.unread, n, None if sampler.greedy else pick
        )
        if self.config.cuts and drafts.confidences is not None:
            n = count_confident(drafts.confidences, self.config.confidence_threshold)
        tokens = drafts.tokens[:, :n].astype(mx.int32)
        if not drawn:
            return tokens, None
        drawn_from = mx.concatenate(drawn, axis=1)[:, :n]
        if drafts.candidates is not None:
            everything = mx.zeros((1, n, self.config.vocab_size))
            drawn_from = mx.put_along_axis(everything, drafts.candidates, drawn_from, axis=-1)
        return tokens, drawn_from

    def take_taps(self) -> mx.array | None:
        """Return the waiting taps, ``[1, rows, chosen * hidden]``, and clear them."""
        parts, self._waiting = self._waiting, []
        return mx.concatenate(parts, axis=1) if parts else None


class Wanted(NamedTuple):
    """A generation's request for ``n`` drafts after its last committed token ``pending``, ``[1, 1]``."""

    proposer: Proposer
    pending: mx.array
    n: int
    sampler: Sampler


def can_share(proposers: Sequence[Proposer | None]) -> TypeGuard[Sequence[Proposer]]:
    """Return whether generations can draft together: they share one drafter, whose rows interact only in attention."""
    present = [each for each in proposers if each is not None]
    if len(present) < len(proposers) or len({id(each.bound.fused) for each in present}) != 1:
        return False
    return present[0].config.architecture == DFLASH


def batched_drafts(wanted: Sequence[Wanted]) -> list[Drafts]:
    """Return each drafter's drafts and their distributions, as ``Proposer.propose`` does.

    The drafter's layers run once over all blocks. The results differ from single drafts by rounding, which changes a
    proposal now and then, but never the target's choice.
    """
    embeddings = wanted[0].proposer.bound.embeddings
    hidden = states_of([Block(p.bound, pending, p.take_taps(), p.unread, n) for p, pending, n, _ in wanted])
    ends = list(accumulate(each.n for each in wanted[:-1]))
    drafts: list[Drafts] = []
    for each, raw in zip(wanted, mx.split(embeddings.logits(mx.concatenate(hidden)), ends), strict=True):
        logits = raw if each.sampler.greedy else embeddings.cap(raw)  # the cap keeps the order
        tokens, drawn_from = each.sampler.draw(logits[None])
        drafts.append((tokens.astype(mx.int32), drawn_from))
    mx.async_eval([tokens for tokens, _ in drafts])
    return drafts
