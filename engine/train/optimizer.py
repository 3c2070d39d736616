"""Optimizes a module's weights in MLX: Muon for the matrices, AdamW for the rest."""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from engine.mx import load, mx, nn, optimizers, tree
from engine.train.run import MATRIX, Learner, Schedule

S = TypeVar("S", bound=Schedule)


class TrainedWeights(Learner, Generic[S]):
    """Weights that are trained in place, and their optimizer.

    ``loss`` gets the arguments of ``step``; it returns the loss, followed by figures to report. ``by_muon`` says by
    name and value which weights Muon moves.
    """

    suffix = ".safetensors"

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., tuple[mx.array, ...]],
        plan: S,
        by_muon: Callable[[str, mx.array], bool] = lambda _, weight: weight.ndim == MATRIX,
    ) -> None:
        self.model, self.plan = model, plan
        self.optimizer = optimizers.MultiOptimizer(
            [
                optimizers.Muon(plan.matrix_rate, weight_decay=0.01),
                optimizers.AdamW(plan.other_rate, betas=[0.9, 0.97], weight_decay=0.0),
            ],
            [by_muon],
        )
        self.value_and_grad = nn.value_and_grad(model, loss)

    def step(self, number: int, *batch: object) -> list[float]:
        """Take step ``number`` of the plan; return the loss and the figures before the step."""
        factor = self.plan.rate(number)
        for optimizer, rate in zip(self.optimizer.optimizers, self.plan.rates, strict=True):
            optimizer.learning_rate = rate * factor
        losses, gradients = self.value_and_grad(*batch)
        gradients, _ = optimizers.clip_grad_norm(gradients, self.plan.clip)
        self.optimizer.update(self.model, gradients)
        mx.eval(losses, self.model.trainable_parameters(), self.optimizer.state)
        return [float(loss) for loss in losses]

    def save(self, path: Path) -> None:
        """Write weights and moments as safetensors."""
        weights = {f"model.{k}": v for k, v in tree.tree_flatten(self.model.trainable_parameters())}
        moments = {f"optimizer.{k}": v for k, v in tree.tree_flatten(self.optimizer.state)}
        mx.save_safetensors(str(path), weights | moments)

    def load(self, path: Path) -> None:
        """Continue from the files of ``save``."""
        parts: dict[str, list[tuple[str, mx.array]]] = {"model": [], "optimizer": []}
        for name, value in load(path).items():
            part, _, rest = name.partition(".")
            parts[part].append((rest, value))
        self.model.update(tree.tree_unflatten(parts["model"]))
        self.optimizer.init(self.model.trainable_parameters())
        self.optimizer.state = tree.tree_unflatten(parts["optimizer"])
