"""A training run's folder: ``checkpoint.safetensors`` and ``state.json`` to resume from, and ``log.jsonl``."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.errors import BadInput
from engine.mx import mx, nn, optimizers, tree
from engine.train.schedule import Schedule

WEIGHTS, STATE, LOG = "checkpoint.safetensors", "state.json", "log.jsonl"


def resume(folder: Path, plan: Schedule, model: nn.Module, optimizer: optimizers.Optimizer) -> int:
    """Put a run back to where it stopped, and return its step; 0 where nothing was begun.

    Raises:
        BadInput: another plan was begun there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / STATE
    if not path.exists():
        return 0
    state = json.loads(path.read_text(encoding="utf-8"))
    if state["plan"] != json.loads(json.dumps(asdict(plan))):
        raise BadInput(f"{path} was begun with another plan", "choose another folder, or remove it")
    saved = mx.load(str(folder / WEIGHTS))
    parts: dict[str, list[tuple[str, mx.array]]] = {"model": [], "optimizer": []}
    for name, value in saved.items():
        part, _, rest = name.partition(".")
        parts[part].append((rest, value))
    model.update(tree.tree_unflatten(parts["model"]))
    optimizer.init(model.trainable_parameters())
    optimizer.state = tree.tree_unflatten(parts["optimizer"])
    return state["step"]


def save(folder: Path, plan: Schedule, model: nn.Module, optimizer: optimizers.Optimizer, step: int) -> None:
    """Write the checkpoint; an interrupted write leaves the one before it."""
    weights = {f"model.{k}": v for k, v in tree.tree_flatten(model.trainable_parameters())}
    moments = {f"optimizer.{k}": v for k, v in tree.tree_flatten(optimizer.state)}
    part = folder / "checkpoint.part.safetensors"
    mx.save_safetensors(str(part), weights | moments)
    part.replace(folder / WEIGHTS)
    (folder / STATE).write_text(json.dumps({"plan": asdict(plan), "step": step}), encoding="utf-8")


def log(folder: Path, line: dict[str, Any]) -> None:
    """Append a line of figures."""
    with (folder / LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
