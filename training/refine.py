"""Refine a trained target: teach it recall, and change little else.

The text teaches the answers to retrieval tasks. At all other tokens the teacher is the target before the run: its
distributions (KL divergence) and, in source text and in rows that it wrote, also the states between its layers.
So its drafter, which reads those states, still fits.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.train.data import tasks
from engine.train.data.answers import cached_array
from engine.train.data.corpus import File
from engine.train.run import Trainer
from engine.train.with_torch import functional, torch
from training.rows import HARD, WHOLE, Rows, windows
from training.target import EVAL_LENGTH, TargetLearner, TargetPlan

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TASK_SHARE, OWN_SHARE = 0.55, 0.25  # of the rows; the rest is source text
OWN_ROWS, OWN_TOKENS = 1024, 160  # rows that the target writes before the run, and tokens of each
STRETCH, OPENING = 40, 96  # lines before the end of an opening, and tokens that are kept of them
LEARNT = 0.7  # the share of what was learnt in the weights that are written
STATES = 1.0  # the weight of the states' relative squared error


def plan(steps: int, rows: int, seed: int) -> TargetPlan:
    """Return the plan of a run: about half of the rates, because the weights are trained."""
    return TargetPlan(steps=steps, rows=rows, seed=seed, matrix_rate=2.5e-3, other_rate=1.5e-3, warm_up=20)


def openings(
    tokenizer: "Tokenizer", files: Sequence[File], rng: np.random.Generator, count: int
) -> np.ndarray:
    """Return the last tokens of ``count`` stretches of the files that end with a line: ``[count, OPENING]``.

    Each stretch is encoded by itself, as a prompt is: in a longer text, its last newline would be one token with
    the indentation after it.
    """
    lines = [file.text.splitlines(keepends=True) for file in files]
    lines = [one for one in lines if len(one) > STRETCH]
    found: list[list[int]] = []
    while len(found) < count:
        file = lines[rng.integers(len(lines))]
        end = rng.integers(STRETCH, len(file))
        ids = tokenizer.encode("".join(file[end - STRETCH : end])).ids
        if len(ids) >= OPENING:
            found.append(ids[-OPENING:])
    return np.asarray(found, np.int32)


def written(
    start: Path,
    tokenizer: "Tokenizer",
    files: Sequence[File],
    kept: Path,
    seed: int,
    say: Callable[[int], None],
) -> np.ndarray:
    """Return rows ``[OWN_ROWS, OWN_TOKENS]`` that the target in ``start`` writes after openings of ``files``.

    Made once, then read from ``kept``.
    """

    def make() -> np.ndarray:
        from engine import models
        from engine.train.data import generate

        drawn = openings(tokenizer, files, np.random.default_rng((seed, 3)), OWN_ROWS)
        target = models.load(str(start), draft=False).target
        return generate.rows(target, drawn, length=OWN_TOKENS, shortest=OPENING // 3, seed=seed, say=say)

    return cached_array(kept, make)


class Refiner(TargetLearner):
    """An ``engine.train.run.Learner`` that has its own start as a teacher; see ``TargetLearner``."""

    def __init__(
        self,
        config: dict[str, Any],
        held_out: Sequence[np.ndarray],
        plan: TargetPlan,
        *,
        start: Path,
        device: str = "cpu",
    ) -> None:
        super().__init__(config, held_out, plan, device=device, start=start)
        self.teacher = deepcopy(self.model).eval().requires_grad_(requires_grad=False)

    def export(self, folder: Path) -> None:
        """Write the model: each weight is ``LEARNT`` of what it became, and the rest of what it was.

        Such means often keep what both models can do: Wortsman et al. 2022, Robust fine-tuning of zero-shot models.
        """
        now = {name: value.clone() for name, value in self.model.state_dict().items()}
        before = self.teacher.state_dict()
        self.model.load_state_dict({name: torch.lerp(before[name], now[name], LEARNT) for name in now})
        try:
            super().export(folder)
        finally:
            self.model.load_state_dict(now)

    def learn(self, batch: tuple[np.ndarray, np.ndarray], step: int) -> dict[str, float]:
        """Take one step on tokens and the weights of their successors; return its losses before it.

        ``answers`` and ``others`` are in nats a weighted token, ``states`` is sum(error²) / sum(x²) a layer.
        """
        tokens, weights = (torch.from_numpy(part).to(self.device) for part in batch)
        self.model.train()
        with self._mixed():
            found = self.model(input_ids=tokens[:, :-1], use_cache=False, output_hidden_states=True)
            with torch.no_grad():
                before = self.teacher(input_ids=tokens[:, :-1], use_cache=False, output_hidden_states=True)
        answer = weights == tasks.ANSWER
        own = found.logits.float().log_softmax(-1)
        texts = -own.gather(-1, tokens[:, 1:, None])[..., 0]
        known = before.logits.float().log_softmax(-1)
        away = functional.kl_div(own, known, reduction="none", log_target=True).sum(-1)
        answers = (texts * weights)[answer].sum() / weights[answer].sum().clamp(min=1)
        others = (away * weights)[~answer].sum() / weights[~answer].sum().clamp(min=1)
        share = weights[answer].sum() / weights.sum()
        states = self._moved(found.hidden_states, before.hidden_states, weights == WHOLE)
        loss = share * answers + (1 - share) * others + STATES * states
        parts = {"answers": answers, "others": others, "states": states}
        return {
            "loss": self.step(step, loss),
            **{name: float(part.detach()) for name, part in parts.items()},
        }

    @staticmethod
    def _moved(
        states: Sequence[torch.Tensor], before: Sequence[torch.Tensor], kept: torch.Tensor
    ) -> torch.Tensor:
        """Return how far the states ``[rows, length, hidden]`` of the layers moved, at the places that are ``kept``."""
        if not kept.any():
            return states[0].new_zeros(())
        errors = [
            (now[kept].float() - then[kept].float()).square().sum() / then[kept].float().square().sum()
            for now, then in zip(states[1:-1], before[1:-1], strict=True)
        ]
        return torch.stack(errors).mean()


def trainer(
    config: dict[str, Any],
    tokenizer: "Tokenizer",
    train: tuple[File, ...],
    held_out: tuple[File, ...],
    folder: Path,
    plan: TargetPlan,
    *,
    start: Path,
    say: Callable[[int], None],
    device: str = "cpu",
) -> Trainer[Refiner]:
    """Return the run that refines the target in ``start``; ``say`` gets how many rows it has written so far.

    The rest is as for ``training.target.trainer``.
    """
    rows = Rows(tokenizer, train, plan.seed, task_share=TASK_SHARE, mix=HARD)
    folder.mkdir(parents=True, exist_ok=True)
    rows.own = written(start, tokenizer, train, folder / "written.npy", plan.seed, say)
    rows.own_share = OWN_SHARE
    learner = Refiner(
        config, list(windows(tokenizer, held_out, EVAL_LENGTH)), plan, device=device, start=start
    )
    return Trainer(learner, lambda step: rows.batch(step, *plan.shape(step)), folder, plan)
