"""Train a target of the bundled family, with torch: on two CPU cores in hours, on a GPU in minutes.

Muon for the matrices and AdamW for the rest (embedding, norms), a short warm-up, a cosine down to 2 %. The
model itself is transformers' own, so what is saved is what every reader of that format loads.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.train.data.corpus import File
from engine.train.run import MATRIX, Schedule, Trainer
from engine.train.with_torch import (
    TrainedTorchWeights,
    functional,
    muon_and_adamw,
    product_dtype,
    torch,
    transformers,
)
from training.conversations import ChatRows
from training.rows import Rows, windows

if TYPE_CHECKING:
    from tokenizers import Tokenizer

EVAL_LENGTH, EVAL_WINDOWS = 512, 48


@dataclass(frozen=True, kw_only=True)
class TargetPlan(Schedule):
    """How long and how fast. One step is one batch of ``rows`` by ``length`` tokens.

    From ``long_from`` on (a share of the steps) rows are ``long_factor`` times as long and as many fewer.
    """

    rows: int = 8
    length: int = 512
    long_from: float = 0.6
    long_factor: int = 2
    matrix_rate: float = 4.5e-3
    other_rate: float = 3e-3
    weight_decay: float = 0.1
    warm_up: int = 100
    seed: int = 0

    def shape(self, step: int) -> tuple[int, int]:
        """Return rows and length of the batch at ``step``."""
        if step < self.long_from * self.steps:
            return self.rows, self.length
        return self.rows // self.long_factor, self.length * self.long_factor


def build(config: dict[str, Any], seed: int) -> torch.nn.Module:
    """Return transformers' model for ``config``, freshly initialised in float32."""
    classes = {
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
        "gemma3_text": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
    }
    kind, model = classes[config["model_type"]]
    torch.manual_seed(seed)
    known = {key: value for key, value in config.items() if key not in {"architectures", "model_type"}}
    return model._from_config(kind(**known), attn_implementation="sdpa").float()  # noqa: SLF001


def optimizers(model: torch.nn.Module, plan: TargetPlan) -> list[torch.optim.Optimizer]:
    """Return Muon over the matrices and AdamW over embedding and norms."""
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (matrices if parameter.ndim == MATRIX and "embed" not in name else others).append(parameter)
    return muon_and_adamw(matrices, others, plan, decay=plan.weight_decay, scaling="match_rms_adamw")


class TargetLearner(TrainedTorchWeights[TargetPlan]):
    """An ``engine.train.run.Learner``.

    Args:
        config: the model's published keys.
        held_out: windows of text for the loss that is reported, ``[EVAL_LENGTH + 1]`` tokens each.
        plan: rates and lengths.
        device: ``cpu`` or ``cuda``.
        start: a folder whose weights to begin with; None for fresh ones.
    """

    def __init__(
        self,
        config: dict[str, Any],
        held_out: Sequence[np.ndarray],
        plan: TargetPlan,
        *,
        device: str = "cpu",
        start: Path | None = None,
    ) -> None:
        self.config, self.held_out = config, held_out
        self.about = {"config": config}
        self.model = build(config, plan.seed).to(device)
        if start is not None:
            from safetensors.torch import load_file

            weights = {key: value.float() for key, value in load_file(start / "model.safetensors").items()}
            _grow(weights, config["vocab_size"])
            self.model.load_state_dict(weights, strict=False)
        super().__init__(dict(self.model.named_parameters()), optimizers(self.model, plan), plan, device)

    def learn(self, batch: tuple[np.ndarray, np.ndarray], step: int) -> dict[str, float]:
        """Take one step on tokens and the weights of their successors; return the loss before it."""
        tokens, weights = (torch.from_numpy(part).to(self.device) for part in batch)
        self.model.train()
        with self._mixed():
            logits = self.model(input_ids=tokens[:, :-1], use_cache=False).logits
        losses = functional.cross_entropy(
            logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
        )
        return {"loss": self.step(step, (losses * weights.flatten()).sum() / weights.sum())}

    def _mixed(self) -> torch.autocast:
        """Products in the type that is quicker here; everything else in float32."""
        dtype = product_dtype(self.device)
        return torch.autocast(self.device, dtype=dtype, enabled=dtype is not torch.float32)

    @torch.no_grad()
    def measured(self) -> dict[str, float]:
        """Return the held-out loss in nats a token, and the share of tokens whose first guess is right."""
        self.model.eval()
        losses, hits, count = 0.0, 0, 0
        stride = max(1, len(self.held_out) // EVAL_WINDOWS)
        for window in self.held_out[::stride][:EVAL_WINDOWS]:
            tokens = torch.from_numpy(window)[None].to(self.device)
            with self._mixed():
                logits = self.model(input_ids=tokens[:, :-1], use_cache=False).logits[0].float()
            losses += float(functional.cross_entropy(logits, tokens[0, 1:], reduction="sum"))
            hits += int((logits.argmax(-1) == tokens[0, 1:]).sum())
            count += tokens.shape[1] - 1
        return {"held_out_loss": round(losses / count, 4), "held_out_top1": round(hits / count, 4)}

    def export(self, folder: Path) -> None:
        """Write ``config.json`` and ``model.safetensors`` (bfloat16), under the names that mlx-lm reads."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        weights = {
            name: tensor.detach().to(torch.bfloat16).contiguous().cpu()
            for name, tensor in self.model.state_dict().items()
            if name != "lm_head.weight"
        }
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        config = {**self.config, "dtype": "bfloat16"}
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _grow(weights: dict[str, torch.Tensor], entries: int) -> None:
    """Give the embedding of a smaller vocabulary more rows, each the mean of those it has."""
    held = weights["model.embed_tokens.weight"]
    if (more := entries - len(held)) > 0:
        weights["model.embed_tokens.weight"] = torch.cat([held, held.mean(0, keepdim=True).expand(more, -1)])


def chat_plan(steps: int, rows: int, seed: int) -> TargetPlan:
    """Return the plan of a run on chats: short rows, and a third of the rates, because the weights are trained."""
    return TargetPlan(
        steps=steps,
        rows=rows,
        seed=seed,
        length=160,
        long_from=1.0,
        matrix_rate=2e-3,
        other_rate=1e-3,
        warm_up=30,
    )


def chat_trainer(
    config: dict[str, Any],
    tokenizer: "Tokenizer",
    folder: Path,
    plan: TargetPlan,
    *,
    device: str = "cpu",
    start: Path | None = None,
) -> Trainer[TargetLearner]:
    """Return the run that trains a target on generated chats; see ``trainer``."""
    rows = ChatRows(tokenizer, plan.seed)
    unseen = ChatRows(tokenizer, plan.seed + 1)
    held_out = [unseen.batch(0, 1, EVAL_LENGTH)[0][0]]
    learner = TargetLearner(config, held_out, plan, device=device, start=start)
    return Trainer(learner, lambda step: rows.batch(step, *plan.shape(step)), folder, plan)


def trainer(
    config: dict[str, Any],
    tokenizer: "Tokenizer",
    train: tuple[File, ...],
    held_out: tuple[File, ...],
    folder: Path,
    plan: TargetPlan,
    *,
    device: str = "cpu",
    start: Path | None = None,
) -> Trainer[TargetLearner]:
    """Return the run that trains a target.

    Args:
        config: the model's published keys.
        tokenizer: a ``tokenizers.Tokenizer``.
        train: files to learn from.
        held_out: files for the loss that is reported.
        folder: where checkpoint and log go.
        plan: how long and how fast.
        device: ``cpu`` or ``cuda``.
        start: a folder whose weights to begin with; None for fresh ones.

    Raises:
        BadInput: another plan or shape was begun in the folder.
    """
    rows = Rows(tokenizer, train, plan.seed)
    learner = TargetLearner(
        config, list(windows(tokenizer, held_out, EVAL_LENGTH)), plan, device=device, start=start
    )
    return Trainer(learner, lambda step: rows.batch(step, *plan.shape(step)), folder, plan)
