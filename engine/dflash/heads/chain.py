"""Drafts a chain with a head of one layer, on the taps and caches of the decoding loop."""

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from engine.dflash.drafter.protocol import Proposal, largest, token_array
from engine.dflash.heads.context import HeadContext
from engine.errors import BadInput
from engine.lm import base
from engine.mx import mx


class Head(Protocol):
    """What differs between the kinds of heads. Arrays are ``[1, rows, ...]``."""

    taps_size: int  # values of one position's concatenated taps
    hidden_size: int  # values of a feature

    def feature(self, taps: mx.array) -> mx.array:
        """Return the features of taps, which begin a chain."""

    def step(self, tokens: mx.array, features: mx.array, mask: Any, cache: Any) -> mx.array:
        """Return the layer's output for tokens, each with the feature of the position before it."""

    def logits(self, output: mx.array) -> mx.array:
        """Return the logits over the draft vocabulary."""

    def recycled(self, output: mx.array) -> mx.array:
        """Return the features of drafted tokens."""

    def target_ids(self, drafts: mx.array) -> mx.array:
        """Return the target's ids of tokens of the draft vocabulary."""

    def candidates(self) -> mx.array | None:
        """Return the target's ids of the whole draft vocabulary; None if that is the target's own."""


class BoundHead:
    """A head with its target's embeddings, for one generation. The state is in the contexts of ``make_cache``."""

    def __init__(self, head: Head) -> None:
        self.head = head

    @property
    def shared(self) -> Hashable:
        """Heads draft for each generation apart."""
        return None

    def make_cache(self, offset: int = 0) -> HeadContext:
        """Return an empty context, whose first token will be at position ``offset``."""
        return HeadContext(offset)

    def absorb(self, taps: mx.array, context: HeadContext, tokens: mx.array | None = None) -> None:
        """Append accepted tokens ``[1, new]`` with their taps ``[1, new, chosen * hidden]``, without drafting.

        Of the layer, only keys and values are computed.

        Raises:
            BadInput: taps or tokens have another shape.
        """
        new = taps.shape[1]
        if taps.shape != (1, new, self.head.taps_size) or tokens is None or tokens.shape != (1, new):
            shape = None if tokens is None else list(tokens.shape)
            raise BadInput(
                f"taps are {list(taps.shape)} and tokens {shape}, not [1, new, {self.head.taps_size}] and [1, new]",
                "give the target's chosen layers side by side, and the tokens that they belong to",
            )
        features = self.head.feature(taps)
        before = features[:, :-1]
        if context.feature is not None:
            before = mx.concatenate([context.feature, before], axis=1)
        else:
            tokens = tokens[:, 1:]
        if before.shape[1]:
            self._step(tokens, before, context)
        context.feature = features[:, -1:]
        context.offset += new

    def propose(
        self,
        bonus: int | mx.array,
        taps: mx.array | None,
        context: HeadContext,
        n_drafts: int,
        pick: Callable[[mx.array], mx.array] | None = None,
        tokens: mx.array | None = None,
    ) -> Proposal:
        """Draft the tokens after ``bonus``; see ``engine.dflash.drafter.protocol.BoundDrafter``."""
        if n_drafts < 1:
            raise BadInput(f"{n_drafts} tokens to draft", "1 or more")
        if taps is not None and taps.shape[1]:
            self.absorb(taps, context, tokens)
        head, rows = self.head, context.cache.offset
        token, feature = token_array(bonus)[None].astype(mx.int32), context.feature
        if feature is None:  # no token was read before the first: nothing is known of it
            feature = mx.zeros((1, 1, head.hidden_size))
        picked, scores = [], []
        for i in range(n_drafts):
            output = self._step(token, feature, context)
            scores.append(head.logits(output))
            picked.append((pick or largest)(scores[-1]))
            token = head.target_ids(picked[-1])
            if i + 1 < n_drafts:
                feature = head.recycled(output)
        context.cache.offset = rows
        ids, candidates = head.target_ids(mx.concatenate(picked, axis=1)), head.candidates()
        if candidates is not None:
            candidates = mx.broadcast_to(candidates, (1, n_drafts, candidates.size))
        return Proposal(ids, mx.concatenate(scores, axis=1), candidates)

    def _step(self, tokens: mx.array, features: mx.array, context: HeadContext) -> mx.array:
        mask = base.create_attention_mask(features, context.cache)
        return self.head.step(tokens, features, mask, context.cache)
