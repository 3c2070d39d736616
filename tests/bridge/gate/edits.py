"""Every edit of a report of each kind, judged against the run that measured the original.

``python -m tests.bridge.gate.edits`` prints how many there are by kind and verdict. None may be ACCEPTED.
"""

from __future__ import annotations

import itertools
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from bridge.gate import NO_RUN, RunBinding, Voucher, check_report, verdict, violation
from bridge.gate.binding import mismatches
from bridge.reports import kinds
from bridge.reports.claims import derive_claims
from tests.bridge.gate import reports
from tests.bridge.gate.reports import Report

Path = tuple[str | int, ...]
# A list of so many plain values, such as tokens, is edited as one thing; of equal neighbours, only the first is.
_LONG = 4
# Claims are derived from other parts than these.
_NOT_IN_CLAIMS = ("claims", "identity", "models", "created_at", "seconds", "run", "schema_version")


class Edit(NamedTuple):
    """A report that differs from what its run wrote. ``name`` says where and how."""

    name: str
    report: Report


def single_edits(report: Report) -> Iterator[Edit]:
    """Yield a report with each of its fields changed, each by itself."""
    for path, value in _places(report, ()):
        for how, changed in _changes(value):
            yield Edit(f"{_named(path)}: {how}", _put(report, path, changed))
        if isinstance(value, dict):
            yield Edit(f"{_named(path)}: key added", _put(report, path, value | {"added": 1}))
            for key in value:
                rest = {name: item for name, item in value.items() if name != key}
                yield Edit(f"{_named((*path, key))}: removed", _put(report, path, rest))


def with_claims(edit: Edit) -> Iterator[Edit]:
    """Yield the same edit with the claims derived again to fit, if that differs."""
    if not edit.name.startswith(_NOT_IN_CLAIMS):
        claims = _derived(edit.report)
        if claims is not None and claims != edit.report.get("claims"):
            yield Edit(f"{edit.name}, with its claims", edit.report | {"claims": claims})


def all_edits(report: Report, every: int = 1) -> Iterator[Edit]:
    """Yield the edits of a report, or one of so many: each by itself, and with claims that fit."""
    for edit in itertools.islice(itertools.chain(experiments(report), single_edits(report)), 0, None, every):
        yield edit
        yield from with_claims(edit)


def edits_by_class(report: Report) -> Iterator[Edit]:
    """Yield of each class of edits the first, the last, and one between them: by itself, and with claims that fit.

    A class is a change to a field, whichever item of its lists the field is in.
    """
    classes: dict[str, list[Edit]] = {}
    for edit in itertools.chain(experiments(report), single_edits(report)):
        classes.setdefault(re.sub(r"[0-9]+", "", edit.name), []).append(edit)
    chosen = random.Random(0)
    for alike in classes.values():
        sample = {0, len(alike) - 1, chosen.randrange(len(alike))}
        for edit in (alike[i] for i in sorted(sample)):
            yield edit
            yield from with_claims(edit)


def _places(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, (*path, key))
    elif isinstance(value, list) and (len(value) <= _LONG or any(isinstance(item, dict) for item in value)):
        for i, item in enumerate(value):
            if i == 0 or item != value[i - 1]:
                yield from _places(item, (*path, i))


def _changes(value: Any) -> Iterator[tuple[str, Any]]:
    if value is not None:
        yield "null", None
    if isinstance(value, bool):
        yield "negated", not value
    elif isinstance(value, int | float):
        yield from (("up", value + 1), ("down", value - 1), ("slightly up", value * 1.001 + 1e-9))
        yield "as text", str(value)
    elif isinstance(value, str):
        yield from (("longer", value + "x"), ("shorter", value[:-1]), ("empty", ""), ("a number", 7))
    elif value is None:
        yield from (("set", "x"), ("a number", 1))
    elif isinstance(value, list):
        yield "an item added", [*value, *(value[-1:] or [1])]
        if value:
            yield from (("last item removed", value[:-1]), ("first item removed", value[1:]), ("emptied", []))
        if value != value[::-1]:
            yield "reversed", value[::-1]


def _put(container: Any, path: Path, value: Any) -> Any:
    """Return a container with a value at a path; what lies beside the path is shared."""
    if not path:
        return value if isinstance(value, dict) else {}
    changed = container.copy()
    changed[path[0]] = _put(container[path[0]], path[1:], value) if path[1:] else value
    return changed


def _named(path: Path) -> str:
    return ".".join(map(str, path)) or "report"


def _derived(report: Report) -> list[dict[str, Any]] | None:
    try:
        return derive_claims(report)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None


def experiments(report: Report) -> Iterator[Edit]:
    """Yield what somebody would change who wants other figures: whole arms, prompts, repeats, models and times."""
    rows: list[Report] = report.get("rows", [])
    for factor, name in itertools.product((0.5, 0.99, 1.01, 2.0), {row.get("arm") for row in rows}):
        slower = [_slower(row, factor) if row.get("arm") == name else row for row in rows]
        if slower != rows:
            yield Edit(f"arm {name} {factor} times as slow", report | {"rows": slower})
    for part in ("arm", "prompt", "repeat"):
        for name in {row[part] for row in rows if part in row}:
            kept = [row for row in rows if row.get(part) != name]
            described = [
                item for item in report.get(f"{part}s", []) if name not in (item.get("name"), item.get("id"))
            ]
            header = {f"{part}s": described} if f"{part}s" in report else {}
            yield Edit(f"{part} {name} left out", report | header | {"rows": kept})
    for i in range(len(rows) - 1):
        swapped = [*rows[:i], rows[i + 1], rows[i], *rows[i + 2 :]]
        yield Edit(f"rows {i} and {i + 1} swapped", report | {"rows": swapped})
    for i, described in enumerate(report.get("models", [])):
        larger = described | {"id": "large", "weights": reports.digest("large")}
        config = report["config"] | {"model": "large"}
        yield Edit(f"model {i} renamed", _put(report, ("models", i), larger) | {"config": config})


def _slower(row: Report, factor: float) -> Report:
    times = {name: row[name] * factor for name in ("decode_s", "seconds") if name in row}
    rest = row.get("e2e_s", 0) - row.get("decode_s", 0)
    return row | times | ({"e2e_s": times["decode_s"] + rest} if "e2e_s" in row else {})


def verdict_of(report: Report, run: Voucher) -> str:
    """Return the verdict; without the checks of the experiment where the run alone already rejects the report."""
    if isinstance(run, RunBinding):
        try:
            quick = verdict([violation(*fault) for fault in mismatches(report, run)])
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            quick = "INCOMPLETE"
        if quick == "REJECTED":
            return quick
    return verdict(check_report(report, run))


def cases(kind: str) -> tuple[Report, Voucher]:
    """Return the report of a kind, and the run that measured it. No run knows the earlier system."""
    report = reports.BUILDERS[kind]()
    return (report, NO_RUN) if kind == kinds.LEGACY else reports.vouched(report)


def table(
    names: Sequence[str], listed: Callable[[Report], Iterator[Edit]] = all_edits
) -> dict[str, Counter[str]]:
    """Return the number of listed edits by kind and verdict."""
    counts: dict[str, Counter[str]] = {}
    for kind in names:
        report, run = cases(kind)
        counts[kind] = Counter(verdict_of(edit.report, run) for edit in listed(report))
    return counts


if __name__ == "__main__":
    counts = table(tuple(sys.argv[1:]) or tuple(reports.BUILDERS))
    for kind, by_verdict in counts.items():
        print(f"{kind:36}", *(f"{name} {number:,}" for name, number in sorted(by_verdict.items())))
    sys.exit(1 if any(by_verdict["ACCEPTED"] for by_verdict in counts.values()) else 0)
