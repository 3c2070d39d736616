"""What trains with torch has in common: the import, threads, the optimizers, a step."""

from collections.abc import Iterable, Sequence

from engine.errors import MissingPackage
from engine.train.schedule import Schedule

try:
    import torch
    import transformers
    from torch.nn import functional
except ImportError as error:
    raise MissingPackage(
        f"training this needs torch: {error}", "install it: pip install torch==2.13.0"
    ) from error

__all__ = ["functional", "muon_and_adamw", "take_step", "torch", "transformers", "use_threads"]


def use_threads(count: int) -> None:
    """Compute on ``count`` CPU threads."""
    torch.set_num_threads(count)


def muon_and_adamw(
    matrices: Sequence[torch.nn.Parameter],
    others: Sequence[torch.nn.Parameter],
    plan: Schedule,
    *,
    decay: float,
    scaling: str,
) -> list[torch.optim.Optimizer]:
    """Return Muon over ``matrices`` and AdamW over ``others``.

    Args:
        matrices: of two dimensions.
        others: the rest.
        plan: with the rates of both.
        decay: of the matrices' weights.
        scaling: how Muon's rate follows a matrix's shape: ``original`` or ``match_rms_adamw``.
    """
    return [
        torch.optim.Muon(matrices, lr=plan.matrix_rate, weight_decay=decay, adjust_lr_fn=scaling),
        torch.optim.AdamW(others, lr=plan.other_rate, betas=(0.9, 0.97), weight_decay=0.0),
    ]


def take_step(
    optimizers: Sequence[torch.optim.Optimizer],
    parameters: Iterable[torch.nn.Parameter],
    plan: Schedule,
    step: int,
) -> None:
    """Clip the gradients of ``parameters``, move them at the rates of ``step``, and forget the gradients."""
    torch.nn.utils.clip_grad_norm_(parameters, plan.clip)
    factor = plan.rate(step)
    for optimizer, rate in zip(optimizers, plan.rates, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate * factor
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
