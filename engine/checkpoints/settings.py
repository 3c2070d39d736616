"""Settings in a model's folder that mlx-lm does not apply: how to sample, and a template in a file of its own."""

import json
import math
from pathlib import Path
from typing import Any

GENERATION = "generation_config.json"
# The settings that are followed, with the range of each, as in requests.
RANGES = {
    "temperature": (0.0, 2.0),
    "top_k": (0, 1 << 20),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 10.0),
}


def sampling(folder: Path) -> dict[str, float]:
    """Return how a model's authors want answers to be sampled, for requests that do not say.

    With ``do_sample: false``, answers are greedy. Values that no request could have are left out.
    """
    stated = _object(folder / GENERATION)
    followed = {name: stated[name] for name in RANGES if _is_number(stated.get(name))}
    followed = {
        name: value for name, value in followed.items() if RANGES[name][0] <= value <= RANGES[name][1]
    }
    if "top_k" in followed:
        followed["top_k"] = int(followed["top_k"])
    return {**followed, "temperature": 0.0} if stated.get("do_sample") is False else followed


def chat_template(folder: Path) -> dict[str, str]:
    """Return the ``chat_template`` of ``chat_template.json``, if no file that transformers reads has one."""
    if (folder / "chat_template.jinja").exists() or "chat_template" in _object(
        folder / "tokenizer_config.json"
    ):
        return {}
    template = _object(folder / "chat_template.json").get("chat_template")
    return {"chat_template": template} if isinstance(template, str) else {}


def _object(path: Path) -> dict[str, Any]:
    """Return the object in a file; empty if it cannot be read, as in mlx-lm."""
    # Read only files: reading a pipe would block the server.
    try:
        value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
