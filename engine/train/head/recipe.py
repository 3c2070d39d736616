"""The recipe for training an EAGLE-3 head: training-time test, as in the paper (https://arxiv.org/abs/2503.01840).

A head drafts its second token from its own output, which the target never computed. So training unrolls a few steps:
each reads the outputs of the step before in place of the target's features, with the text's tokens. The target's text
is its own: it answers the prompts itself.
"""

from dataclasses import dataclass

import numpy as np

from engine.train import run


@dataclass(frozen=True, kw_only=True)
class HeadPlan(run.TrainingPlan):
    """The settings of a training. One step uses ``rows`` rows, from each of whose positions a chain is drafted."""

    rows: int = 8
    unroll: int = 3  # drafts of a chain in training
    decay: float = 0.8  # each further draft of a chain counts this much of the one before
    length: int = 160  # tokens of a row


def vocabulary_of(ids: np.ndarray, size: int, tokens: int) -> list[int]:
    """Return the ``size`` most frequent of ``tokens`` ids in a text, in rising order; rare ids fill the rest."""
    counts = np.bincount(ids.astype(np.int64), minlength=tokens)[:tokens]
    order = np.argsort(-counts, kind="stable")[: min(size, tokens)]
    return sorted(order.tolist())
