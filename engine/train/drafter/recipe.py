"""The recipe for training a DFlash drafter, for both libraries.

The target reads rows of text, written by people and by itself, and predicts the next token at each position. The
drafter learns to predict the same, several positions ahead at once. No gradient goes through the target; its
embedding and head are used unchanged.
"""

from dataclasses import dataclass

import numpy as np

from engine.train import run

TOP = 24  # the target's largest probabilities that are kept per position


@dataclass(frozen=True, kw_only=True)
class DrafterPlan(run.TrainingPlan):
    """The settings of a training. One step uses ``rows`` rows with ``anchors`` blocks each.

    The target reads ``pool`` rows at a time, and each row is used in ``uses`` steps with other anchors.
    """

    rows: int = 8
    anchors: int = 64
    block: int = 8
    decay: float = 4.0  # slot j of a block has the weight exp(-j / decay)
    shortlist: bool = False  # compute the loss only over the target's likely tokens, and some others
    off_path: float = 0.1  # the weight of slots after one where the text differs from the target's choice

    def anchor_positions(self, step: int, length: int) -> np.ndarray:
        """Return the starts of a step's blocks in rows of ``length``: ``[rows, anchors]`` int32, sorted.

        Each is at least 1 and has a block's drafts after it.
        """
        rng = np.random.default_rng((self.seed, step))
        possible = np.arange(1, length - self.block)
        drawn = [rng.choice(possible, self.anchors, replace=False) for _ in range(self.rows)]
        return np.sort(np.stack(drawn), axis=1).astype(np.int32)
