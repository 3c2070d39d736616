# ruff: noqa: E501 - a table: one case a line reads best
"""More falsehoods about real reports: time that was moved or made up, slowed baselines, and dressed-up statistics."""

from __future__ import annotations

import random
from typing import Any

from tests.bridge.evidence.falsehoods import (
    ACC,
    BEN,
    GAP,
    NAT,
    OURS,
    REC,
    RES,
    VER,
    Case,
    Edit,
    Report,
    all_of,
    each,
    hidden_pause,
    keep_times,
    moved,
    prompt_ids,
    put,
    rows,
    scaled_copy,
    times,
    without_arm,
)

PLAIN = ("native", "verify1", "incremental")
LOOKUP = "lookup/auto"


def own(row: Report) -> bool:
    return not row.get("warmup")


def shifted_alike(share: float, *arms: str, of: str = LOOKUP) -> Edit:
    """Book equal seconds of decoding as prefill in every arm: a share of the fastest arm's decoding on that prompt."""

    def edit(made: Report) -> None:
        for name in prompt_ids(made):
            least = min(row["decode_s"] for row in rows(made, of, name) if own(row))
            for row in rows(made, prompt=name):
                if not arms or row["arm"] in arms:
                    row["decode_s"] -= share * least
                    row["prefill_s"] += share * least

    return edit


def into(arm: str, other: str, share: float) -> Edit:
    """Move a share of one arm's decoding into the rows of another, on the same prompt and repeat."""

    def edit(made: Report) -> None:
        to = {(row["prompt"], row["repeat"]): row for row in rows(made, other)}
        for row in rows(made, arm):
            if (row["prompt"], row["repeat"]) not in to:
                continue
            less = share * row["decode_s"]
            beside = to[row["prompt"], row["repeat"]]
            row["decode_s"] -= less
            row["e2e_s"] -= less
            beside["decode_s"] += less
            beside["e2e_s"] += less

    return edit


def into_warm_up(arm: str, share: float) -> Edit:
    """Move a share of the counted repeats' decoding into the first row that is set aside."""

    def edit(made: Report) -> None:
        for name in prompt_ids(made):
            aside = next(row for row in rows(made, arm, name) if row["warmup"])
            for row in rows(made, arm, name, warmup=False):
                less = share * row["decode_s"]
                for one, by in ((row, -less), (aside, less)):
                    one["decode_s"] += by
                    one["e2e_s"] += by

    return edit


def into_last(arm: str, share: float) -> Edit:
    """Move decoding of the first repeats into the last one: the median falls, and the sum stays."""

    def edit(made: Report) -> None:
        for name in prompt_ids(made):
            *first, last = rows(made, arm, name, warmup=False)
            for row in first:
                less = share * row["decode_s"]
                for one, by in ((row, -less), (last, less)):
                    one["decode_s"] += by
                    one["e2e_s"] += by

    return edit


def unaccounted(share: float) -> Any:
    """Take a share of decoding out of a row's decoding, and leave the whole."""

    def change(row: Report) -> None:
        row["decode_s"] *= 1 - share

    return change


def round_rates(digits: int, *arms: str) -> Edit:
    """Give rows times that were computed from made-up rates of few digits."""

    def edit(made: Report) -> None:
        for row in made["rows"]:
            if row["arm"] in arms and row["decode_s"]:
                rate = round(row["decode_tokens"] / row["decode_s"], digits)
                row["decode_s"] = row["decode_tokens"] / rate
                row["e2e_s"] = row["prefill_s"] + row["decode_s"]

    return edit


def one_prefill(share: float) -> Edit:
    """Write one prefill for all rows of a prompt, with noise of a share."""

    def edit(made: Report) -> None:
        dice = random.Random(2)
        for name in prompt_ids(made):
            first = rows(made, prompt=name)[0]["prefill_s"]
            for row in rows(made, prompt=name):
                row["prefill_s"] = first * (1 + share * dice.random())
                row["e2e_s"] = row["prefill_s"] + row["decode_s"]

    return edit


def scaled_rows(by: float, **fields: Any) -> Edit:
    return each(None, lambda row: row.update(seconds=row["seconds"] * by), **fields)


def no_slower(made: Report) -> None:
    """Passes of every length take what one token takes, with its own noise."""
    ones: dict[int, float] = {row["repeat"]: row["seconds"] for row in made["rows"] if row["length"] == 1}
    dice = random.Random(4)
    for row in made["rows"]:
        if row["length"] > 1:
            row["seconds"] = ones[row["repeat"]] * (1 + 1e-7 * dice.random())


def constant_rounds(arm: str, seconds: float) -> Edit:
    """Give each row a decoding of so many seconds a round, with noise."""

    def edit(made: Report) -> None:
        dice = random.Random(6)
        for row in rows(made, arm):
            row["decode_s"] = seconds * len(row["commits"]) * (1 + 0.02 * dice.random())
            row["e2e_s"] = row["prefill_s"] + row["decode_s"]

    return edit


def slow_clock(by: float) -> Edit:
    """Let the run's seconds and starts go by a faster clock than the rows."""

    def edit(made: Report) -> None:
        for row in made["rows"]:
            row["started_s"] *= by
        made["seconds"] = round(made["seconds"] * by, 3)
        made["keep times"] = True

    return edit


TIME: dict[str, Case] = {
    **{f"{share:.0%} of the drafter's decoding booked as prefill": Case(BEN, each(OURS, moved(share))) for share in (0.12, 0.2, 0.3)},
    **{f"{share:.0%} of the lookup's decoding booked as prefill": Case(BEN, each(LOOKUP, moved(share))) for share in (0.12, 0.2, 0.3)},
    "a fifth of both drafters' decoding booked as prefill in counted repeats": Case(
        BEN, all_of(*(each(a, moved(0.2), warmup=False) for a in (OURS, LOOKUP)))
    ),
    "a quarter booked as prefill on the longest prompt": Case(BEN, lambda r: [moved(0.5)(row) for row in rows(r, LOOKUP, prompt_ids(r)[1])]),
    **{f"{share:.0%} of the fastest decoding booked as prefill in every arm": Case(BEN, shifted_alike(share)) for share in (0.3, 0.5, 0.7)},
    "decoding of both plain arms booked as prefill": Case(NAT, each(None, moved(0.8))),
    "decoding of needles booked as prefill": Case(REC, each(None, moved(0.9))),
    "prefill of plain arms booked as decoding": Case(BEN, all_of(*(each(a, moved(0.5, "prefill_s", "decode_s")) for a in PLAIN))),
    "a third of the plain prefill booked as decoding": Case(BEN, all_of(*(each(a, moved(0.35, "prefill_s", "decode_s")) for a in PLAIN))),
    "decoding that is in no part of its row": Case(BEN, each(OURS, unaccounted(0.08))),
    "decoding of an arm without claims that is in no part": Case(ACC, each(None, unaccounted(0.13))),
    "decoding moved into the rows of the baseline": Case(BEN, into(LOOKUP, "native", 0.3)),
    "decoding of the lookup moved into warm-up": Case(BEN, into_warm_up(LOOKUP, 0.45)),
    "decoding of the drafter moved into warm-up": Case(BEN, into_warm_up(OURS, 0.45)),
    "decoding moved into the last repeat": Case(BEN, into_last(LOOKUP, 0.3)),
    "decoding of the drafter moved between rows": Case(BEN, hidden_pause(OURS, 0.25)),
    "decoding of every drafter moved between rows": Case(BEN, all_of(hidden_pause(OURS, 0.3), hidden_pause(LOOKUP, 0.6))),
    "rates of one digit turned into times": Case(BEN, round_rates(1, OURS, LOOKUP, *PLAIN)),
    "rates of two digits turned into times": Case(NAT, round_rates(2, "native", "verify1")),
    "one prefill for all rows of a prompt, with noise": Case(BEN, one_prefill(3e-6)),
    "rounds that take one and the same time": Case(BEN, constant_rounds(OURS, 1e-9)),
    "rounds faster than one token": Case(BEN, constant_rounds(OURS, 0.005)),
    "a run by a clock that is a tenth faster": Case(BEN, slow_clock(1.4)),
    "needles by two clocks": Case(REC, slow_clock(0.6)),
    "blocks verified as fast as one token": Case(VER, no_slower),
    "blocks verified faster than one token": Case(VER, lambda r: [row.update(seconds=row["seconds"] * 0.4) for row in r["rows"] if row["length"] > 1]),
    "sixteen tokens faster than eight": Case(VER, scaled_rows(0.45, length=16)),
    "passes timed in tenths of a millisecond": Case(VER, each(None, lambda row: row.update(seconds=round(row["seconds"], 4)))),
    "starts in whole seconds": Case(BEN, keep_times(each(None, lambda row: row.update(started_s=float(int(row["started_s"])))))),
    "every row right behind the one before": Case(BEN, lambda r: [row.update(gap=0.0) for row in r["rows"]]),
    "pauses that are all the same": Case(NAT, lambda r: [row.update(gap=GAP) for row in r["rows"]] and None),
}  # fmt: skip


def stretched(by: float, jitter: float, *arms: str) -> Edit:
    """Slow arms down in counted repeats alone, each by about as much."""

    def edit(made: Report) -> None:
        dice = random.Random(8)
        for row in made["rows"]:
            if row["arm"] in arms and own(row):
                times(by * (1 + jitter * dice.random()))(row)

    return edit


def swapped(one: str, other: str) -> Edit:
    """Let two arms change the names of their rows' times."""

    def edit(made: Report) -> None:
        to = {(row["prompt"], row["repeat"]): row for row in rows(made, other)}
        for row in rows(made, one):
            beside = to[row["prompt"], row["repeat"]]
            for name in ("prefill_s", "decode_s", "e2e_s"):
                row[name], beside[name] = beside[name], row[name]

    return edit


def another_prompts_times(arm: str) -> Edit:
    """Give an arm on each prompt its times on the next one."""

    def edit(made: Report) -> None:
        names = prompt_ids(made)
        held = {
            (row["prompt"], row["repeat"]): (row["prefill_s"], row["decode_s"]) for row in rows(made, arm)
        }
        for row in rows(made, arm):
            after = names[(names.index(row["prompt"]) + 1) % len(names)]
            row["prefill_s"], row["decode_s"] = held[after, row["repeat"]]
            row["e2e_s"] = row["prefill_s"] + row["decode_s"]

    return edit


def fewer_tokens(arm: str, count: int) -> Edit:
    """Cut an arm's answers, and leave the time."""

    def edit(made: Report) -> None:
        for row in rows(made, arm):
            row["tokens"] = row["tokens"][:count]
            row["decode_tokens"] = count - 1

    return edit


def best_prefill(made: Report) -> None:
    """Write the least prefill of a prompt into every row of the candidates, with noise."""
    dice = random.Random(9)
    for name in prompt_ids(made):
        least = min(row["prefill_s"] for row in rows(made, prompt=name))
        for row in rows(made, prompt=name):
            if "/" in row["arm"]:
                row["prefill_s"] = least * (1 + 0.01 * dice.random())
                row["e2e_s"] = row["prefill_s"] + row["decode_s"]


def median_of_the_best(arm: str) -> Edit:
    """Write the best repeat down for the others too, with noise of a ten-thousandth of a thousandth."""

    def edit(made: Report) -> None:
        dice = random.Random(1)
        for name in prompt_ids(made):
            some = rows(made, arm, name, warmup=False)
            best = min(row["decode_s"] for row in some)
            for row in some:
                row["decode_s"] = best * (1 + 5e-6 * dice.random())
                row["e2e_s"] = row["prefill_s"] + row["decode_s"]

    return edit


def claimed_at(by: float, *names: str) -> Edit:
    """Claim a little more than the rows give: what a claim may be rounded by."""

    def edit(made: Report) -> None:
        made["nudge"] = (by, names)

    return edit


BASELINES: dict[str, Case] = {
    "both baselines slowed by a quarter": Case(BEN, all_of(each("native", times(1.25)), each("verify1", times(1.25)))),
    "both baselines slowed by half, in counted repeats": Case(BEN, stretched(1.5, 0.05, "native", "verify1")),
    "every plain arm slowed until a round takes one token's time": Case(BEN, all_of(*(each(a, times(1.45)) for a in PLAIN))),
    "every plain arm slowed to twice": Case(BEN, all_of(*(each(a, times(2.0)) for a in PLAIN))),
    "the baseline slower than the check by a sixth": Case(BEN, each("native", times(1.17))),
    "the baseline of a native report slowed": Case(NAT, each("native", times(1.3))),
    "the baseline of a native report made faster": Case(NAT, each("native", times(0.3))),
    "both arms of a native report, faster than a token can be read": Case(NAT, each(None, times(0.03))),
    "the baseline's times given to the candidate": Case(BEN, swapped("native", OURS)),
    "the lookup's times given to the drafter": Case(BEN, swapped(LOOKUP, OURS)),
    "the baseline with another prompt's times": Case(BEN, all_of(another_prompts_times("native"), another_prompts_times("verify1"))),
    "the baseline stopped early": Case(BEN, fewer_tokens("native", 20)),
    "both baselines stopped early": Case(BEN, all_of(fewer_tokens("native", 33), fewer_tokens("verify1", 33))),
    "the baseline over an affine cache": Case(BEN, lambda r: [a.update(cache="affine@8g64") for a in r["arms"] if a["name"] in ("native", "verify1")]),
    "the check over another cache": Case(BEN, lambda r: [a.update(cache="affine@8g64") for a in r["arms"] if a["name"] == "verify1"]),
    "the check named a reference": Case(NAT, lambda r: [a.update(role="reference") for a in r["arms"] if a["name"] == "verify1"]),
    "the check left out": Case(BEN, without_arm("verify1")),
    "the check left out of a native report": Case(NAT, without_arm("verify1")),
    "our plain loop called a candidate": Case(BEN, lambda r: [a.update(role="candidate") for a in r["arms"] if a["name"] == "incremental"]),
    "our plain loop called the baseline": Case(
        BEN, lambda r: [a.update(role="baseline" if a["name"] == "incremental" else "reference") for a in r["arms"] if a["name"] in ("native", "incremental")]
        and [c.update(against="incremental") for c in r["claims"] if c.get("against") == "native"]
    ),
    "the best prefill for every candidate": Case(BEN, best_prefill),
    "the best repeat written down three times": Case(BEN, median_of_the_best(LOOKUP)),
    "the best repeat of the baseline written down three times": Case(NAT, median_of_the_best("native")),
    "the check as a copy of the baseline": Case(NAT, scaled_copy("verify1", "native", 1.01)),
    "claims that are higher by four tenths of a per cent": Case(BEN, claimed_at(1.004, "decode_speedup", "decode_tok_s", "worst_speedup", "decode_ratio", "e2e_speedup")),
    "an acceptance that is higher by four tenths of a per cent": Case(ACC, claimed_at(1.004, "accept_length", "accept_rate")),
    "bytes that are fewer by four tenths of a per cent": Case(REC, claimed_at(0.996, "cache_bytes")),
    "passes that are faster by four tenths of a per cent": Case(VER, claimed_at(0.996, "verify_ms", "verify_ratio")),
    "only the faster drafter claimed": Case(
        BEN, lambda r: r.update(claims=[c for c in r["claims"] if c.get("arm") != OURS or "speedup" not in c["name"]])
    ),
    "only the better acceptance claimed": Case(
        ACC, lambda r: r.update(claims=[c for c in r["claims"] if c.get("arm") != OURS or not c["name"].startswith("accept")])
    ),
    "only the cache that found all needles claimed": Case(
        RES, lambda r: r.update(claims=[c for c in r["claims"] if c.get("arm") != "restored e8v@2.25"])
    ),
    "no worst prompt claimed": Case(BEN, lambda r: r.update(claims=[c for c in r["claims"] if c["name"] != "worst_speedup"])),
    "more repeats configured than run": Case(BEN, put("config", "repeats", to=5)),
    "more passes configured than run": Case(VER, put("config", "repeats", to=10)),
}  # fmt: skip


def slower_reading(arm: str, by: float) -> Edit:
    """Let an arm take longer to read every prompt, as if a part of decoding were booked there; repeats lie close."""

    def edit(made: Report) -> None:
        for name in prompt_ids(made):
            most = max(row["prefill_s"] for row in rows(made, prompt=name))
            for i, row in enumerate(rows(made, arm, name)):
                row["prefill_s"] = by * most * (1 + 0.013 * i)
                row["e2e_s"] = row["prefill_s"] + row["decode_s"]

    return edit


TIME["a drafter that reads every prompt for longer"] = Case(BEN, slower_reading(OURS, 1.6))
