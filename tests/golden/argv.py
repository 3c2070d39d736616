"""The commands that every preset runs with its default parameters; the host's settings stay ``${ENV:NAME}``."""

from __future__ import annotations

import json

from bridge.presets import Preset, load_presets


def texts() -> dict[str, str]:
    """Return the commands of all presets as JSON, one argument per line."""
    commands = {name: _commands(preset) for name, preset in load_presets().items()}
    return {"argv.json": json.dumps(commands, indent=1, ensure_ascii=False) + "\n"}


def _commands(preset: Preset) -> list[list[str]]:
    # A parameter without a default stays a placeholder. Only paths have none, so any text can stand for them.
    required = {name: f"{{{name}}}" for name, param in preset.params.items() if param.required}
    symbols = {name: f"${{ENV:{name}}}" for name in preset.env_names}
    defaults = {name: param.default for name, param in preset.params.items() if not param.required}
    return preset.build_commands(defaults | required, symbols)
