"""Writes bridge/evidence/bundled.json, the digests of the bundled models and prompts, from the engine: `make docs`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from engine.measure import provenance
from engine.measure.prompts import BUNDLED, read

ROOT = Path(__file__).parent.parent
ROLES = {"target": "target", "draft": "draft", "reconstruction": "restore"}


def made() -> str:
    models = {}
    for folder in sorted(path for path in (ROOT / "engine" / "models" / "data").iterdir() if path.is_dir()):
        models[folder.name] = {
            role: {
                field: found
                for field, found in provenance.model(role, folder.name, folder / name, "float32").items()
                if field in ("weights", "config", "tokenizer") and found
            }
            for role, name in ROLES.items()
            if (folder / name).is_dir()
        }
    prompts = {
        name: ["sha256:" + hashlib.sha256(prompt.text.encode()).hexdigest() for prompt in read(BUNDLED[name])]
        for name in sorted(BUNDLED)
    }
    return json.dumps({"models": models, "prompts": prompts}, indent=1) + "\n"


def main() -> None:
    (ROOT / "bridge" / "evidence" / "bundled.json").write_text(made(), encoding="utf-8")


if __name__ == "__main__":
    main()
