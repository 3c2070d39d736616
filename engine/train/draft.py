"""Train a DFlash drafter: the run, whichever library computes it.

The target reads rows of text, written by people and by itself, and says what it would have written after
each position. The drafter learns to say the same, several positions ahead at once. No gradient goes through
the target; its embedding and head serve the drafter as they are.
"""

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

TOP = 24  # probabilities of the target that are kept a position


@dataclass(frozen=True, kw_only=True)
class Plan(Schedule):
    """How long and how fast. One step is ``rows`` rows with ``anchors`` blocks each.

    The target reads ``pool`` rows at a time, and each serves ``uses`` steps with other anchors.
    """

    rows: int = 8
    anchors: int = 64
    block: int = 8
    pool: int = 32
    uses: int = 4
    matrix_rate: float = 0.012
    other_rate: float = 1.5e-3
    warm_up: int = 50
    clip: float = 1.0
    decay: float = 4.0  # slot j of a block weighs exp(-j / decay)
    off_path: float = 0.1  # the weight of slots behind one where the text is not what the target would write
    seed: int = 0


class Learner(Protocol):
    """The drafter, its target and its optimizer, in one library or another."""

    def read(self, rows: np.ndarray) -> Any:
        """Let the target read ``rows`` ``[rows, length]``, and keep what the drafter learns from."""

    def learn(self, batch: Any, anchors: np.ndarray, factor: float) -> tuple[float, float]:
        """Take one step at ``factor`` of the learning rates; return the loss and the tau before it.

        Args:
            batch: what :meth:`read` returned.
            anchors: ``[rows, anchors]``, sorted, each at least 1 and with a block's drafts after it.
            factor: of both rates.
        """

    def save(self, path: Path) -> None:
        """Write weights and moments."""

    def load(self, path: Path) -> None:
        """Go on from what :meth:`save` wrote."""

    def finish(self) -> None:
        """Put what was learnt into the drafter."""


class Trainer:
    """One run in a folder: ``checkpoint`` and ``state.json`` to resume from, ``log.jsonl``.

    Args:
        learner: the drafter and its target.
        source: from a random generator and a number of rows to token ids ``[rows, length]``.
        folder: where checkpoint and log go. Raises BadInput where another plan was begun there.
    """

    def __init__(self, learner: Learner, source: Source, folder: Path, plan: Plan) -> None:
        self.learner, self.source, self.folder, self.plan = learner, source, folder, plan
        self.step = 0
        self.pool: tuple[int, list[Any]] = (-1, [])
        folder.mkdir(parents=True, exist_ok=True)
        self._resume()

    def _begun(self) -> dict[str, Any]:
        return {"plan": asdict(self.plan), "learner": type(self.learner).__name__}

    def _resume(self) -> None:
        path = self.folder / "state.json"
        if not path.exists():
            return
        state = json.loads(path.read_text(encoding="utf-8"))
        self.step = state.pop("step")
        if state != self._begun():
            raise BadInput(f"{path} was begun with another plan", "choose another folder, or remove it")
        self.learner.load(self.folder / "checkpoint")

    def save(self) -> None:
        """Write the checkpoint; an interrupted write leaves the one before it."""
        half = self.folder / "checkpoint.part"
        self.learner.save(half)
        half.replace(self.folder / "checkpoint")
        text = json.dumps({**self._begun(), "step": self.step})
        (self.folder / "state.json").write_text(text, encoding="utf-8")

    def run(self, say: Callable[[dict[str, Any]], None], *, every: int = 25, save_every: int = 250) -> None:
        """Train to the plan's end; ``say`` gets a line of figures every ``every`` steps. ^C loses nothing."""
        began, begun, totals = time.monotonic(), self.step, []
        try:
            while self.step < self.plan.steps:
                totals.append(self._one_step())
                if self.step % every == 0 or self.step == self.plan.steps:
                    loss, tau = np.mean(totals, axis=0)
                    seconds = (time.monotonic() - began) / (self.step - begun)
                    line = {
                        "step": self.step,
                        "loss": round(float(loss), 4),
                        "tau": round(float(tau), 3),
                        "s_per_step": round(seconds, 3),
                    }
                    say(line)
                    with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
                    totals = []
                if self.step % save_every == 0:
                    self.save()
        finally:
            self.save()
            self.learner.finish()

    def _one_step(self) -> tuple[float, float]:
        plan = self.plan
        batch, length = self._batch()
        rng = np.random.default_rng((plan.seed, self.step))
        places = np.arange(1, length - plan.block)
        anchors = np.stack([rng.choice(places, plan.anchors, replace=False) for _ in range(plan.rows)])
        found = self.learner.learn(batch, np.sort(anchors, axis=1).astype(np.int32), plan.rate(self.step))
        self.step += 1
        return found

    def _batch(self) -> tuple[Any, int]:
        """Return this step's rows and their length.

        They depend on the plan and the step alone, however often the run stopped.
        """
        plan = self.plan
        batches = plan.pool // plan.rows
        number, place = divmod(self.step, batches * plan.uses)
        if self.pool[0] != number:
            rng = np.random.default_rng((plan.seed, number, 1))
            drawn = [self.source(rng, plan.rows) for _ in range(batches)]
            self.pool = (number, [(self.learner.read(rows), rows.shape[1]) for rows in drawn])
        order = np.random.default_rng((plan.seed, number, 2)).permutation(batches * plan.uses)
        return self.pool[1][order[place] % batches]
