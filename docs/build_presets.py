"""Writes the table in docs/presets.md, and docs/presets-commands.txt, from the presets themselves: `make docs`."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path

from bridge.presets import Preset, load_presets

BEGIN, END = "<!-- presets: begin -->\n", "<!-- presets: end -->"
HEAD = (
    "| preset | parameters (default) | limit, s | reports | what it does | cannot show |\n"
    + "|---" * 6
    + "|\n"
)


def main() -> None:
    page = Path(__file__).with_name("presets.md")
    rows = HEAD + "".join(row(preset) for preset in load_presets().values())
    text = re.sub(
        f"{BEGIN}.*{END}", lambda _: BEGIN + rows + END, page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    page.write_text(text, encoding="utf-8")
    commands = "\n".join(commands_of(preset) for preset in load_presets().values())
    page.with_name("presets-commands.txt").write_text(commands, encoding="utf-8")


def commands_of(preset: Preset) -> str:
    """Return the commands of a preset with its defaults, one a line, below its name."""
    settings = {name: f"${name}" for name in preset.env_names}
    # Only a path in the request's tree has no default.
    params = {name: "tests/PATH" for name, param in preset.params.items() if param.required}
    commands = preset.build_commands(preset.check_params(params), settings)
    lines = (
        " ".join(word if word.startswith("$") else shlex.quote(word) for word in argv) for argv in commands
    )
    return "".join(f"{line}\n" for line in (preset.name, *lines))


def row(preset: Preset) -> str:
    params = ", ".join(
        f"`{name}` {param.allowed.removeprefix('a whole number from ').replace(' to ', '-')}"
        + ("" if param.required else f" ({param.default})")
        for name, param in preset.params.items()
    )
    kinds = Counter(kind.removeprefix("kakeya.") for kind in preset.kinds)
    cells = (
        f"`{preset.name}`",
        params,
        str(preset.timeout_s),
        ", ".join(f"{kind} x{count}" if count > 1 else kind for kind, count in kinds.items()),
        # The first sentence; `kakeya presets NAME` shows the rest.
        re.split(r"(?<=[.]) (?=[A-Z])", preset.description)[0],
        preset.cannot_show,
    )
    return f"| {' | '.join(cells)} |\n".replace("|  |", "| |").replace("|  |", "| |")


if __name__ == "__main__":
    main()
