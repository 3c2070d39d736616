"""The machine that lies: for every field of an honest report, changes that could flatter, with claims restated.

A place is a field by its path without the numbers of list items, such as `rows[].decode_s`. Each change is made at one
item, at all of them, and in rows at all of one arm. What is claimed is then taken again from the changed rows, so that
only a law can catch it. `tests/bridge/evidence/tell.py` tells the lies to the gate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

from bridge.evidence.claims import figure
from bridge.evidence.kinds import MODELS
from bridge.evidence.laws.change import Sort, apart
from bridge.evidence.names import LEGACY
from bridge.evidence.report_index import ReportIndex
from tests.bridge.evidence import reports

Report = dict[str, Any]
Change = Callable[[Any, list[Any]], Any]


class Gone:
    """In place of a value: the field is taken out."""


NUMBERS: dict[str, Change] = {
    "half": lambda value, _: type(value)(value / 2),
    "tenth": lambda value, _: type(value)(value / 10),
    "twice": lambda value, _: value * 2,
    "ten times": lambda value, _: value * 10,
    "one more": lambda value, _: value + 1,
    "nothing": lambda value, _: type(value)(0),
    "rounded": lambda value, _: type(value)(round(value, 2)),
}
TEXTS: dict[str, Change] = {
    "empty": lambda *_: "",
    "cut": lambda value, _: value[: len(value) // 2],
    "twice": lambda value, _: value * 2,
    "other": lambda *_: "something-else",
    "invisible": lambda value, _: value + "\u200b",
}
LISTS: dict[str, Change] = {
    "first half": lambda value, _: value[: len(value) // 2],
    "without its last": lambda value, _: value[:-1],
    "without its first": lambda value, _: value[1:],
    "first one twice": lambda value, _: [*value[:1], *value],
    "reversed": lambda value, _: value[::-1],
}
OTHERS: dict[str, Change] = {
    "taken out": lambda *_: Gone,
    "as in another": lambda value, others: next((other for other in others if other != value), value),
}
FLAGS: dict[str, Change] = {"turned": lambda value, _: not value}
SORTS = {"taken out": Sort.ABSENT, "as in another": Sort.SWAP, "reversed": Sort.ORDER}


@dataclass(frozen=True)
class Mutation:
    """One change: what is done at a place, and to which of its values."""

    kind: str
    place: str
    change: str
    scope: str

    def sort_of(self, value: Any) -> Sort:
        """Return the sort of this change, when it is made to the given value."""
        if self.change in SORTS:
            return SORTS[self.change]
        if isinstance(value, bool):
            return Sort.FLAG
        if isinstance(value, list):
            return Sort.COUNT
        return Sort.TEXT if isinstance(value, str) else Sort.NUMBER


def changes_of(value: Any) -> dict[str, Change]:
    """Return what may be done to a value of that type."""
    if isinstance(value, bool):
        return {**FLAGS, **OTHERS}
    if isinstance(value, int | float):
        return {**NUMBERS, **OTHERS}
    if isinstance(value, str):
        return {**TEXTS, **OTHERS}
    return {**LISTS, **OTHERS} if isinstance(value, list) else OTHERS


def places(report: Report) -> dict[str, list[tuple[Any, ...]]]:
    """Return the paths of all values, by their places; what is claimed is restated, and is no place."""
    found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)

    def walk(value: Any, path: tuple[Any, ...]) -> None:
        if path:
            found[name_of(path)].append(path)
        inner = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for step, item in inner:
            if isinstance(item, dict | list) or isinstance(step, str):
                walk(item, (*path, step))

    walk(
        {name: value for name, value in report.items() if name not in ("claims", "kind", "schema_version")},
        (),
    )
    return dict(found)


def name_of(path: tuple[Any, ...]) -> str:
    """Return the place of a path: items of lists are all one place."""
    return "".join("[]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def scopes(report: Report, paths: list[tuple[Any, ...]]) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """Yield which values are changed together: one, all, those of one arm, those of one prompt."""
    yield "one", paths[:1]
    if len(paths) > 1:
        yield "all", paths
    arms: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for path in paths:
        if path[0] == "rows" and len(path) > 1:
            row = report["rows"][path[1]]
            for about in ("arm", "length"):
                if about in row:
                    arms[f"{about} {row[about]}"].append(path)
    for name, some in arms.items():
        if len(some) < len(paths):
            yield name, some


def mutations(report: Report) -> Iterator[tuple[Mutation, list[tuple[Any, ...]], Change]]:
    """Yield every change of a report: name, paths and function."""
    for place, paths in places(report).items():
        value = at(report, paths[0])
        for name, change in changes_of(value).items():
            for scope, some in scopes(report, paths):
                yield Mutation(report["kind"], place, name, scope), some, change


def at(report: Report, path: tuple[Any, ...]) -> Any:
    for step in path:
        report = report[step]
    return report


def lie(honest: Report, paths: list[tuple[Any, ...]], change: Change) -> Report | None:
    """Return a changed report with its claims restated; None if nothing changes."""
    made = reports.copy(honest)
    others = (
        [at(honest, path) for path in paths]
        if len(paths) > 1
        else [at(honest, p) for p in alike(honest, paths[0])]
    )
    changed = False
    for path in reversed(paths):
        holder, old = at(made, path[:-1]), at(honest, path)
        new = change(old, others) if type(old) is type(at(honest, paths[0])) else old
        if new is Gone and isinstance(holder, dict):
            del holder[path[-1]]
            changed = True
        elif new is not Gone and (new != old or type(new) is not type(old)):
            holder[path[-1]] = reports.copy(new)
            changed = True
    if not changed:
        return None
    try:
        made = restated(honest, made)
    except (ArithmeticError, KeyError, ValueError, TypeError, IndexError, AttributeError):
        return made  # nothing could be claimed of that: its claims stay
    return None if made == honest else made


def restated(honest: Report, made: Report) -> Report:
    """State anew what follows from the rows: whole times, claims, when rows started, and how long the run took."""
    if made["kind"] == LEGACY:
        return reports.restate_legacy(made)
    add_up(honest, made)
    claimed(made)
    took = [[*map(lasted, one["rows"])] for one in (honest, made)]
    if took[0] != took[1]:
        was = end(honest)
        starts_again(honest, made)
        if made.get("seconds") == honest.get("seconds"):
            made["seconds"] = honest["seconds"] * end(made) / was
    return made


def add_up(honest: Report, made: Report) -> None:
    """Let a row whose parts take another time take as much more or less as a whole."""
    if len(made["rows"]) != len(honest["rows"]):
        return
    for old, new in zip(honest["rows"], made["rows"], strict=True):
        parts = [name for name in ("prefill_s", "decode_s") if new.get(name) != old.get(name) and name in new]
        if parts and new.get("e2e_s") == old.get("e2e_s"):
            new["e2e_s"] = old["e2e_s"] + sum(new[name] - old[name] for name in parts)


def lasted(row: Report) -> float:
    return float(row.get("e2e_s", row.get("seconds", 0.0)))


def end(made: Report) -> float:
    """When the last row ended, or how long all rows took together."""
    last = made["rows"][-1]
    return last["started_s"] + lasted(last) if "started_s" in last else sum(map(lasted, made["rows"])) or 1.0


def starts_again(honest: Report, made: Report) -> None:
    """Let each row start when the one before has ended, after the pause that followed it in the honest report."""
    pauses = [
        two["started_s"] - one["started_s"] - lasted(one)
        for one, two in pairwise(honest["rows"])
        if "started_s" in one and "started_s" in two
    ]
    start = honest["rows"][0].get("started_s", 0.0)
    for row, pause in zip_longest(made["rows"], pauses[: len(made["rows"])], fillvalue=2e-4):
        if isinstance(row.get("started_s"), float):
            row["started_s"] = start
        start += lasted(row) + pause


def claimed(made: Report) -> None:
    """Claim what the gate computes from the rows, so that no claim gives a lie away; nothing else if it computes none.

    The formulas of the tests would do for their own reports, but not for arms and warm-up rows of others.
    """
    index = ReportIndex(MODELS[made["kind"]].model_validate(made))
    for claim, parsed in zip(made["claims"], index.claims, strict=True):
        if index.is_whole(parsed):
            found = figure(index, parsed)
            claim["value"] = found.value
            if found.interval and claim.get("interval"):
                claim["interval"] = [*found.interval]


def alike(report: Report, path: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return the paths of the same field in the other items of its list."""
    if not path or path[0] not in report or len(path) < 2 or not isinstance(path[1], int):
        return [path]
    found = []
    for i in range(len(report[path[0]])):
        try:
            at(report, (path[0], i, *path[2:]))
        except (KeyError, IndexError, TypeError):
            continue
        found.append((path[0], i, *path[2:]))
    return found


def size_of(honest: Report, made: Report, paths: list[tuple[Any, ...]]) -> float:
    """Return how far the numbers at some paths moved at most, as a share; infinite if there are others."""
    try:
        pairs = [(at(honest, path), at(made, path)) for path in paths]
    except (KeyError, IndexError, TypeError):
        return float("inf")
    return max((apart(old, new) for old, new in pairs), default=0.0)
