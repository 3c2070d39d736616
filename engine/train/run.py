"""One training run in a folder, whatever learns: rows, steps, checkpoints, a log."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from engine.errors import BadInput
from engine.train.schedule import Schedule

Source = Callable[[np.random.Generator, int], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Plan(Schedule):
    """How long and how fast. One step is ``rows`` rows.

    The target reads ``pool`` rows at a time, and each serves ``uses`` steps.
    """

    rows: int
    pool: int = 32
    uses: int = 4
    matrix_rate: float = 0.012
    other_rate: float = 1.5e-3
    warm_up: int = 50
    seed: int = 0


class Learner(Protocol):
    """What learns, its target and its optimizer, in one library or another.

    Attributes:
        suffix: of the files that :meth:`save` writes.
    """

    suffix: str

    def read(self, rows: np.ndarray) -> Any:
        """Let the target read ``rows`` ``[rows, length]``, and keep what is learned from."""

    def learn(self, batch: Any, step: int) -> dict[str, float]:
        """Take one step on what :meth:`read` returned; return figures from before it, ``loss`` among them."""

    def save(self, path: Path) -> None:
        """Write weights and moments."""

    def load(self, path: Path) -> None:
        """Go on from what :meth:`save` wrote."""

    def finish(self) -> None:
        """Put what was learnt into the model that was to be trained."""


class Trainer:
    """One run in a folder: ``checkpoint`` and ``state.json`` to resume from, ``log.jsonl``.

    Args:
        learner: what learns.
        source: from a random generator and a number of rows to token ids ``[rows, length]``.
        folder: where checkpoint and log go. Raises BadInput where another plan was begun there.
        plan: the learner's.
    """

    def __init__(self, learner: Learner, source: Source, folder: Path, plan: Plan) -> None:
        self.learner, self.source, self.folder, self.plan = learner, source, folder, plan
        self.step = 0
        self.pool: tuple[int, list[Any]] = (-1, [])
        self.begun = {"plan": json.loads(json.dumps(asdict(plan))), "learner": type(learner).__name__}
        folder.mkdir(parents=True, exist_ok=True)
        self._resume()

    def _resume(self) -> None:
        path = self.folder / "state.json"
        if not path.exists():
            return
        state = json.loads(path.read_text(encoding="utf-8"))
        self.step = state.pop("step")
        if state != self.begun:
            raise BadInput(f"{path} was begun with another plan", "choose another folder, or remove it")
        self.learner.load(self.folder / f"checkpoint{self.learner.suffix}")

    def save(self) -> None:
        """Write the checkpoint; an interrupted write leaves the one before it."""
        half = self.folder / f"checkpoint.part{self.learner.suffix}"
        self.learner.save(half)
        half.replace(self.folder / f"checkpoint{self.learner.suffix}")
        text = json.dumps({**self.begun, "step": self.step})
        (self.folder / "state.json").write_text(text, encoding="utf-8")

    def run(self, say: Callable[[dict[str, Any]], None], *, every: int = 25, save_every: int = 250) -> None:
        """Train to the plan's end; ``say`` gets a line of figures every ``every`` steps. ^C loses nothing."""
        began, begun, found = time.monotonic(), self.step, []
        try:
            while self.step < self.plan.steps:
                found.append(self.learner.learn(self._batch(), self.step))
                self.step += 1
                if self.step % every == 0 or self.step == self.plan.steps:
                    means = {
                        name: round(float(np.mean([one[name] for one in found])), 4) for name in found[0]
                    }
                    seconds = (time.monotonic() - began) / (self.step - begun)
                    line = {"step": self.step, **means, "s_per_step": round(seconds, 3)}
                    say(line)
                    with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
                    found = []
                if self.step % save_every == 0:
                    self.save()
        finally:
            self.save()
            self.learner.finish()

    def _batch(self) -> Any:
        """Return this step's rows. They depend on the plan and the step alone, however often the run stopped."""
        plan = self.plan
        batches = max(1, plan.pool // plan.rows)
        number, place = divmod(self.step, batches * plan.uses)
        if self.pool[0] != number:
            rng = np.random.default_rng((plan.seed, number, 1))
            self.pool = (number, [self.learner.read(self.source(rng, plan.rows)) for _ in range(batches)])
        order = np.random.default_rng((plan.seed, number, 2)).permutation(batches * plan.uses)
        return self.pool[1][order[place] % batches]
