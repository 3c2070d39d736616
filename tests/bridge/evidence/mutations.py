"""The machine that lies: for every field of an honest report, changes that could flatter, with claims restated.

A place is a field by its path without the numbers of list items, such as `rows[].decode_s`. Each change is made at one
item, at all of them, and in rows at all of one arm. What is claimed is then taken again from the changed rows, so that
only a law can catch it. `python -P -m tests.bridge.evidence.mutations [REPORT...]` counts, for the honest reports of
the tests or for reports that lie in files.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.evidence import check_report
from bridge.evidence.claims import figure
from bridge.evidence.kinds import MODELS
from bridge.evidence.laws.unchecked import reason_for
from bridge.evidence.names import LEGACY
from bridge.evidence.report_index import ReportIndex
from tests.bridge.evidence import reports

Report = dict[str, Any]
Change = Callable[[Any, list[Any]], Any]

# What nobody gains from: a lower speed is no flattery, nor is a larger error.
LOWER_IS_BETTER = {
    "cache_bytes", "verify_ms", "verify_ratio", "stored_bits_per_value", "rel_mse", "kl", "perplexity", "rel_mse_ratio",
    "kl_ratio", "prompt_kl", "prompt_kl_ratio",
}  # fmt: skip
# A claim may be rounded so far.
GAIN = 0.01


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
ANY: dict[str, Change] = {
    "taken out": lambda *_: Gone,
    "as in another": lambda value, others: next((other for other in others if other != value), value),
}
FLAGS: dict[str, Change] = {"turned": lambda value, _: not value}


@dataclass(frozen=True)
class Mutation:
    """One change: what is done at a place, and to which of its values."""

    kind: str
    place: str
    change: str
    scope: str


def changes_of(value: Any) -> dict[str, Change]:
    """Return what may be done to a value of that type."""
    if isinstance(value, bool):
        return {**FLAGS, **ANY}
    if isinstance(value, int | float):
        return {**NUMBERS, **ANY}
    if isinstance(value, str):
        return {**TEXTS, **ANY}
    return {**LISTS, **ANY} if isinstance(value, list) else ANY


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
    """Return a changed report with its claims restated; None where nothing changes or nothing can be claimed."""
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
        return restated(honest, made)
    except (ArithmeticError, KeyError, ValueError, TypeError, IndexError, AttributeError):
        return made  # nothing could be claimed of that: its claims stay


def restated(honest: Report, made: Report) -> Report:
    if made["kind"] == LEGACY:
        return reports.restate_legacy(made)
    claimed(made)
    took = [sum(row.get("e2e_s", row.get("seconds", 0.0)) for row in one["rows"]) for one in (honest, made)]
    if took[0] > 0 and took[1] != took[0] and made.get("seconds") == honest.get("seconds"):
        made["seconds"] = honest["seconds"] * took[1] / took[0]
        start = 0.0
        for i, row in enumerate(made["rows"]):
            if isinstance(row.get("started_s"), float):
                row["started_s"] = start + 1e-4 + 1e-7 * (i * i % 97)
                start += row.get("e2e_s", row.get("seconds", 0.0)) + 2e-4
    return made


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


def flatters(honest: Report, made: Report) -> bool:
    """Say whether a claim looks better than it was, or none looks worse."""
    before = {key(claim): claim["value"] for claim in honest.get("claims", [])}
    gains = []
    for claim in made.get("claims", []):
        old = before.get(key(claim))
        if old is not None and isinstance(claim["value"], int | float):
            better = old - claim["value"] if claim["name"] in LOWER_IS_BETTER else claim["value"] - old
            gains.append(better / max(abs(old), 1e-9))
    return not gains or max(gains) > GAIN or min(gains) > -GAIN


def key(claim: Report) -> tuple[str, ...]:
    return claim["name"], str(claim.get("arm")), str(claim.get("against")), str(claim.get("where"))


@dataclass
class Tally:
    """What became of the lies of one kind."""

    rejected: int = 0
    passed: dict[str, list[str]] = None  # type: ignore[assignment]
    caught: Counter[str] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.passed, self.caught = defaultdict(list), Counter()


def tell(honest: Report, every: int = 1, start: int = 0) -> Tally:
    """Tell every so manieth lie about a report, and count which the gate believes."""
    tally = Tally()
    for i, (mutation, paths, change) in enumerate(mutations(honest)):
        if i % every != start % every:
            continue
        made = lie(honest, paths, change)
        if made is None or not flatters(honest, made):
            continue
        if check_report(made):
            tally.rejected += 1
            tally.caught[mutation.place] += 1
        else:
            tally.passed[mutation.place].append(f"{mutation.change} ({mutation.scope})")
    return tally


def _codec(made: Report) -> None:
    made["config"].update(codecs=["affine"], bits=[2], groups=[64], distributions=["gaussian", "t4"])
    made["rows"] = [
        row | {"dim": 64, "rotated": rotated} for rotated in (False, True) for row in made["rows"]
    ]
    made["rows"][-1]["rel_mse"] = 0.152  # a rotation makes heavy tails nearly Gaussian


def _drafting(made: Report) -> None:
    """Name the arm as the engine does, and count a round for the first token too."""
    options = {"block_size": 8, "lookup": False, "adaptive": False}
    made["arms"][2].update(name="dflash/auto", loop="engine.dflash.stream_generate", options=options)
    for one in (*made["rows"], *made["claims"]):
        one.update({"arm": "dflash/auto"} if one["arm"] == "dflash" else {})
    made["config"].update(
        drafters=["dflash"], rollbacks=["auto"], left_out={}, block=8, repeats=reports.REPEATS
    )
    for row in made["rows"]:
        if "commits" in row:
            row.update(commits=[1, *row["commits"]], accepted=[0, *row["accepted"]])
            row["drafted"] = [min(7, 40 - n) for n in (0, *range(1, 40, 4))]
            row["counters"] = {"rounds": 11, "syncs": 11, "rounds_dflash": 11}
    made["models"].append(reports.model("draft"))


def _sweep(made: Report) -> None:
    made["config"].update(repeats=5, contexts=[4096])
    made["rows"] = [row | {"repeat": row["repeat"] + 1} for row in made["rows"]]


def _needles(made: Report) -> None:
    made["config"].update(lengths=[32], depths=[0.3], samples=len(made["prompts"]), caches=["e8v@4.25"])


MORE: dict[str, Callable[[Report], object]] = {
    "kakeya.codec-rd": _codec,
    "kakeya.spec-bench": _drafting,
    "kakeya.acceptance": _drafting,
    "kakeya.native": lambda made: made["config"].update(repeats=reports.REPEATS),
    "kakeya.recall": _needles,
    "kakeya.restored-prefill": _needles,
    "kakeya.verify-l": _sweep,
    "kakeya.kv-quant": lambda made: made["config"].update(tokens=512, caches=["affine@4g64", "e8v@4.25"]),
    "kakeya.parity": lambda made: made["config"].update(blocks=4, block_size=8, max_prompts=4),
    "kakeya.serve-conformance": lambda _: None,
}


def whole(kind: str) -> Report:
    """Return an honest report with all that the engine says of its configuration."""
    made = reports.HONEST[kind]()
    if kind == LEGACY:
        return made
    MORE[kind](made)
    for model in made.get("models", []):
        model["layers"] = 1 if kind == "kakeya.kv-quant" else reports.LAYERS
    made["identity"] |= {"cores": 8, "memory_bytes": 1 << 34, "power": {}}
    start = 0.0
    for i, row in enumerate(made["rows"]):
        took = row.get("e2e_s", row.get("seconds"))
        if took is not None:
            row["started_s"] = start + 1e-4 + 1e-7 * (i * i % 97)
            start += took + 2e-4
    return reports.restate(made)


def main() -> int:
    """Count the lies about the honest reports of the tests, or about reports in files."""
    named = [json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:] if name != "--list"]
    failed = False
    for honest in named or map(whole, reports.HONEST):
        tally = tell(honest)
        passed = sum(map(len, tally.passed.values()))
        untold = {place for place in tally.passed if reason_for(honest["kind"], place) is None}
        print(
            f"{honest['kind']}: {tally.rejected} rejected, {passed} listed, {len(untold)} places not listed",
            flush=True,
        )
        for place in sorted(tally.passed if "--list" in sys.argv else untold):
            print(f"  {place} ({tally.caught[place]} rejected): {', '.join(tally.passed[place])}", flush=True)
        failed = failed or bool(untold)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
