"""Train a target of the bundled family, with torch: on two CPU cores in hours, on a GPU in minutes.

Muon for the matrices and AdamW for the rest (embedding, norms), a short warm-up, a cosine down to 2 %. The
model itself is transformers' own, so what is saved is what every reader of that format loads.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.errors import BadInput
from engine.train.data.corpus import File
from engine.train.data.rows import Rows, windows
from engine.train.schedule import MATRIX, Schedule
from engine.train.with_torch import (
    functional,
    muon_and_adamw,
    product_dtype,
    take_step,
    torch,
    transformers,
)

EVAL_LENGTH, EVAL_WINDOWS = 512, 48


@dataclass(frozen=True, kw_only=True)
class Plan(Schedule):
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


def build(config: dict[str, Any], seed: int):
    """Return transformers' model for ``config``, freshly initialised in float32."""
    classes = {
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
        "gemma3_text": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
    }
    kind, model = classes[config["model_type"]]
    torch.manual_seed(seed)
    known = {key: value for key, value in config.items() if key not in {"architectures", "model_type"}}
    return model._from_config(kind(**known), attn_implementation="sdpa").float()  # noqa: SLF001


def optimizers(model, plan: Plan) -> list[torch.optim.Optimizer]:
    """Return Muon over the matrices and AdamW over embedding and norms."""
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        (matrices if parameter.ndim == MATRIX and "embed" not in name else others).append(parameter)
    return muon_and_adamw(matrices, others, plan, decay=plan.weight_decay, scaling="match_rms_adamw")


class Trainer:
    """One training run in a folder: ``checkpoint.pt`` to resume from, ``log.jsonl`` with what happened.

    Args:
        config: the model's published keys.
        tokenizer: a ``tokenizers.Tokenizer``.
        train: files to learn from. held_out: files for the loss that is reported.
        folder: where checkpoint and log go. Raises BadInput where another plan was begun there.
        device: ``cpu`` or ``cuda``.
    """

    def __init__(
        self,
        config: dict[str, Any],
        tokenizer,
        train: tuple[File, ...],
        held_out: tuple[File, ...],
        folder: Path,
        plan: Plan,
        *,
        device: str = "cpu",
        start: Path | None = None,
    ) -> None:
        self.config, self.plan, self.folder, self.device = config, plan, folder, device
        self.rows = Rows(tokenizer, train, plan.seed)
        self.held_out = list(windows(tokenizer, held_out, EVAL_LENGTH))
        self.model = build(config, plan.seed).to(device)
        if start is not None:
            from safetensors.torch import load_file

            weights = {key: value.float() for key, value in load_file(start / "model.safetensors").items()}
            self.model.load_state_dict(weights, strict=False)
        self.optimizers = optimizers(self.model, plan)
        self.step, self.tokens = 0, 0
        folder.mkdir(parents=True, exist_ok=True)
        self._resume()

    def _resume(self) -> None:
        path = self.folder / "checkpoint.pt"
        if not path.exists():
            return
        state = torch.load(path, map_location=self.device, weights_only=True)
        if state["plan"] != asdict(self.plan) or state["config"] != json.dumps(self.config):
            raise BadInput(
                f"{path} was begun with another plan or shape", "choose another folder, or remove it"
            )
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.tokens = state["step"], state["tokens"]

    def save(self) -> None:
        """Write the checkpoint, whole or not at all."""
        state = {
            "plan": asdict(self.plan),
            "config": json.dumps(self.config),
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "tokens": self.tokens,
        }
        half = self.folder / "checkpoint.pt.part"
        torch.save(state, half)
        half.replace(self.folder / "checkpoint.pt")

    def run(self, say: Callable[[dict[str, Any]], None], *, every: int = 50, save_every: int = 200) -> None:
        """Train to the plan's end; ``say`` gets a line of figures every ``every`` steps. ^C loses nothing."""
        self.model.train()
        began, begun_tokens, losses = time.monotonic(), self.tokens, []
        try:
            while self.step < self.plan.steps:
                losses.append(self._step())
                if self.step % every == 0 or self.step == self.plan.steps:
                    rate = (self.tokens - begun_tokens) / (time.monotonic() - began)
                    line = {
                        "step": self.step,
                        "tokens": self.tokens,
                        "loss": sum(losses) / len(losses),
                        "tokens_per_s": round(rate),
                    }
                    if self.step % (4 * every) == 0 or self.step == self.plan.steps:
                        line |= self.evaluate()
                    say(line)
                    self._log(line)
                    losses = []
                if self.step % save_every == 0:
                    self.save()
        finally:
            self.save()

    def _log(self, line: dict[str, Any]) -> None:
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _step(self) -> float:
        rows, length = self.plan.shape(self.step)
        tokens, weights = self.rows.batch(self.step, rows, length)
        tokens = torch.from_numpy(tokens).to(self.device)
        weights = torch.from_numpy(weights).to(self.device)
        with self._mixed():
            logits = self.model(input_ids=tokens[:, :-1], use_cache=False).logits
        losses = functional.cross_entropy(
            logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
        )
        loss = (losses * weights.flatten()).sum() / weights.sum()
        loss.backward()
        take_step(self.optimizers, self.model.parameters(), self.plan, self.step)
        self.step += 1
        self.tokens += rows * length
        return float(loss.detach())

    def _mixed(self) -> torch.autocast:
        """Products in the type that is quicker here; everything else in float32."""
        dtype = product_dtype(self.device)
        return torch.autocast(self.device, dtype=dtype, enabled=dtype is not torch.float32)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
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
        self.model.train()
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
