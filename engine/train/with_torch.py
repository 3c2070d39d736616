"""Shared by learners in torch: the import, threads, the type of products, the optimizers, a step."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from engine.errors import BadInput, MissingPackage
from engine.train.run import Learner, Schedule

try:
    import torch
    import transformers
    from torch.nn import functional
except ImportError as error:
    fix = "install it: pip install torch==2.13.0"
    raise MissingPackage(f"training this needs torch: {error}", fix) from error

if not transformers.utils.is_torch_available():
    raise RuntimeError(
        "engine.lm loaded transformers without torch: import engine.train.with_torch before it"
    )

__all__ = [
    "TrainedTorchWeights",
    "check_device",
    "functional",
    "muon_and_adamw",
    "product_dtype",
    "torch",
    "transformers",
    "use_threads",
]


def check_device(device: str) -> None:
    """Raise BadInput for a device that torch does not find on this machine."""
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("torch finds no CUDA device on this machine", "leave --device out to use the CPU")


def use_threads(count: int) -> None:
    """Compute on ``count`` CPU threads."""
    torch.set_num_threads(count)


def product_dtype(device: str) -> torch.dtype:
    """Return the faster type for matrix products: bfloat16, or float32 on a CPU without instructions for bfloat16.

    On such a CPU, a product in bfloat16 takes fifty times as long.
    """
    if device == "cpu" and not torch.cpu._is_avx512_bf16_supported():  # noqa: SLF001 - torch has no public name
        return torch.float32
    return torch.bfloat16


class SingleMuon(torch.optim.Muon):
    """Torch's Muon, but with iterations in float32: torch's own iterate in bfloat16 on any device."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # noqa: ARG002 - what optimizers take
        """See ``torch.optim.Muon``; gradients must have been computed."""
        for group in self.param_groups:
            for weight in group["params"]:
                momentum = group["momentum"]
                if weight not in self.state:
                    self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
                buffer = self.state[weight]["momentum_buffer"]
                buffer.lerp_(weight.grad, 1 - momentum)
                update = weight.grad.lerp(buffer, momentum) if group["nesterov"] else buffer
                update = _orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
                high, wide = weight.shape
                matched = group["adjust_lr_fn"] == "match_rms_adamw"
                factor = 0.2 * math.sqrt(max(high, wide)) if matched else math.sqrt(max(1, high / wide))
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(update, alpha=-group["lr"] * factor)


def _orthogonal(
    matrix: torch.Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> torch.Tensor:
    """Return nearly the orthogonal factor of a matrix: Newton-Schulz iterations, as in Jordan et al. 2024, Muon."""
    a, b, c = coefficients
    high = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if high else matrix
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if high else x


def muon_and_adamw(
    matrices: Sequence[torch.nn.Parameter],
    others: Sequence[torch.nn.Parameter],
    plan: Schedule,
    *,
    decay: float,
    scaling: str,
) -> list[torch.optim.Optimizer]:
    """Return Muon over ``matrices`` and AdamW over ``others``.

    ``decay`` is the weight decay of the matrices. ``scaling`` is how Muon's rate depends on a matrix's shape:
    ``original`` or ``match_rms_adamw``.
    """
    muon = SingleMuon if product_dtype(matrices[0].device.type) is torch.float32 else torch.optim.Muon
    return [
        muon(matrices, lr=plan.matrix_rate, weight_decay=decay, adjust_lr_fn=scaling),
        torch.optim.AdamW(others, lr=plan.other_rate, betas=(0.9, 0.97), weight_decay=0.0),
    ]


S = TypeVar("S", bound=Schedule)


class TrainedTorchWeights(Learner, Generic[S]):
    """Weights that learn in torch, and their optimizers: ``engine.train.optimizer.TrainedWeights`` in torch."""

    suffix = ".pt"

    def __init__(
        self,
        weights: Mapping[str, torch.nn.Parameter],
        optimizers: Sequence[torch.optim.Optimizer],
        plan: S,
        device: str,
    ) -> None:
        self.weights, self.optimizers, self.plan, self.device = weights, optimizers, plan, device

    def step(self, number: int, loss: torch.Tensor) -> float:
        """Take step ``number`` of the plan with the gradients of ``loss``, and return the loss."""
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights.values(), self.plan.clip)
        for optimizer, rate in zip(self.optimizers, self.plan.rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * self.plan.rate(number)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    def save(self, path: Path) -> None:
        """Write weights and moments."""
        state = {
            "weights": {name: value.detach() for name, value in self.weights.items()},
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        torch.save(state, path)

    def load(self, path: Path) -> None:
        """Continue from the files of ``save``."""
        state = torch.load(path, map_location=self.device, weights_only=True)
        with torch.no_grad():
            for name, value in state["weights"].items():
                self.weights[name].copy_(value)
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
