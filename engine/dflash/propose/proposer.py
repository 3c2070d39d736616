"""The draft model's side of a generation: its context of target states, and its drafts."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeGuard, cast

from engine.dflash.drafter.dspark import count_confident
from engine.dflash.drafter.model import Block, BoundDFlash, states_of
from engine.dflash.drafter.protocol import Drafter
from engine.dflash.sampling import Sampler
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

    def __init__(self, draft: Drafter, target: nn.Module, start: int = 0) -> None:
        self.kind, self.config = draft.kind, draft.config
        self.layer_ids = draft.layer_ids(target)
        self.block = self.config.verified_rows  # the most to verify
        self.bound = draft.bind(target)
        self.unread = self.bound.make_cache(start)  # the context without the taps that wait
        self._waiting: list[mx.array] = []  # taps, and the tokens that they belong to
        self._tokens: list[mx.array] = []

    def tap(self, model: nn.Module) -> Callable[..., tuple[mx.array, mx.array]]:
        """Return a function that is called like the model, and returns logits and taps."""
        return Tapped(model, self.layer_ids).forward

    def feed(self, taps: mx.array, tokens: mx.array | None = None) -> None:
        """Read committed tokens ``[1, rows]`` and taps ``[1, rows, chosen * hidden]``, now or with the next draft.

        DFlash drafters read no tokens.
        """
        self._waiting.append(taps)
        if tokens is not None:
            self._tokens.append(tokens)
        if sum(part.shape[1] for part in self._waiting) >= WAITING:
            mx.async_eval(self.context.state)

    @property
    def context(self) -> Any:
        """The context after reading all waiting taps. Copy it to keep it."""
        taps, tokens = self.take_waiting()
        if taps is not None:
            self.bound.absorb(taps, self.unread, tokens)
        return self.unread

    def restore(self, context: Any) -> None:
        """Continue with a copy of a kept context."""
        self._waiting, self._tokens, self.unread = [], [], context

    @property
    def state(self) -> list[mx.array]:
        """Everything that is kept, to be evaluated."""
        return [*self._waiting, *self._tokens, *self.unread.state]

    @property
    def nbytes(self) -> int:
        """Bytes of the context."""
        size: int = self.unread.nbytes
        return size

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

        taps, known = self.take_waiting()
        drafts = self.bound.propose(pending, taps, self.unread, n, None if sampler.greedy else pick, known)
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

    def take_waiting(self) -> tuple[mx.array | None, mx.array | None]:
        """Return the waiting taps, ``[1, rows, chosen * hidden]``, and their tokens, ``[1, rows]``, and clear both."""
        taps, tokens = (
            mx.concatenate(parts, axis=1) if parts else None for parts in (self._waiting, self._tokens)
        )
        self._waiting, self._tokens = [], []
        return taps, tokens


class Wanted(NamedTuple):
    """A generation's request for ``n`` drafts after its last committed token ``pending``, ``[1, 1]``."""

    proposer: Proposer
    pending: mx.array
    n: int
    sampler: Sampler


def can_share(proposers: Sequence[Proposer | None]) -> TypeGuard[Sequence[Proposer]]:
    """Return whether generations can draft together: they share one drafter, whose rows interact only in attention."""
    groups = {None if each is None else each.bound.shared for each in proposers}
    return len(groups) == 1 and None not in groups


def batched_drafts(wanted: Sequence[Wanted]) -> list[Drafts]:
    """Return each drafter's drafts and their distributions, as ``Proposer.propose`` does.

    The drafter's layers run once over all blocks. The results differ from single drafts by rounding, which changes a
    proposal now and then, but never the target's choice.
    """
    bounds = [cast("BoundDFlash", each.proposer.bound) for each in wanted]  # nothing else can share
    embeddings = bounds[0].embeddings
    blocks = [
        Block(bound, pending, p.take_waiting()[0], p.unread, n)
        for bound, (p, pending, n, _) in zip(bounds, wanted, strict=True)
    ]
    hidden = states_of(blocks)
    ends = list(accumulate(each.n for each in wanted[:-1]))
    drafts: list[Drafts] = []
    for each, raw in zip(wanted, mx.split(embeddings.logits(mx.concatenate(hidden)), ends), strict=True):
        logits = raw if each.sampler.greedy else embeddings.cap(raw)  # the cap keeps the order
        tokens, drawn_from = each.sampler.draw(logits[None])
        drafts.append((tokens.astype(mx.int32), drawn_from))
    mx.async_eval([tokens for tokens, _ in drafts])
    return drafts
