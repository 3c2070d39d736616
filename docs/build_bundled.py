"""Writes bridge/evidence/bundled.json from the engine: digests and facts of the bundled models, prompts, vocabulary.

Part of `make docs`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from engine.checkpoints import digests
from engine.measure.prompts import BUNDLED, SIZE, read
from engine.models import load

ROOT = Path(__file__).parent.parent
ROLES = {"target": "target", "draft": "draft", "reconstruction": "restore"}


FACTS = ("architecture", "layers", "parameters", "stored_dtypes", "quantization")


def facts(name: str) -> dict[str, dict[str, object]]:
    """Return what a report says of each part of a bundled model, whatever it runs on."""
    told = {str(entry["role"]): entry for entry in load(name, restore=None).describe()}
    return {role: {field: entry[field] for field in FACTS} for role, entry in told.items()}


def vocabulary(folder: Path) -> dict[str, object]:
    """Return the pieces of a byte-level tokenizer by token, those that are special, and those that end an answer."""
    told = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    pieces = {token: piece for piece, token in told["model"]["vocab"].items()}
    special = {token["id"]: token["content"] for token in told["added_tokens"] if token["special"]}
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return {
        "pieces": [(pieces | special).get(token, "") for token in range(max(pieces | special) + 1)],
        "special": sorted(special),
        "ends": config["eos_token_id"],
    }


def cache_of(folder: Path) -> dict[str, object]:
    """Return how a target's cache is shaped: key-value heads, head size, and each layer's window, 0 without one."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kinds = config.get("layer_types") or ["full_attention"] * config["num_hidden_layers"]
    windows = [config["sliding_window"] if kind == "sliding_attention" else 0 for kind in kinds]
    return {"heads": config["num_key_value_heads"], "dim": config["head_dim"], "windows": windows}


def tasks() -> dict[str, str]:
    """Return what each bundled set of prompts asks for."""
    return {name: next(iter(read(path))).task or "code" for name, path in sorted(BUNDLED.items())}


def tokens(models: dict[str, dict[str, dict[str, object]]]) -> dict[str, dict[str, int]]:
    """Return the number of tokens of each bundled prompt, by tokenizer and by the prompt's digest."""
    texts = [prompt.text for path in BUNDLED.values() for prompt in read(path)]
    found = {}
    for name, roles in models.items():
        tokenizer = load(name, restore=None).tokenizer
        counts = {
            "sha256:" + hashlib.sha256(text.encode()).hexdigest(): len(tokenizer.encode(text))
            for text in texts
        }
        found[str(roles["target"]["tokenizer"])] = counts
    return found


def made() -> str:
    models = {}
    for folder in sorted(path for path in (ROOT / "engine" / "models" / "data").iterdir() if path.is_dir()):
        models[folder.name] = {
            role: {
                field: found
                for field, found in digests.model(role, folder.name, folder / name, "float32").items()
                if field in ("weights", "config", "tokenizer") and found
            }
            for role, name in ROLES.items()
            if (folder / name).is_dir()
        }
        found = facts(folder.name)
        for role, told in models[folder.name].items():
            told["facts"] = found[role]
        models[folder.name]["target"]["cache"] = cache_of(folder / "target")
    vocabularies = {
        told["target"]["tokenizer"]: vocabulary(ROOT / "engine" / "models" / "data" / name / "target")
        for name, told in models.items()
    }
    prompts = {
        name: [
            "sha256:" + hashlib.sha256(prompt.text.encode()).hexdigest()
            for prompt in read(BUNDLED[name], SIZE)
        ]
        for name in sorted(BUNDLED)
    }
    told = {"models": models, "prompts": prompts, "tasks": tasks(), "tokens": tokens(models)}
    lines = json.dumps(told, indent=1).removesuffix("\n}")
    return f'{lines},\n "vocabularies": {json.dumps(vocabularies)}\n}}\n'


def main() -> None:
    (ROOT / "bridge" / "evidence" / "bundled.json").write_text(made(), encoding="utf-8")


if __name__ == "__main__":
    main()
