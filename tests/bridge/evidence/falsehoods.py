# ruff: noqa: E501 - a table: one case a line reads best
"""Flattering falsehoods about real reports: each is consistent on its face, with its claims computed from the changed rows.

The reports lie in `tests/bridge/evidence/real`, one for each command, as a small run wrote them. `FALSEHOODS` are what someone would
write who knows the format; `TWINS` are what honest runs look like on other machines, with other options and other luck.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from bridge.evidence.bundled import DIGESTS, bundled
from bridge.evidence.claims import figure
from bridge.evidence.kinds import MODELS
from bridge.evidence.report_index import ReportIndex
from tests.bridge.evidence.reports import copy, digest

Report = dict[str, Any]
Edit = Callable[[Report], object]
Row = Callable[[Report], object]

BEN, ACC, NAT, PAR, CODEC = "bench", "acceptance", "native", "parity", "codec_rd"
VER, KVQ, REC, RES = "verify_l", "kv_quant", "recall", "restored"
SLI = "restored_sliding"
SERVED = "served"
RESULTS = Path(__file__).parents[3] / "docs/results"  # published reports can be named too
NAMES = (BEN, ACC, NAT, PAR, CODEC, VER, KVQ, REC, RES, SLI, SERVED)
LENGTHS, REPEATS, OURS = [1, 2, 4, 8, 16], 3, "dflash/auto"


@dataclass(frozen=True)
class Case:
    """A real report and what is done to it."""

    base: str
    edit: Edit


@cache
def _read(name: str) -> Report:
    packed = Path(__file__).parent / "real" / f"{name}.json.gz"
    text = (
        gzip.decompress(packed.read_bytes()) if packed.is_file() else (RESULTS / f"{name}.json").read_bytes()
    )
    made = dict(json.loads(text))
    for model in made.get("models", []):
        # Some were measured with earlier weights. The gate knows today's digests alone.
        known = bundled()["models"].get(model["id"], {}).get(model["role"], {})
        model |= {field: known[field] for field in DIGESTS if field in known}
    return made


def real(name: str) -> Report:
    """A real report, made anew for each caller."""
    made: Report = copy(_read(name))
    return made


def with_pauses(name: str) -> Report:
    """A real report whose rows say what pause followed them."""
    made = real(name)
    take_pauses(made, made)
    return made


def take_pauses(honest: Report, made: Report) -> None:
    """Let the rows of a report say what pause followed the rows of an honest one."""
    pauses = [
        two["started_s"] - one["started_s"] - _took(one)
        for one, two in pairwise(honest["rows"])
        if "started_s" in one and "started_s" in two
    ]
    for row, pause in zip(made["rows"], pauses, strict=False):
        row["pause"] = pause


def told(case: Case) -> Report:
    """The report of a case, with claims and start times that fit its rows."""
    made = with_pauses(case.base)
    case.edit(made)
    return restated(made)


def restated(made: Report) -> Report:
    """Compute every claim from the rows, and let rows start one after the other with the pauses that there were."""
    _restart(made)
    for row in made["rows"]:
        row.pop("pause", None)
    try:
        index = ReportIndex(MODELS[made["kind"]].model_validate(made))
        for claim, parsed in zip(made["claims"], index.claims, strict=True):
            if index.is_whole(parsed):
                found = figure(index, parsed)
                claim["value"] = found.value
                if "interval" in claim and found.interval:
                    claim["interval"] = list(found.interval)
    except (ValueError, KeyError, ZeroDivisionError):
        pass  # nothing can be computed of that
    return made


GAP = 0.003


def _took(row: Report) -> float:
    return float(row.get("e2e_s", row.get("seconds", 0.0)))


def _restart(made: Report) -> None:
    rows = [row for row in made["rows"] if "started_s" in row]
    if not rows or made.pop("keep times", None):
        return
    start = rows[0]["started_s"]
    for row in rows:
        gap = row.pop("gap", row.get("pause", GAP))
        row["started_s"] = start
        start += _took(row) + gap
    made["seconds"] = round(start + 0.02, 3)


# What is done to rows


def rows(made: Report, arm: str | None = None, prompt: str | None = None, **fields: Any) -> list[Report]:
    return [
        row for row in made["rows"]
        if arm in (None, row.get("arm")) and prompt in (None, row.get("prompt"))
        and all(row.get(name) == value for name, value in fields.items())
    ]  # fmt: skip


def each(arm: str | None, change: Row, prompt: str | None = None, **fields: Any) -> Edit:
    return lambda made: [change(row) for row in rows(made, arm, prompt, **fields)]


def all_of(*edits: Edit) -> Edit:
    return lambda made: [edit(made) for edit in edits]


def put(*path: Any, to: Any) -> Edit:
    def edit(made: Report) -> None:
        inner: Any = made
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = to

    return edit


def drop(*path: Any) -> Edit:
    def edit(made: Report) -> None:
        inner: Any = made
        for step in path[:-1]:
            inner = inner[step]
        inner.pop(path[-1], None)

    return edit


def setting(**fields: Any) -> Row:
    return lambda row: row.update(fields)


def times(by: float, field: str = "decode_s") -> Row:
    """Scale a time, and the whole with it."""

    def change(row: Report) -> None:
        row["e2e_s"] += (by - 1) * row[field]
        row[field] *= by

    return change


def moved(share: float, source: str = "decode_s", to: str = "prefill_s") -> Row:
    """Move a share of one time into another; the whole stays."""

    def change(row: Report) -> None:
        row[to] += share * row[source]
        row[source] *= 1 - share

    return change


def without(field: str, *values: Any) -> Edit:
    """Leave rows out."""
    return lambda made: made.update(rows=[row for row in made["rows"] if row.get(field) not in values])


def without_arm(name: str) -> Edit:
    """Leave an arm out, everywhere."""

    def edit(made: Report) -> None:
        without("arm", name)(made)
        made["arms"] = [arm for arm in made["arms"] if arm["name"] != name]
        made["claims"] = [c for c in made["claims"] if name not in (c.get("arm"), c.get("against"))]

    return edit


def without_prompts(*names: str) -> Edit:
    """Leave prompts out, everywhere."""

    def edit(made: Report) -> None:
        without("prompt", *names)(made)
        made["prompts"] = [prompt for prompt in made["prompts"] if prompt["id"] not in names]
        left = {prompt["workload"] for prompt in made["prompts"]}
        made["workloads"] = {name: told for name, told in made["workloads"].items() if name in left}
        made["claims"] = [c for c in made["claims"] if c.get("where", {}).get("workload") in (None, *left)]

    return edit


def without_repeat(number: int) -> Edit:
    """Leave a counted repeat out, number the others anew and configure one fewer."""

    def edit(made: Report) -> None:
        made["rows"] = [row for row in made["rows"] if row["repeat"] != number]
        for row in made["rows"]:
            row["repeat"] -= row["repeat"] > number
        made["config"]["repeats"] -= 1

    return edit


def sourced(name: str) -> Edit:
    """Say that prompts are from elsewhere."""

    def edit(made: Report) -> None:
        for workload in made["workloads"].values():
            workload["source"] = name
        for field in ("prompts", "source"):
            if field in made["config"]:
                made["config"][field] = ", ".join(
                    [name] * (len(made["workloads"]) if field == "prompts" else 1)
                )

    return edit


def prompt_ids(made: Report) -> list[str]:
    return [prompt["id"] for prompt in made["prompts"]]


def best_of(made: Report, keep: int) -> None:
    """Of each cell keep the fastest repeats, renumbered."""
    cells: dict[Any, list[Report]] = {}
    for row in made["rows"]:
        if not row.get("warmup"):
            cells.setdefault((row.get("arm", row.get("length")), row.get("prompt")), []).append(row)
    gone = []
    for found in cells.values():
        order = sorted(found, key=_took)
        gone += [id(row) for row in order[keep:]]
    made["rows"] = [row for row in made["rows"] if id(row) not in gone]
    counts: dict[Any, int] = {}
    for row in made["rows"]:
        key = (row.get("arm", row.get("length")), row.get("prompt"))
        if not row.get("warmup"):
            counts[key] = counts.get(key, 0) + 1
            row["repeat"] = counts[key]
        elif row["repeat"]:
            row["repeat"] = keep + 1
    made["config"]["repeats"] = keep


# Falsehoods of time


def keep_times(*edits: Edit) -> Edit:
    """Change rows, and leave their start times and the run's seconds as they are."""
    return lambda made: [*(edit(made) for edit in edits), made.update({"keep times": True})]


def microseconds(digits: int) -> Row:
    def change(row: Report) -> None:
        for name in ("prefill_s", "decode_s", "e2e_s", "seconds"):
            if name in row:
                row[name] = round(row[name], digits)
        if "e2e_s" in row:
            row["e2e_s"] = round(row["prefill_s"] + row["decode_s"], digits)

    return change


def scaled_copy(arm: str, of: str, by: float, jitter: float = 0.0) -> Edit:
    """Give an arm the times of another one, scaled."""

    def edit(made: Report) -> None:
        dice = random.Random(3)
        known = {(row["prompt"], row["repeat"]): row for row in rows(made, of)}
        for row in rows(made, arm):
            other = known.get((row["prompt"], row["repeat"]))
            if other:
                row["decode_s"] = other["decode_s"] * by * (1 + jitter * dice.random())
                row["e2e_s"] = row["prefill_s"] + row["decode_s"]

    return edit


def copied_repeats(jitter: float) -> Edit:
    """Write the fastest repeat of each cell down three times, with a little noise."""

    def edit(made: Report) -> None:
        dice = random.Random(5)
        cells: dict[Any, list[Report]] = {}
        for row in made["rows"]:
            if not row.get("warmup"):
                cells.setdefault((row.get("arm", row.get("length")), row.get("prompt")), []).append(row)
        for found in cells.values():
            first = dict(min(found, key=_took))
            for row in found:
                for name in ("prefill_s", "decode_s", "seconds"):
                    if name in row:
                        row[name] = first[name] * (1 + jitter * dice.random())
                if "e2e_s" in row:
                    row["e2e_s"] = row["prefill_s"] + row["decode_s"]

    return edit


def in_blocks(made: Report) -> None:
    """One arm after the other, written down as if they had taken turns; starts are not told."""
    for row in made["rows"]:
        row.pop("started_s", None)


def later_starts(made: Report) -> None:
    for i, row in enumerate(made["rows"]):
        row["gap"] = GAP + (0.4 * _took(row) if row.get("arm") == OURS else 0)
        row["i"] = i
    for row in made["rows"]:
        row.pop("i")


def hidden_pause(arm: str, share: float) -> Edit:
    """Take a share of an arm's decoding out of its rows; the run goes on when it did."""

    def edit(made: Report) -> None:
        for row in rows(made, arm):
            less = share * row["decode_s"]
            row["decode_s"] -= less
            row["e2e_s"] -= less
            row["gap"] = GAP + less

    return edit


TIME = {
    "decoding of both drafters booked as prefill": Case(BEN, all_of(*(each(a, moved(0.4)) for a in (OURS, "lookup/auto")))),
    "a third of the decoding booked as prefill on the slow prompts": Case(
        BEN, lambda r: [moved(0.35)(row) for name in prompt_ids(r)[:4] for row in rows(r, OURS, name)]
    ),
    "decoding booked as prefill in counted repeats alone": Case(BEN, each(OURS, moved(0.4), warmup=False)),
    "prefill of the baseline booked as decoding": Case(
        BEN, all_of(each("native", moved(0.6, "prefill_s", "decode_s")), each("verify1", moved(0.6, "prefill_s", "decode_s"))),
    ),
    "seconds that pass between the candidate's rows": Case(BEN, hidden_pause(OURS, 0.4)),
    "seconds that pass between all rows that are claimed": Case(NAT, hidden_pause("native", 0.3)),
    "seconds that pass between all rows": Case(NAT, all_of(hidden_pause("native", 0.85), hidden_pause("verify1", 0.85))),
    "times made smaller under start times that were left": Case(BEN, keep_times(each(OURS, times(0.6)))),
    "passes made shorter under start times that were left": Case(
        VER, keep_times(each(None, lambda row: row.update(seconds=row["seconds"] * 0.5), length=8))
    ),
    "times in microseconds": Case(BEN, each(None, microseconds(6))),
    "passes in microseconds": Case(VER, each(None, microseconds(6))),
    "needles timed in microseconds": Case(REC, each(None, microseconds(6))),
    "the fastest repeat three times, with noise of a millionth": Case(BEN, copied_repeats(1e-6)),
    "the fastest pass five times, with noise of a millionth": Case(VER, copied_repeats(1e-6)),
    "the baseline written down as the check, scaled": Case(BEN, scaled_copy("verify1", "native", 1.02)),
    "the candidate written down as the baseline, halved": Case(BEN, scaled_copy(OURS, "native", 0.52)),
    "a baseline made of the candidate's times": Case(
        BEN, all_of(scaled_copy("native", OURS, 1.9), scaled_copy("verify1", OURS, 1.93), scaled_copy("incremental", OURS, 1.91)),
    ),
    "the best three of five passes": Case(VER, lambda r: best_of(r, 3)),
    "rows without their start in a run that has an id": Case(
        BEN, all_of(put("run", to={"id": "ab12" * 16}), in_blocks)
    ),
    "passes whose places in the run have gaps": Case(
        VER, lambda r: [row.update(sequence=row["sequence"] * 2) for row in r["rows"]]
    ),
    "passes that stand at no place": Case(VER, each(None, setting(sequence=0))),
    "a profile of more than the whole": Case(
        BEN, lambda r: [row["profile"].update(draft_share=0.9) for row in r["rows"] if row.get("profile")]
    ),
    "a profile without drafting": Case(
        BEN, lambda r: [row["profile"].update(draft_share=0.0) for row in r["rows"] if row.get("profile")]
    ),
    "a run that began before itself": Case(BEN, lambda r: [row.update(gap=-0.02) for row in r["rows"][3:6]]),
}  # fmt: skip


# Falsehoods of rounds


def merged(row: Report) -> None:
    """Two rounds written down as one, wherever both fit into a block."""
    if "commits" not in row or not row["counters"].get("rounds"):
        return
    block = 8
    made: list[list[int]] = []
    for c, d, a in zip(row["commits"], row["drafted"], row["accepted"], strict=True):
        if made and made[-1][0] + c < block and made[-1][2] + 1 == made[-1][0]:
            last = made[-1]
            last[0] += c
            last[2] = last[0] - 1
            last[1] = max(last[1], last[2])
        else:
            made.append([c, d, a])
    row["commits"], row["drafted"], row["accepted"] = [*map(list, zip(*made, strict=True))]
    retold(row)


def retold(row: Report) -> None:
    """Let the counters be those of the lists."""
    rounds = len(row["commits"])
    counters = row["counters"]
    less = counters["rounds"] - rounds
    counters["rounds"] = rounds
    if "syncs" in counters:
        counters["syncs"] -= less
    for name in ("rounds_none", "rounds_lookup", "rounds_dflash"):
        take = min(less, counters.get(name, 0))
        if take:
            counters[name] -= take
            less -= take
    none = row["drafted"].count(0)
    if counters.get("rounds_none", 0) > none:
        other = "rounds_dflash" if "rounds_dflash" in counters else "rounds_lookup"
        counters[other] = counters.get(other, 0) + counters["rounds_none"] - none
        counters["rounds_none"] = none


def proposed_what_was_accepted(row: Report) -> None:
    if "drafted" in row:
        row["drafted"] = [*row["accepted"]]
        none = row["drafted"].count(0)
        counters = row["counters"]
        told = {name for name in counters if name.startswith("rounds_")}
        for name in told:
            del counters[name]
        counters["rounds_none"] = none
        counters["rounds_lookup" if "rounds_lookup" in told else "rounds_dflash"] = len(row["drafted"]) - none


def later_drafts(row: Report) -> None:
    """Rounds without drafts left out of the lists: only those that drafted count."""
    if "commits" in row:
        kept = [x for x in zip(row["commits"], row["drafted"], row["accepted"], strict=True) if x[1]] or [
            (1, 0, 0)
        ]
        row["commits"], row["drafted"], row["accepted"] = [*map(list, zip(*kept, strict=True))]
        retold(row)


ROUNDS = {
    "rounds of the lookup drafter merged": Case(ACC, each("lookup/auto", merged)),
    "lookups that propose what is accepted": Case(ACC, each("lookup/auto", proposed_what_was_accepted)),
    "rounds without drafts left out": Case(ACC, each("lookup/auto", later_drafts)),
    "a drafter without a draft model": Case(
        ACC, each(OURS, lambda row: row["counters"].update(rounds_lookup=row["counters"].pop("rounds_dflash", 0)))
    ),
    "no counters at all": Case(ACC, all_of(each(OURS, setting(counters={})), put("arms", 3, "loop", to="dflash.model_mlx"))),
    "our loop called the package": Case(
        ACC, lambda r: [arm.update(loop="dflash.model_mlx") for arm in r["arms"] if arm["name"] == OURS]
    ),
    "a round more in the counters of drafts": Case(
        ACC, each("lookup/auto", lambda row: row["counters"].update(rounds_lookup=row["counters"].get("rounds_lookup", 0) + 1))
    ),
    "a plain loop that drafts": Case(
        ACC, lambda r: [arm["options"].update(block_size=8) for arm in r["arms"] if arm["name"] == "incremental"]
    ),
    "a divergence of a row that does not part": Case(
        ACC, lambda r: rows(r, OURS, warmup=False)[1].update(divergence={"index": 3, "best": [[1, 2.0], [2, 1.9]], "margin": 0.1, "kind": "tie"})
    ),
}  # fmt: skip


# Falsehoods of coverage


def grid(made: Report) -> tuple[list[int], list[float]]:
    return made["config"]["lengths"], made["config"]["depths"]


def without_place(field: str, value: Any) -> Edit:
    """Leave the needles of a length or a depth out, and configure none."""

    def edit(made: Report) -> None:
        without_prompts(*(p["id"] for p in made["prompts"] if p[field] == value))(made)
        made["config"][f"{field}s"].remove(value)
        made["claims"] = [c for c in made["claims"] if c.get("where", {}).get(field) != value]

    return edit


def without_length(value: int) -> Edit:
    def edit(made: Report) -> None:
        without("length", value)(made)
        made["config"]["lengths"].remove(value)
        made["claims"] = [c for c in made["claims"] if c["where"]["length"] != value]

    return edit


def without_cache(name: str) -> Edit:
    def edit(made: Report) -> None:
        for arm in [arm["name"] for arm in made["arms"] if arm["cache"] == name]:
            without_arm(arm)(made)
        made["config"]["caches"].remove(name)

    return edit


def without_drafter(name: str, reason: str | None = None) -> Edit:
    def edit(made: Report) -> None:
        without_arm(f"{name}/auto")(made)
        if reason is None:
            made["config"]["drafters"].remove(name)
        else:
            made["config"]["left_out"][f"{name}/auto"] = reason

    return edit


COVERAGE = {
    "the prompt in the middle left out": Case(ACC, lambda r: without_prompts(prompt_ids(r)[1])(r)),
    "a prompt left out, and the others said to be our own": Case(
        ACC, all_of(sourced("prompts.jsonl"), lambda r: without_prompts(prompt_ids(r)[1], prompt_ids(r)[4])(r))
    ),
    "the first prompt left out, and the others said to be our own": Case(
        NAT, all_of(sourced("prompts.jsonl"), lambda r: without_prompts(prompt_ids(r)[0])(r))
    ),
    "a text left out of a comparison of caches": Case(
        KVQ, all_of(sourced("texts.jsonl"), lambda r: without_prompts(prompt_ids(r)[0])(r))
    ),
    "a prompt left out where drafters disagree": Case(
        PAR, all_of(sourced("mine.jsonl"), lambda r: without_prompts(prompt_ids(r)[0])(r))
    ),
    "a repeat left out and fewer configured": Case(ACC, all_of(without_repeat(2), put("config", "repeats", to=2))),
    "a pass of each length left out": Case(VER, lambda r: (r["config"].update(repeats=6), without_repeat(3)(r))),
    "a length left out": Case(VER, without_length(4)),
    "the longest pass left out": Case(VER, without_length(16)),
    "a drafter that lost left out": Case(ACC, without_drafter("lookup")),
    "a drafter that lost left out for a reason": Case(ACC, without_drafter("adaptive", "the caches cannot be rolled back")),
    "a drafter left out for want of a model that is there": Case(ACC, without_drafter("dflash", "no draft model")),
    "a drafter left out without a reason": Case(ACC, without_drafter("lookup", "")),
    "our plain loop left out": Case(ACC, without_arm("incremental")),
    "a cache that lost left out": Case(REC, without_cache("affine@4g64")),
    "a depth left out": Case(REC, without_place("depth", 0.5)),
    "the first depth left out": Case(REC, without_place("depth", 0.1)),
    "the shorter prompts left out": Case(REC, without_place("length", 512)),
    "the shorter prompts left out of what is restored": Case(RES, without_place("length", 512)),
    "a depth left out of what is restored": Case(RES, without_place("depth", 0.4)),
    "a way of restoring left out": Case(RES, without_cache("e8v@2.25")),
    "what was learned left out, shuffled and all": Case(RES, all_of(without_arm("restored learned"), without_arm("shuffled"))),
    "codes of one size left out": Case(
        CODEC, lambda r: r.update(rows=[row for row in r["rows"] if not (row["codec"] == "affine" and row["bits"] == 4)])
    ),
    "rotated codes left out": Case(
        CODEC, lambda r: r.update(rows=[row for row in r["rows"] if not (row["codec"] == "affine" and row["rotated"])])
    ),
    "one lattice left out": Case(
        CODEC, lambda r: r.update(rows=[row for row in r["rows"] if not row["codec"].startswith("d4")])
    ),
    "one range of a lattice left out": Case(
        CODEC, lambda r: r.update(rows=[row for row in r["rows"] if row["codec"] not in ("d4 Q4", "e8 Q4")])
    ),
    "affine codes in groups that lost left out": Case(
        CODEC, lambda r: r.update(rows=[row for row in r["rows"] if row["group"] != 128])
    ),
    "another seed under the same needles": Case(REC, put("config", "seed", to=7)),
    "needles chosen among more": Case(
        REC, lambda r: [p.update(expected=p["expected"]) or swap_code(r, p, "KAPPA-7777") for p in r["prompts"][:1]]
    ),
    "a block that nobody configured": Case(ACC, put("config", "block", to=16)),
    "another cache than was configured": Case(ACC, put("config", "cache", to="e8v@4.25")),
    "a sink that nobody configured": Case(RES, put("config", "sink", to=0)),
    "a window that nobody configured": Case(RES, put("config", "window", to=16)),
    "a boundary that nobody left": Case(REC, put("config", "boundary", to=2)),
    "fewer tokens of each text configured": Case(KVQ, put("config", "tokens", to=128)),
    "a chat that nobody had": Case(ACC, put("config", "chat", to=True)),
    "a package that never ran configured, and the drafters less": Case(ACC, put("config", "rollbacks", to=["trim"])),
    "other types than were compared": Case(PAR, put("config", "half", to="float16")),
    "another comparison than was made": Case(PAR, put("config", "against", to="package")),
    "another store than was used": Case(KVQ, put("config", "store", to="model")),
    "a length named twice": Case(VER, put("config", "lengths", to=[1, 2, 4, 8, 16, 16])),
    "a cache that nobody configured": Case(KVQ, lambda r: r["config"]["caches"].remove("e8@q38")),
    "more prompts configured than there are": Case(PAR, put("config", "max_prompts", to=10)),
    "more texts configured than there are": Case(KVQ, put("config", "max_prompts", to=10)),
    "plain decoding over another cache than was configured": Case(NAT, put("config", "cache", to="affine@8g64")),
    "a cache left out without a reason": Case(
        KVQ, lambda r: (r["config"]["left_out"].update({"e8v@2.25": ""}), r["config"]["caches"].append("e8v@2.25"))
    ),
    "prompts from elsewhere": Case(ACC, put("config", "prompts", to="humaneval.jsonl")),
    "all prompts resumed": Case(ACC, put("config", "resumed_rows", to=10**6)),
    "rows that were resumed, and took time all the same": Case(ACC, put("config", "resumed_rows", to=60)),
}  # fmt: skip


def swap_code(made: Report, prompt: Report, code: str) -> None:
    """Hide another code, and let every arm that found the first one find it."""
    old = prompt["expected"]
    prompt.update(text=prompt["text"].replace(old, code), expected=code)
    prompt["sha256"] = digest(prompt["text"])
    for row in rows(made, prompt=prompt["id"]):
        row["text"] = row["text"].replace(old, code)


# Falsehoods of baselines


BASE = {
    "every plain arm slowed, but ours": Case(BEN, all_of(*(each(a, times(1.45)) for a in ("native", "verify1")))),
    "every plain arm slowed": Case(BEN, all_of(*(each(a, times(1.6)) for a in ("native", "verify1", "incremental")))),
    "both plain arms slowed in counted repeats": Case(
        BEN, all_of(*(each(a, times(1.5), warmup=False) for a in ("native", "verify1"))),
    ),
    "the candidate made faster in counted repeats": Case(BEN, each(OURS, times(0.6), warmup=False)),
    "every drafter made faster in counted repeats": Case(
        BEN, all_of(*(each(a, times(0.5), warmup=False) for a in (OURS, "lookup/auto"))),
    ),
    "passes of blocks made faster in counted repeats": Case(
        VER, lambda r: [row.update(seconds=row["seconds"] * 0.45) for row in r["rows"] if row["length"] > 1 and not row["warmup"]]
    ),
    "the baseline's prefill made longer": Case(BEN, each("native", times(1.4, "prefill_s"))),
    "the baseline called a reference": Case(
        BEN, lambda r: [arm.update(role="reference") for arm in r["arms"] if arm["name"] == "verify1"]
    ),
    "single passes made slower": Case(
        VER, lambda r: [row.update(seconds=row["seconds"] * 1.7) for row in rows(r, length=1)]
    ),
}  # fmt: skip


# Falsehoods of bytes


def resized(row: Report, positions: int) -> None:
    for layer in row["memory"]["layers"]:
        for array in layer["arrays"]:
            if len(array["shape"]) == 4:
                array["shape"][2] = positions
    counted(row)


SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "uint8": 1, "uint32": 4}


def counted(row: Report) -> None:
    """Count a row's bytes from its arrays."""
    for layer in row["memory"]["layers"]:
        layer["nbytes"] = 0
        for array in layer["arrays"]:
            size = SIZES[array["dtype"]]
            for n in array["shape"]:
                size *= n
            layer["nbytes"] += size
    row["memory"]["cache_bytes"] = sum(layer["nbytes"] for layer in row["memory"]["layers"])
    if "peak_bytes" in row["memory"]:
        row["memory"]["peak_bytes"] = max(row["memory"]["peak_bytes"], row["memory"]["cache_bytes"])


def rings(row: Report) -> None:
    for layer in row["memory"]["layers"]:
        layer["kind"] = "RotatingKVCache"
        for array in layer["arrays"]:
            array["shape"][2] = 128
    counted(row)


def half_layers(row: Report) -> None:
    for layer in row["memory"]["layers"][::2]:
        layer["kind"] = "RotatingKVCache"
        for array in layer["arrays"]:
            array["shape"][2] = 64
    counted(row)


def typed(dtype: str) -> Row:
    def change(row: Report) -> None:
        for layer in row["memory"]["layers"]:
            for array in layer["arrays"]:
                if array["dtype"] == "float32":
                    array["dtype"] = dtype
        counted(row)

    return change


def fewer_heads(row: Report) -> None:
    for layer in row["memory"]["layers"]:
        for array in layer["arrays"]:
            if len(array["shape"]) == 4:
                array["shape"][1] = 1
    counted(row)


def narrower(by: int) -> Row:
    def change(row: Report) -> None:
        for layer in row["memory"]["layers"]:
            for array in layer["arrays"]:
                if array["dtype"] in ("uint8", "uint32"):
                    array["shape"][-1] -= by
        counted(row)
        row["counters"]["packed_bytes"] = sum(
            _bytes(a)
            for layer in row["memory"]["layers"]
            for a in layer["arrays"]
            if a["dtype"] in ("uint8", "uint32")
        )

    return change


def _bytes(array: Report) -> int:
    size = SIZES[array["dtype"]]
    for n in array["shape"]:
        size *= n
    return size


def without_scales(row: Report) -> None:
    for layer in row["memory"]["layers"]:
        if layer["kind"] == "QuantizedKVCache":
            layer["arrays"] = [a for a in layer["arrays"] if a["dtype"] == "uint32"]
    counted(row)


def counting(**counters: int) -> Row:
    return lambda row: row["counters"].update(counters)


def no_third(row: Report) -> None:
    for layer in row["memory"]["layers"]:
        layer["arrays"] = layer["arrays"][:2]
    counted(row)


BYTES = {
    "the baseline's arrays made longer": Case(REC, each("raw", lambda row: resized(row, row["memory"]["layers"][0]["arrays"][0]["shape"][2] + 256))),
    "a packed cache called rings": Case(REC, each("e8v@4.25", rings)),
    "half of the layers called rings": Case(REC, each("e8v@4.25", half_layers)),
    "a packed cache of one head": Case(REC, each("e8v@4.25", fewer_heads)),
    "every cache of one head": Case(REC, each(None, fewer_heads)),
    "every cache in half precision": Case(REC, all_of(each(None, typed("float16")), put("models", 0, "dtype", to="float16"))),
    "codes a byte narrower": Case(REC, each("e8v@4.25", narrower(3))),
    "affine codes without scales": Case(REC, each("affine@8g64", without_scales)),
    "affine scores without scales": Case(KVQ, each("affine@8g64", without_scales)),
    "Voronoi scores a byte narrower": Case(KVQ, each("e8v@4.25", narrower(1))),
    "a window that holds less": Case(RES, each("restored e8v@4.25", lambda row: smaller_window(row, 20))),
    "a learned cache that holds nothing": Case(RES, each("restored learned", no_third)),
    "codes that are counted nowhere": Case(REC, each("e8v@4.25", counting(packed_bytes=0))),
    "fewer codes than arrays": Case(REC, each("e8v@4.25", counting(packed_bytes=1000))),
    "positions that were put in place nowhere": Case(REC, each("e8v@4.25", counting(injected_positions=2200))),
    "positions that were kept raw nowhere": Case(REC, each("e8v@4.25", counting(raw_positions=0, injected_positions=4000))),
    "noise in fewer places": Case(REC, each("poison", lambda row: row["counters"].update(
        injected_positions=row["counters"]["injected_positions"] - 800, raw_positions=row["counters"]["raw_positions"] + 800))),
    "an identity in fewer places": Case(REC, each("identity", lambda row: row["counters"].update(
        injected_positions=row["counters"]["injected_positions"] // 2,
        raw_positions=row["counters"]["raw_positions"] + row["counters"]["injected_positions"] // 2))),
    "fewer positions restored": Case(RES, each("restored e8v@2.25", lambda row: row["counters"].update(
        injected_positions=row["counters"]["injected_positions"] * 2 // 3))),
    "fewer positions evicted": Case(RES, each("restored e8v@2.25", lambda row: row["counters"].update(
        injected_positions=row["counters"]["injected_positions"] - 400, evicted_positions=row["counters"]["evicted_positions"] - 400,
        raw_positions=row["counters"]["raw_positions"] + 400))),
    "restored positions read once": Case(RES, each("restored e8v@2.25", lambda row: row["counters"].update(
        injected_reads=row["counters"]["injected_positions"]))),
    "nothing evicted where recall must be lost": Case(RES, each("evicted", counting(evicted_positions=0, raw_positions=4168))),
    "scores of half of the positions": Case(
        KVQ, each("e8v@4.25", lambda row: row["counters"].update(raw_positions=row["counters"]["raw_positions"] // 2))
    ),
    "a peak below the baseline's cache and above its own": Case(
        REC, each("e8v@4.25", lambda row: row["memory"].update(peak_bytes=row["memory"]["cache_bytes"] + 1))
    ),
}  # fmt: skip


def smaller_window(row: Report, positions: int) -> None:
    for layer in row["memory"]["layers"]:
        for array in layer["arrays"][:2]:
            array["shape"][2] = positions
    counted(row)


# Falsehoods of text


def as_oracle(arm: str, base: str) -> Edit:
    """Give an arm the baseline's answers."""

    def edit(made: Report) -> None:
        plain = {row["prompt"]: row for row in rows(made, base)}
        for row in rows(made, arm):
            for name in ("tokens", "text", "decode_tokens", "stop"):
                row[name] = copy(plain[row["prompt"]][name])
            row.pop("divergence", None)

    return edit


def spoiled(arm: str) -> Edit:
    """Let a control miss what it found, or answer what another prompt asks."""

    def edit(made: Report) -> None:
        for row in rows(made, arm):
            row["text"] = row["text"][:3] + "0000" + row["text"][7:]

    return edit


def healed(arm: str) -> Edit:
    """Write the expected code into an arm's text, and leave the tokens."""

    def edit(made: Report) -> None:
        codes = {p["id"]: p["expected"] for p in made["prompts"]}
        for row in rows(made, arm):
            if codes[row["prompt"]] not in row["text"]:
                row["text"] = f" {codes[row['prompt']]}\n"

    return edit


def varied(row: Report) -> None:
    """One token changed, and its letters."""
    row["tokens"][5] += 1
    row["text"] = row["text"][:14] + "x" + row["text"][15:]


TEXT = {
    "the oracle's answers in place of a cache's": Case(RES, as_oracle("restored e8v@2.25", "raw")),
    "what was learned answers as the oracle does": Case(RES, as_oracle("restored learned", "raw")),
    "the code written into the text": Case(RES, healed("restored e8v@2.25")),
    "noise whose text finds nothing": Case(RES, spoiled("shuffled")),
    "noise whose text finds nothing, of needles": Case(REC, spoiled("poison")),
    "one token changed in every row of a prompt": Case(
        ACC, lambda r: [varied(row) for row in rows(r, prompt=prompt_ids(r)[0])]
    ),
    "text of another prompt": Case(ACC, lambda r: [row.update(text=r["rows"][-1]["text"]) for row in rows(r, prompt=prompt_ids(r)[0])]),
    "tokens that the model does not have": Case(
        NAT, lambda r: [row["tokens"].__setitem__(4, row["tokens"][4] + 90_000) for row in rows(r, prompt=prompt_ids(r)[0])]
    ),
    "text in another case": Case(NAT, each(None, lambda row: row.update(text=row["text"].upper()))),
    "stops that were none": Case(REC, each(None, setting(stop="stop"))),
    "answers cut behind the code": Case(
        REC, each("e8v@4.25", lambda row: row.update(tokens=row["tokens"][:-1], decode_tokens=row["decode_tokens"] - 1, stop="stop"))
    ),
    "drafts that differ rewritten, and no error": Case(
        PAR, lambda r: [row.update(candidate=[*row["reference"]], max_logit_error=0.0) or row.pop("margin", None) for row in r["rows"]]
    ),
    "drafts without their errors": Case(
        PAR, lambda r: [row.update(candidate=[*row["reference"]]) or (row.pop("margin", None), row.pop("max_logit_error", None)) for row in r["rows"]]
    ),
    "drafts that the model does not have": Case(
        PAR, lambda r: [row.update(reference=[*row["reference"][:-1], 9999], candidate=[*row["candidate"][:-1], 9999]) or row.pop("margin", None) for row in r["rows"][:1]]
    ),
    "prompts of fewer tokens": Case(KVQ, lambda r: [p.update(n_tokens=p["n_tokens"] // 2) for p in r["prompts"]]),
}  # fmt: skip


# Falsehoods of quality


def better(arm: str, by: float) -> Edit:
    """Shift all figures of a cache together."""

    def edit(made: Report) -> None:
        raw = {row["prompt"]: row for row in rows(made, "raw")}
        for row in rows(made, arm):
            plain = raw[row["prompt"]]
            row["sum_squared_error"] *= by
            row["sum_kl"] *= by
            row["same_top"] = row["n_positions"] - round((row["n_positions"] - row["same_top"]) * by**0.5)
            row["sum_nll"] = plain["sum_nll"] + (row["sum_nll"] - plain["sum_nll"]) * by**0.5

    return edit


def shifted(arm: str, **by: float) -> Edit:
    def edit(made: Report) -> None:
        for row in rows(made, arm):
            for name, factor in by.items():
                row[name] = type(row[name])(row[name] * factor)

    return edit


def lowered(codec: str, by: float, **fields: Any) -> Edit:
    def edit(made: Report) -> None:
        for row in rows(made, **fields):
            if row["codec"].startswith(codec):
                row["rel_mse"] *= by
                row["rel_mse_stderr"] *= by

    return edit


QUALITY = {
    "a cache that errs half as much": Case(KVQ, better("e8v@4.25", 0.5)),
    "a cache that errs by a third less": Case(KVQ, better("e8v@4.25", 0.67)),
    "a rival that errs twice as much": Case(KVQ, better("affine@4g64", 2.0)),
    "a lattice that errs as the Voronoi code does": Case(KVQ, better("e8@q38", 0.5)),
    "one text on which it errs less": Case(
        KVQ, lambda r: [row.update(sum_squared_error=row["sum_squared_error"] * 0.4) for row in rows(r, "e8v@4.25", prompt_ids(r)[0])]
    ),
    "a third of the divergence": Case(KVQ, shifted("e8v@4.25", sum_kl=0.33)),
    "a better perplexity than the raw cache's": Case(KVQ, shifted("e8v@4.25", sum_nll=0.96)),
    "two caches in each other's places": Case(KVQ, lambda r: [
        (a := dict(one), one.update({k: two[k] for k in ("sum_squared_error", "sum_kl", "same_top", "sum_nll")}),
         two.update({k: a[k] for k in ("sum_squared_error", "sum_kl", "same_top", "sum_nll")}))
        for one, two in zip(rows(r, "e8v@4.25"), rows(r, "e8v@6.25"), strict=True)
    ]),
    "Voronoi codes that err a fifth less": Case(CODEC, lowered("voronoi", 0.8)),
    "Voronoi codes that err a fifth less on Gaussian vectors": Case(CODEC, lowered("voronoi", 0.8, distribution="gaussian")),
    "affine codes that err by half more": Case(CODEC, lowered("affine", 1.5)),
    "lattices that err by half more": Case(CODEC, all_of(lowered("d4", 1.5), lowered("e8", 1.5))),
    "more vectors than there were": Case(
        CODEC, lambda r: (r["config"].update(n_vectors=4096), [row.update(n_vectors=4096) for row in r["rows"]])
    ),
}  # fmt: skip


# Falsehoods of identity and meaning


def known(role: str, name: str) -> Report:
    told = bundled()["models"][name][role]
    return {field: value for field, value in told.items() if value and field not in ("facts", "cache")}


def disguised(made: Report) -> None:
    """The small model under the hybrid's name, with the hybrid's digests."""
    for one in made["models"]:
        one.update(id="tiny-hybrid", **known(one["role"], "tiny-hybrid"))
    made["config"]["model"] = "tiny-hybrid"


IDENTITY = {
    "the small model under the hybrid's name and digests": Case(ACC, disguised),
    "the small model under the hybrid's name, decoding alone": Case(NAT, disguised),
    "the small model under the hybrid's name, of needles": Case(REC, disguised),
    "the small model's weights under a large one's name": Case(
        ACC, lambda r: [m.update(id="Qwen/Qwen3-8B") for m in r["models"]] and r["config"].update(model="Qwen/Qwen3-8B")
    ),
    "five million parameters called eight thousand million": Case(
        ACC, lambda r: [m.update(id="Qwen/Qwen3-8B", weights=digest(m["role"]), config=digest("c" + m["role"])) for m in r["models"]]
        and r["config"].update(model="Qwen/Qwen3-8B")
    ),
    "another model configured than described": Case(NAT, put("config", "model", to="Qwen/Qwen3-8B")),
    "more layers than the bundled model has": Case(NAT, put("models", 0, "layers", to=16)),
    "another architecture than the bundled model's": Case(NAT, put("models", 0, "architecture", to="LlamaForCausalLM")),
    "more parameters than the bundled model has": Case(NAT, put("models", 0, "parameters", to=8_000_000_000)),
    "an Apple chip under Linux": Case(ACC, put("identity", "chip", to="Apple M4 Max")),
    "a graphics processor that is none": Case(ACC, put("identity", "device", to="warp drive")),
    "a version of the package that is another's": Case(ACC, put("identity", "versions", "kakeya_bridge", to="9.9.9")),
    "a version that is a sentence": Case(ACC, put("identity", "versions", "mlx", to="the latest and fastest")),
    "more cores than a machine has": Case(ACC, put("identity", "cores", to=10**9)),
    "a claim with a note": Case(ACC, lambda r: r["claims"][0].update(note="twice as fast as any other engine")),
    "a row with a speed of its own": Case(ACC, lambda r: [row.update(tok_s=900.0) for row in rows(r, OURS)]),
    "an arm with a figure of its own": Case(ACC, lambda r: r["arms"][3].update(speedup=3.0)),
    "an option that no loop has": Case(ACC, lambda r: r["arms"][3]["options"].update(speedup=3.0)),
    "a prompt with a figure of its own": Case(ACC, lambda r: r["prompts"][0].update(speedup=3.0)),
    "a model with a figure of its own": Case(ACC, lambda r: r["models"][0].update(score=99)),
    "a configuration with a figure of its own": Case(ACC, put("config", "speedup", to=3.0)),
    "an identity with a figure of its own": Case(ACC, put("identity", "speedup", to=3.0)),
    "a control that is nowhere": Case(REC, lambda r: [a["options"].update(positions="at the very end") for a in r["arms"] if a["role"] == "poison"]),
    "a type of another drafter": Case(PAR, lambda r: r["arms"][1]["options"].update(dtype="float16")),
    "a patch that is none": Case(REC, lambda r: [a.update(patches=["magic"]) for a in r["arms"] if a["name"] == "e8v@4.25"]),
    "a cache by another effort": Case(REC, lambda r: [a.update(name="e8v@4.25 lossless") or [row.update(arm="e8v@4.25 lossless") for row in rows(r, "e8v@4.25")]
                                             or [c.update(arm="e8v@4.25 lossless") for c in r["claims"] if c.get("arm") == "e8v@4.25"] for a in r["arms"] if a["name"] == "e8v@4.25"]),
    "bits that the formula does not give": Case(KVQ, lambda r: [a["options"].update(nominal_bits_per_value=4.0) for a in r["arms"] if a["cache"] == "e8@q38"]),
    "weights of other types": Case(NAT, put("models", 0, "stored_dtypes", to=["F4"])),
    "a quantization that the weights have not": Case(NAT, put("models", 0, "quantization", to="2 bits, group 64")),
}  # fmt: skip

FALSEHOODS: dict[str, Case] = {**TIME, **ROUNDS, **COVERAGE, **BASE, **BYTES, **TEXT, **QUALITY, **IDENTITY}


# Honest reports


def jitter(share: float, seed: int = 1, pause: float = 0.0) -> Edit:
    """Let every time wander, as on a machine that has other things to do, and rows be followed by longer pauses."""

    def edit(made: Report) -> None:
        dice = random.Random(seed)
        for row in made["rows"]:
            for name in ("prefill_s", "decode_s", "seconds"):
                if name in row:
                    row[name] *= 1 + share * dice.random()
            if "e2e_s" in row:
                row["e2e_s"] = row["prefill_s"] + row["decode_s"] + 1e-5 * dice.random()
            if pause and dice.random() < 0.05:
                row["gap"] = GAP + pause * dice.random()

    return edit


def machine(**fields: Any) -> Edit:
    return lambda made: made["identity"].update(fields)


APPLE = machine(
    host="mini.local", os="macOS 15.1 (Darwin 24.1.0 arm64)", chip="Apple M4", cores=10, memory_bytes=24 << 30, device="gpu",
    load=[1.9, 2.2, 2.0], power={"plugged": True, "percent": 100, "low_power": False},
)  # fmt: skip


def faster(by: float) -> Edit:
    """The same run on a faster or slower machine."""

    def edit(made: Report) -> None:
        for row in made["rows"]:
            for name in ("prefill_s", "decode_s", "e2e_s", "seconds"):
                if name in row:
                    row[name] /= by

    return edit


def first_prompts(count: int) -> Edit:
    return lambda made: without_prompts(*prompt_ids(made)[count:])(made)


def only(name: str) -> Edit:
    """Keep the prompts of one workload."""
    return lambda made: without_prompts(*(p["id"] for p in made["prompts"] if p["workload"] != name))(made)


def loses(arm: str, by: float) -> Edit:
    return each(arm, times(by))


def untold_starts(made: Report) -> None:
    """As an older engine wrote it, which told no starts."""
    for row in made["rows"]:
        row.pop("started_s", None)


def renamed(made: Report) -> None:
    """A model that does not come with the engine, though it looks like one that does."""
    for one in made["models"]:
        one.update(id="a-model", weights=digest(one["role"]), config=digest("c" + one["role"]))
    made["config"]["model"] = "a-model"


def no_run_counts_twice(made: Report) -> None:
    """Interrupted after half of the rows, and gone on with."""
    half = len(made["rows"]) // 2
    made["config"]["resumed_rows"] = half
    start = 0.05
    for row in made["rows"][half:]:
        row["started_s"] = start
        start += _took(row) + row.get("pause", GAP)
    made.update({"seconds": round(start + 0.02, 3), "keep times": True})


def missing(arm: str, prompt: int, code: str = " I cannot say") -> Edit:
    """Let an arm miss one needle: another answer, which the model gave elsewhere."""

    def edit(made: Report) -> None:
        name = prompt_ids(made)[prompt]
        donor = next(row for row in rows(made, "poison") if row["prompt"] == name)
        for row in rows(made, arm, name):
            before = len(row["tokens"])
            for field in ("tokens", "text", "decode_tokens", "stop"):
                row[field] = copy(donor[field])
            more = len(row["tokens"]) - before
            row["counters"]["injected_positions"] += 8 * more

    return edit


def without_optional(*names: str) -> Edit:
    """An older engine, which did not write these fields of models and rows."""

    def edit(made: Report) -> None:
        for one in [*made.get("models", []), *made["rows"], made["config"], made["identity"]]:
            for name in names:
                one.pop(name, None)

    return edit


TWINS: dict[str, Case] = {
    **{f"{name}, as it was written": Case(name, lambda _: None) for name in NAMES},
    **{f"{name}, on a machine that wanders by a fifth": Case(name, jitter(0.2)) for name in (BEN, ACC, NAT, VER, REC, RES)},
    **{f"{name}, with other luck": Case(name, jitter(0.1, seed=9)) for name in (BEN, ACC, NAT, VER)},
    **{f"{name}, four times as slow": Case(name, all_of(faster(0.25), jitter(0.05, seed=4))) for name in (BEN, NAT, VER, REC)},
    **{f"{name}, ten times as fast": Case(name, all_of(faster(10.0), jitter(0.05, seed=5))) for name in (BEN, NAT, VER, RES)},
    **{f"{name}, on another machine": Case(name, APPLE) for name in (BEN, CODEC, KVQ)},
    **{f"{name}, of a model that does not come with the engine": Case(name, renamed) for name in (BEN, KVQ, REC, PAR)},
    **{f"{name}, which tells no starts": Case(name, untold_starts) for name in (BEN, NAT, REC, RES)},
    "long pauses now and then": Case(BEN, jitter(0.05, pause=3.0)),
    "a machine that slept": Case(NAT, lambda r: r["rows"][7].update(gap=120.0)),
    "fewer prompts": Case(ACC, all_of(only("code"), put("config", "prompts", to="bundled"))),
    "the first text": Case(KVQ, all_of(first_prompts(2), put("config", "max_prompts", to=2))),
    "two prompts of drafts": Case(PAR, all_of(first_prompts(2), put("config", "max_prompts", to=2))),
    "a drafter that lost": Case(BEN, loses(OURS, 1.5)),
    "a drafter that hardly pays": Case(BEN, loses("lookup/auto", 1.6)),
    "a run that was interrupted": Case(BEN, no_run_counts_twice),
    "needles of a run that was interrupted": Case(REC, no_run_counts_twice),
    "a cache that misses one needle": Case(REC, missing("e8v@4.25", 0)),
    "a cache that misses two needles": Case(REC, all_of(missing("affine@4g64", 1), missing("affine@4g64", 2))),
    "a cache left out for a reason": Case(
        KVQ, lambda r: r["config"]["left_out"].update({"e8v@2.25": "it stores vectors of 80 values, which blocks do not divide"})
        or r["config"]["caches"].append("e8v@2.25")
    ),
    "an older engine's models": Case(NAT, without_optional("architecture", "layers", "parameters", "stored_dtypes")),
    "an older engine's rows": Case(VER, without_optional("sequence", "started_s")),
    "an older engine's codes": Case(CODEC, without_optional("nominal")),
    "a dirty tree": Case(BEN, lambda r: r["identity"]["code"].update(dirty=True)),
    "an installed package": Case(BEN, lambda r: r["identity"]["code"].update(commit=None, dirty=None)),
    "a busy machine, told": Case(ACC, machine(load=[14.2, 11.9, 8.0])),
    "a model named by its folder": Case(
        NAT, lambda r: (r["models"][0].update(id="/models/tiny/target"), r["config"].update(model="/models/tiny/target"))
    ),
    "our own prompts": Case(NAT, lambda r: (sourced("our-own.jsonl")(r), [
        p.update(text=f"# {i}\n{p['text']}", sha256=digest(f"# {i}\n{p['text']}")) for i, p in enumerate(r["prompts"])])),
}  # fmt: skip
