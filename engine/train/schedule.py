"""What learns, and its rates over a run: a short warm-up, then a cosine down to a floor."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

MATRIX = 2  # dimensions of a matrix: Muon's, where the rest is AdamW's


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How many steps, and how fast at each."""

    steps: int  # of the whole run
    matrix_rate: float  # the highest rate of the matrices, which Muon moves
    other_rate: float  # that of the rest, which AdamW moves
    warm_up: int  # steps over which the rate rises in a straight line
    floor: float = 0.02  # the factor that is left at the end
    clip: float = 1.0  # the norm to which gradients are cut

    @property
    def rates(self) -> tuple[float, float]:
        """The highest rates, of matrices and of the rest."""
        return self.matrix_rate, self.other_rate

    def rate(self, step: int) -> float:
        """Return the factor on the rates at ``step``."""
        if step < self.warm_up:
            return (step + 1) / self.warm_up
        done = (step - self.warm_up) / max(1, self.steps - self.warm_up)
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


class Learner(Protocol):
    """What learns, its target and its optimizer, in one library or another.

    Attributes:
        suffix: of the files that :meth:``save`` writes.
        about: what a run has to agree on, beside the plan, to go on from a checkpoint.
    """

    suffix: str
    about: Mapping[str, object] = {}

    def learn(self, batch: Any, step: int) -> dict[str, float]:
        """Take one step on a batch; return figures from before it, ``loss`` among them."""

    def save(self, path: Path) -> None:
        """Write weights and moments."""

    def load(self, path: Path) -> None:
        """Continue from the files of :meth:``save``."""

    def measured(self) -> dict[str, float]:
        """Return figures that take a while to measure, such as the held-out loss; empty if there are none."""
        return {}

    def finish(self) -> None:
        """Copy the learned weights into the model, unless they are its own."""
        return
