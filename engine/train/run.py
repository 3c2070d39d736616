"""A training run in a folder, for any kind of model: rates, rows, steps, checkpoints, a log."""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from bridge.common.whole_files import atomic_write
from engine.errors import BadInput

MATRIX = 2  # dimensions of a matrix: Muon's, where the rest is AdamW's

Source = Callable[[np.random.Generator, int], np.ndarray]  # returns a number of rows of ids, `[rows, length]`
Batches = Callable[[int], Any]  # returns the batch of a step, which interruptions of the run never change


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The number of steps and their learning rates: a short warm-up, then a cosine down to a floor."""

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


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(Schedule):
    """The settings of a training. One step uses ``rows`` rows.

    The target reads ``pool`` rows at a time, and each row is used in ``uses`` steps.
    """

    rows: int
    pool: int = 32
    uses: int = 4
    matrix_rate: float = 0.012
    other_rate: float = 1.5e-3
    warm_up: int = 50
    seed: int = 0


class Learner(Protocol):
    """A model to train, its target and its optimizer, in any library."""

    suffix: str  # of the files that `save` writes
    about: Mapping[str, object] = {}  # beside the plan, what must be equal to continue from a checkpoint

    def learn(self, batch: Any, step: int) -> dict[str, float]:
        """Take one step on a batch; return figures from before it, ``loss`` among them."""

    def save(self, path: Path) -> None:
        """Write weights and moments."""

    def load(self, path: Path) -> None:
        """Continue from the files of ``save``."""

    def measured(self) -> dict[str, float]:
        """Return figures that take a while to measure, such as the held-out loss; empty if there are none."""
        return {}

    def finish(self) -> None:
        """Copy the learned weights into the model, unless they are its own."""
        return


class Reader(Learner, Protocol):
    """A learner that trains on its target's outputs."""

    def read(self, rows: np.ndarray) -> Any:
        """Let the target read ``rows`` ``[rows, length]``; return a batch."""


L = TypeVar("L", bound=Learner)


class Pool:
    """Batches of rows that a target has read: it reads ``pool`` rows at a time, and each is used in ``uses`` steps.

    ``read`` lets the target read rows ``[rows, length]``, and returns the data to learn from.
    """

    def __init__(self, read: Callable[[np.ndarray], Any], source: Source, plan: TrainingPlan) -> None:
        self.read, self.source, self.plan = read, source, plan
        self.pool: tuple[int, list[Any]] = (-1, [])

    def __call__(self, step: int) -> Any:
        """Return the rows of a step. They depend on the plan and the step alone."""
        plan = self.plan
        batches = max(1, plan.pool // plan.rows)
        number, index = divmod(step, batches * plan.uses)
        if self.pool[0] != number:
            rng = np.random.default_rng((plan.seed, number, 1))
            self.pool = (number, [self.read(self.source(rng, plan.rows)) for _ in range(batches)])
        order = np.random.default_rng((plan.seed, number, 2)).permutation(batches * plan.uses)
        return self.pool[1][order[index] % batches]


class Trainer(Generic[L]):
    """A run in a folder, with checkpoint, state and log; BadInput if the folder has a run of another plan."""

    def __init__(self, learner: L, batches: Batches, folder: Path, plan: Schedule) -> None:
        self.learner, self.batches, self.folder, self.plan = learner, batches, folder, plan
        self.step = 0
        plan_as_read = json.loads(json.dumps(asdict(plan)))
        self.begun = {"plan": plan_as_read, "learner": type(learner).__name__, **learner.about}
        folder.mkdir(parents=True, exist_ok=True)
        self._resume()

    def _resume(self) -> None:
        path = self.folder / "state.json"
        if not path.exists():
            return
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            self.step = state.pop("step")
        except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
            raise self._damaged(path, error) from error
        if state != self.begun:
            raise BadInput(f"{path} was begun with another plan", "choose another folder, or remove it")
        checkpoint = self.folder / f"checkpoint{self.learner.suffix}"
        try:
            self.learner.load(checkpoint)
        except Exception as error:  # each library has its own errors for a damaged file
            raise self._damaged(checkpoint, error) from error

    def _damaged(self, path: Path, error: Exception) -> BadInput:
        return BadInput(f"{path} is damaged: {error}", f"choose another folder, or remove {self.folder}")

    def save(self) -> None:
        """Write the checkpoint; an interrupted write leaves the previous one."""
        checkpoint = self.folder / f"checkpoint{self.learner.suffix}"
        with atomic_write(self.folder / "state.json") as state, atomic_write(checkpoint) as part:
            self.learner.save(part)
            state.write_text(json.dumps({**self.begun, "step": self.step}), encoding="utf-8")

    def run(self, say: Callable[[dict[str, Any]], None], *, every: int = 25, save_every: int = 250) -> None:
        """Train to the plan's end; ``say`` gets a line of figures every ``every`` steps. ^C loses nothing."""
        began, begun, figures = time.monotonic(), self.step, []
        try:
            while self.step < self.plan.steps:
                figures.append(self.learner.learn(self.batches(self.step), self.step))
                self.step += 1
                is_last = self.step == self.plan.steps
                if self.step % every == 0 or is_last:
                    columns = {name: [each[name] for each in figures] for name in figures[0]}
                    means = {name: round(float(np.mean(column)), 4) for name, column in columns.items()}
                    seconds = (time.monotonic() - began) / (self.step - begun)
                    line = {"step": self.step, **means, "s_per_step": round(seconds, 3)}
                    if self.step % (4 * every) == 0 or is_last:
                        line |= self.learner.measured()
                    say(line)
                    with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
                    figures = []
                if self.step % save_every == 0:
                    self.save()
        finally:
            self.save()
            self.learner.finish()
