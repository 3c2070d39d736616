"""Writes the tables of rules, laws and unchecked fields in docs/evidence.md from the gate itself: `make docs`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from bridge.evidence.laws import BY_GROUP
from bridge.evidence.laws.unchecked import Unchecked
from bridge.evidence.laws.unchecked_table import UNCHECKED
from bridge.evidence.names import KINDS, LEGACY
from bridge.evidence.rules import RULES
from bridge.evidence.shape import SHAPES
from bridge.evidence.table import TABLE, Entry

HEADS = {
    "rules": "| code | verdict | kinds | meaning | fix |\n|---|---|---|---|---|\n",
    "laws": "| about | law | kinds | what must hold | code |\n|---|---|---|---|---|\n",
    "unchecked": "| fields | kinds | changes that pass | reason |\n|---|---|---|---|\n",
    "bounded": "| fields | kinds | changes that pass | a claim moves by at most | reason |\n|---|---|---|---|---|\n",
    "unbounded": "| fields | kinds | changes that pass | reason |\n|---|---|---|---|\n",
}


def main() -> None:
    page = Path(__file__).with_name("evidence.md")
    text = page.read_text(encoding="utf-8")
    for name, rows in tables().items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        made = begin + HEADS[name] + "".join(rows) + end
        text = re.sub(f"{begin}.*?{end}", lambda _, made=made: made, text, flags=re.DOTALL)
    page.write_text(text, encoding="utf-8")


def tables() -> dict[str, list[str]]:
    return {
        "rules": [row(entry) for entry in TABLE.values()],
        "laws": [
            f"| {group} | `{one.name}` | {kinds_in(one.kinds)} | {one.statement} | `{one.code}` |\n"
            for group, some in BY_GROUP.items() for one in some
        ],
        "unchecked": [unchecked(one) for one in UNCHECKED if not one.moves],
        "bounded": [unchecked(one) for one in UNCHECKED if one.is_bounded],
        "unbounded": [unchecked(one) for one in UNCHECKED if one.moves and not one.is_bounded],
    }  # fmt: skip


def row(entry: Entry) -> str:
    return f"| `{entry.code}` | {entry.verdict} | {kinds_of(entry.code)} | {entry.why} | {entry.mend} |\n"


def unchecked(one: Unchecked) -> str:
    most = f" {one.moves:.0%} |" if one.is_bounded else ""
    kinds = kinds_in(one.kinds) + (", of models that are not bundled" if one.others else "")
    return f"| {places(one.fields)} | {kinds} | {one.says} |{most} {one.reason} |\n"


def places(names: Iterable[str]) -> str:
    """Return places as code."""
    return ", ".join(f"`{name}`" for name in names)


def kinds_of(code: str) -> str:
    """Return the kinds that a rule looks at; what is said of a file before its kind is known is said of all."""
    kinds = [kind for kind in KINDS if code in [rule.code for rule in RULES[kind]]]
    return "all" if not kinds or code in SHAPES else kinds_in(kinds)


def kinds_in(kinds: Iterable[str]) -> str:
    """Return kinds in words."""
    some = [*kinds]
    if len(some) == len(KINDS):
        return "all"
    if LEGACY not in some and len(some) == len(KINDS) - 1:
        return "all of schema 3"
    return ", ".join("schema 2" if kind == LEGACY else kind.removeprefix("kakeya.") for kind in some)


if __name__ == "__main__":
    main()
