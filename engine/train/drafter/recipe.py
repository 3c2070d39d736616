"""What a DFlash drafter learns, with either library.

The target reads rows of text, written by people and by itself, and says what it would have written after
each position. The drafter learns to say the same, several positions ahead at once. No gradient goes through
the target; its embedding and head serve the drafter as they are.
"""

from dataclasses import dataclass

import numpy as np

from engine.train import run

TOP = 24  # probabilities of the target that are kept a position


@dataclass(frozen=True, kw_only=True)
class DrafterPlan(run.TrainingPlan):
    """How long and how fast. One step is ``rows`` rows with ``anchors`` blocks each.

    The target reads ``pool`` rows at a time, and each serves ``uses`` steps with other anchors.
    """

    rows: int = 8
    anchors: int = 64
    block: int = 8
    decay: float = 4.0  # slot j of a block weighs exp(-j / decay)
    shortlist: bool = False  # compare with the tokens that the target thinks of in the batch, and some others
    off_path: float = 0.1  # the weight of slots behind one where the text is not what the target would write

    def places(self, step: int, length: int) -> np.ndarray:
        """Return the starts of a step's blocks in rows of ``length``: ``[rows, anchors]`` int32, sorted.

        Each is at least 1 and has a block's drafts after it.
        """
        rng = np.random.default_rng((self.seed, step))
        possible = np.arange(1, length - self.block)
        drawn = [rng.choice(possible, self.anchors, replace=False) for _ in range(self.rows)]
        return np.sort(np.stack(drawn), axis=1).astype(np.int32)
