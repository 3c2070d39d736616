"""Writes the table of rules in docs/evidence.md from the gate itself: `make docs`."""

from __future__ import annotations

import re
from pathlib import Path

from bridge.evidence.names import KINDS, LEGACY
from bridge.evidence.rules import RULES, code_of
from bridge.evidence.shape import SHAPES
from bridge.evidence.table import TABLE, Entry

BEGIN, END = "<!-- rules: begin -->\n", "<!-- rules: end -->"
HEAD = "| code | verdict | kinds | said because | what mends it |\n|---|---|---|---|---|\n"


def main() -> None:
    page = Path(__file__).with_name("evidence.md")
    rows = HEAD + "".join(row(entry) for entry in TABLE.values())
    text = re.sub(
        f"{BEGIN}.*{END}", lambda _: BEGIN + rows + END, page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    page.write_text(text, encoding="utf-8")


def row(entry: Entry) -> str:
    verdict = "INCOMPLETE" if entry.missing else "REJECTED"
    return f"| `{entry.code}` | {verdict} | {kinds_of(entry.code)} | {entry.why} | {entry.mend} |\n"


def kinds_of(code: str) -> str:
    """Return the kinds that a rule looks at; what is said of a file before its kind is known is said of all."""
    kinds = [kind for kind in KINDS if code in map(code_of, RULES[kind])]
    if not kinds or len(kinds) == len(KINDS) or code in SHAPES:
        return "all"
    if LEGACY not in kinds and len(kinds) == len(KINDS) - 1:
        return "all of schema 3"
    return ", ".join("schema 2" if kind == LEGACY else kind.removeprefix("kakeya.") for kind in kinds)


if __name__ == "__main__":
    main()
