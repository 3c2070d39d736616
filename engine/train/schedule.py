"""The learning rate over a run: a short warm-up, then a cosine down to a floor."""

import math
from dataclasses import dataclass

MATRIX = 2  # dimensions of a matrix: Muon's, where the rest is AdamW's


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How many steps, and how fast at each.

    Attributes:
        steps: of the whole run.
        warm_up: steps over which the rate rises in a straight line.
        floor: the factor that is left at the end.
    """

    steps: int
    warm_up: int
    floor: float = 0.02

    def rate(self, step: int) -> float:
        """Return the factor on the learning rates at ``step``."""
        if step < self.warm_up:
            return (step + 1) / self.warm_up
        done = (step - self.warm_up) / max(1, self.steps - self.warm_up)
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
