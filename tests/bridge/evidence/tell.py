"""Tells the gate every lie about honest reports, and counts which are rejected, listed, and neither.

`python -P -m tests.bridge.evidence.tell` tells all lies about all reports of whole.py. It fails if the gate accepts a
lie that is not in the table of unchecked fields, or if a part of this table was needed for no lie. To lie about some
reports only, name them: reports of whole.py, or files.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridge.evidence import faults
from bridge.evidence.bundled import bundled
from bridge.evidence.laws.change import Change, Sort, moved
from bridge.evidence.laws.unchecked import stands_for
from bridge.evidence.laws.unchecked_table import UNCHECKED
from bridge.evidence.names import LEGACY
from tests.bridge.evidence import whole
from tests.bridge.evidence.mutations import Mutation, Report, at, lie, mutations, size_of

# What nobody gains from: a lower speed is no flattery, nor is a larger error.
LOWER_IS_BETTER = {
    "cache_bytes", "verify_ms", "verify_ratio", "stored_bits_per_value", "rel_mse", "kl", "perplexity", "rel_mse_ratio",
    "kl_ratio", "prompt_kl", "prompt_kl_ratio",
}  # fmt: skip
# A claim may be rounded so far.
GAIN = 0.01
CONTROLS = ("poison", "evicted")
# What reports of schema 2 claim.
OLDER = (
    ("throughput", "decode_only", "speedup"), ("throughput", "cross_model_speedup_vs_oracle_ar"),
    ("gate", "recall_cross_model"), ("gate", "recall_oracle"), ("memory", "savings_vs_naive_pct"),
)  # fmt: skip

# What the table has: the number of an entry, and a field, a kind or a sort of it.
Need = tuple[int, str]


@dataclass
class Tally:
    """What became of the lies about one report.

    Attributes:
        kind: its kind.
        rejected: how many were rejected.
        listed: how many passed that the table lists.
        unlisted: by place, those that passed and are not in the table.
        needed: which parts of the table a lie needed.
    """

    kind: str
    rejected: int = 0
    listed: int = 0
    unlisted: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    needed: set[Need] = field(default_factory=set)


def tell(honest: Report, every: int = 1, start: int = 0) -> Tally:
    """Tell every so manieth lie about a report, and count which the gate believes."""
    tally = Tally(honest["kind"])
    for i, (mutation, paths, edit) in enumerate(mutations(honest)):
        if i % every != start % every:
            continue
        made = lie(honest, paths, edit)
        if made is None or not flatters(honest, made):
            continue
        if next(faults(made), None):
            tally.rejected += 1
            continue
        change = Change(
            mutation.sort_of(at(honest, paths[0])), mutation.scope == "all",
            size_of(honest, made, paths), moved(figures(honest), figures(made)), is_bundled(honest),
        )  # fmt: skip
        needed = look_up(mutation, change)
        tally.needed |= needed
        if needed:
            tally.listed += 1
        else:
            tally.unlisted[mutation.place].append(told(mutation, change))
    return tally


def look_up(mutation: Mutation, change: Change) -> set[Need]:
    """Return which parts of the table list a lie that passed."""
    needed: set[Need] = set()
    for i, entry in enumerate(UNCHECKED):
        sorts = entry.lets_pass(change) if entry.names(mutation.kind, mutation.place) else frozenset()
        if sorts:
            needed |= {(i, mutation.kind), *((i, str(sort)) for sort in sorts)}
            needed |= {(i, one) for one in entry.fields if stands_for(one, mutation.place)}
    return needed


def table() -> set[Need]:
    """Return all parts of the table: each was put there because a lie needed it."""
    return {
        (i, str(part))
        for i, entry in enumerate(UNCHECKED)
        for part in (*entry.fields, *entry.kinds, *entry.sorts)
    }


def told(mutation: Mutation, change: Change) -> str:
    size = f", by {change.size:.3g}" if change.sort is Sort.NUMBER else ""
    moves = f", a claim moves by {change.moved:.3g}" if change.moved else ""
    return f"{mutation.change} ({mutation.scope}{size}{moves})"


def figures(report: Report) -> dict[object, object]:
    """Return what a report claims, by name. Sweeps over codecs claim nothing: their rows are the result."""
    if report["kind"] == LEGACY:
        return {path: value for path in OLDER if (value := inner(report, path)) is not None}
    if report["kind"] == "kakeya.codec-rd":
        told = ("codec", "bits", "group", "rotated", "distribution")
        return {tuple(row.get(name) for name in told): row.get("rel_mse") for row in report["rows"]}
    return {key(claim): claim["value"] for claim in gained(report)}


def gained(report: Report) -> list[Report]:
    """Return the claims from which someone could gain: not those about noise, which is there to fail."""
    noise = {arm.get("name") for arm in report.get("arms", []) if arm.get("role") in CONTROLS}
    return [claim for claim in report.get("claims", []) if claim.get("arm") not in noise]


def is_bundled(report: Report) -> bool:
    return any(model.get("id") in bundled()["models"] for model in report.get("models", []))


def inner(value: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def flatters(honest: Report, made: Report) -> bool:
    """Say whether a claim looks better than it was, or none looks worse."""
    before = {key(claim): claim["value"] for claim in gained(honest)}
    gains = []
    for claim in gained(made):
        old = before.get(key(claim))
        if old is not None and isinstance(claim["value"], int | float):
            better = old - claim["value"] if claim["name"] in LOWER_IS_BETTER else claim["value"] - old
            gains.append(better / max(abs(old), 1e-9))
    return not gains or max(gains) > GAIN or min(gains) > -GAIN


def key(claim: Report) -> tuple[str, ...]:
    return claim["name"], str(claim.get("arm")), str(claim.get("against")), str(claim.get("where"))


def tell_about(name: str) -> tuple[str, Tally]:
    """Tell all lies about one report, by its name in whole.py or its path."""
    honest = (
        whole.HONEST[name]() if name in whole.HONEST else json.loads(Path(name).read_text(encoding="utf-8"))
    )
    return name, tell(honest, every=whole.EVERY.get(name, 1))


def main() -> int:
    """Tell all lies, and print what became of them by kind."""
    names = sys.argv[1:] or [*whole.HONEST]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    needed: set[Need] = set()
    with ProcessPoolExecutor(int(os.environ.get("JOBS") or os.cpu_count() or 1)) as pool:
        for name, tally in pool.map(tell_about, names):
            unlisted = sum(map(len, tally.unlisted.values()))
            counts[tally.kind].update(rejected=tally.rejected, listed=tally.listed, unlisted=unlisted)
            needed |= tally.needed
            print(
                f"{name}: {tally.rejected} rejected, {tally.listed} listed, {unlisted} unlisted", flush=True
            )
            for place, lies in sorted(tally.unlisted.items()):
                print(f"  {place}: {', '.join(lies)}", flush=True)
    for kind, count in counts.items():
        print(f"{kind}: " + ", ".join(f"{n} {word}" for word, n in count.items()))
    whole_run = not sys.argv[1:]
    idle = sorted(table() - needed) if whole_run else []
    for i, part in idle:
        print(f"no lie needed {part} in the entry of {UNCHECKED[i].fields[0]} ({UNCHECKED[i].reason})")
    return int(bool(idle) or any(count["unlisted"] for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
