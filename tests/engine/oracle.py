"""A drafter that knows the answer and errs on purpose, so that every count of accepted drafts occurs."""

from types import SimpleNamespace

import numpy as np

from engine.dflash.drafter.context import DraftContext
from engine.dflash.drafter.model import Proposal
from engine.mx import mx


class Oracle:
    """Proposes a known continuation, right up to a planned place.

    It goes by the context's length alone, which is what it was fed: a row too few or too many, and nothing
    that it says fits any more.

    Args:
        known: prompt and continuation.
        plan: for each round in turn, how many drafts are right; it starts over at its end.
        block: rows of a block.
        layers: the target's layers to tap.

    Attributes:
        taps: all that it was fed, ``[rows, chosen * hidden]``.
    """

    def __init__(self, known, plan=(99,), block=8, layers=(0, 2), vocabulary=128):
        self.known, self.plan, self.rounds = list(known), plan, 0
        self.config = SimpleNamespace(
            block_size=block, verified_rows=block, cuts=False, target_layer_ids=layers, vocab_size=vocabulary
        )
        self.fed = []

    @property
    def taps(self):
        return np.concatenate([np.array(part) for part in self.fed])

    kind, shared = "dflash", None

    def layer_ids(self, _):
        return self.config.target_layer_ids

    def bind(self, _):
        return self

    def make_cache(self, offset=0):
        return DraftContext([], offset)

    def absorb(self, taps, context, tokens=None):  # noqa: ARG002
        self.fed.append(taps[0])
        context.offset += taps.shape[1]

    def propose(self, bonus, taps, context, n, pick=None, tokens=None):  # noqa: ARG002 - it needs no bonus
        if taps is not None:
            self.absorb(taps, context)
        at = context.offset + 1
        drafts = (self.known[at : at + n] + [0] * n)[:n]
        right = self.plan[self.rounds % len(self.plan)]
        self.rounds += 1
        drafts = [
            token if i < right else (token + 1) % self.config.vocab_size for i, token in enumerate(drafts)
        ]
        logits = mx.where(mx.arange(self.config.vocab_size) == mx.array([drafts])[..., None], 2.0, 0.0)
        return Proposal(mx.array([drafts]) if pick is None else pick(logits), logits)
