"""Writes the table in docs/presets.md from the presets themselves: `make docs`."""

from __future__ import annotations

import re
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
