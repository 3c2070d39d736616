"""The groups of golden files, and how a group is compared with its files."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.golden import argv, claims, gate, help_pages, openapi, transcripts

RECORDED = Path(__file__).with_name("recorded")

# Each returns a group's texts by file name.
GROUPS: dict[str, Callable[[], dict[str, str]]] = {
    "argv": argv.texts,
    "help": help_pages.texts,
    "openapi": openapi.texts,
    "transcripts": transcripts.texts,
    "gate": gate.texts,
    "claims": claims.texts,
}

_DIFF_LINES = 30
_LINE_CHARACTERS = 200


def write(texts: Mapping[str, str]) -> None:
    """Write the golden files of a group."""
    RECORDED.mkdir(exist_ok=True)
    for name, text in texts.items():
        (RECORDED / name).write_text(text, encoding="utf-8")


def read(name: str) -> str:
    """Return the content of a golden file, empty if it does not exist."""
    path = RECORDED / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def difference(group: str, texts: Mapping[str, str]) -> str:
    """Return a short diff from the golden files of a group to its current texts; empty if they are equal."""
    lines: list[str] = []
    for name, text in texts.items():
        old, new = read(name).splitlines(), text.splitlines()
        if old != new:
            lines += difflib.unified_diff(old, new, f"recorded/{name}", "now", n=1, lineterm="")
    if not lines:
        return ""
    shown = [line if len(line) <= _LINE_CHARACTERS else f"{line[:_LINE_CHARACTERS]}..." for line in lines]
    rest = len(shown) - _DIFF_LINES
    shown = [*shown[:_DIFF_LINES], f"... and {rest} more lines"] if rest > 0 else shown
    hint = f"If the change is deliberate, record the group again: python -m tests.golden.record {group}"
    return "\n".join([f"{group} differs from its golden files.", *shown, hint])
