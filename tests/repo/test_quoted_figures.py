"""Pages quote figures as the published reports in docs/results have them.

A row of the table names a page, what it says with gaps for the figures, and where each figure comes from.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TINY, HYBRID = "tiny", "tiny-hybrid"
REAL = "smollm2-135m"
CODE, CHAT, LONG_CHAT = f"humaneval-64-{REAL}", f"chat-64-{REAL}", f"chat-256-{REAL}"
JOURNEY, README = "docs/design/journey.md", "README.md"
BROWSER, BACKEND = "docs/design/browser.md", "docs/design/parallel-backend.md"
NATIVE, PLAIN, PACKAGE = "native", "incremental", "dflash-package"
DRAFTER, LOOKUP, ADAPTIVE = "dflash/auto", "lookup/auto", "adaptive/auto"

Figure = Callable[[], float]


@cache
def report(name: str) -> dict:
    return json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def claim(pair: str, name: str, arm: str, against: str | None = None) -> Figure:
    """Return what finds a claim of a pair's report of speculative decoding."""

    def find() -> float:
        told = (name, arm, against)
        claims = report(f"spec-{pair}")["claims"]
        (value,) = [one["value"] for one in claims if (one["name"], one["arm"], one.get("against")) == told]
        return value

    return find


def speedup(pair: str, arm: str) -> Figure:
    return claim(pair, "decode_speedup", arm, NATIVE)


def worst(pair: str, arm: str) -> Figure:
    return claim(pair, "worst_speedup", arm, NATIVE)


def over_plain(pair: str, arm: str) -> Figure:
    return claim(pair, "decode_ratio", arm, PLAIN)


def tau(pair: str, arm: str) -> Figure:
    return claim(pair, "accept_length", arm)


def plain_loop(pair: str) -> Figure:
    """Return what computes the speed of our loop without drafts over mlx-lm's: the median over prompts."""

    def compute() -> float:
        rates: dict[tuple[str, str], list[float]] = {}
        for row in report(f"spec-{pair}")["rows"]:
            if not row["warmup"]:
                rate = row["decode_tokens"] / row["decode_s"]
                rates.setdefault((row["arm"], row["prompt"]), []).append(rate)
        middle = {key: statistics.median(some) for key, some in rates.items()}
        return statistics.median(middle[PLAIN, at] / middle[NATIVE, at] for arm, at in middle if arm == PLAIN)

    return compute


def kl(cache: str) -> Figure:
    """Return what finds the divergence of the real model's predictions from those over a raw cache."""

    def find() -> float:
        claims = report(f"kv-quant-{REAL}")["claims"]
        (value,) = [claim["value"] for claim in claims if (claim["name"], claim["arm"]) == ("kl", cache)]
        return value

    return find


def codes(cache: str) -> Callable[[], str]:
    """Return what counts the needles of six that the real model finds."""

    def count() -> str:
        claims = report(f"recall-{REAL}")["claims"]
        (share,) = [
            claim["value"] for claim in claims
            if (claim["name"], claim["arm"], claim["where"]) == ("recall", cache, {})
        ]  # fmt: skip
        return {0: "none", 3: "three", 6: "all"}[round(6 * share)]

    return count


def verify(pair: str, length: int, context: int) -> Figure:
    """Return what finds the time of a pass over ``length`` tokens, over that of one token."""

    def find() -> float:
        where = {"length": length, "context": context}
        claims = report(f"verify-l-{pair}")["claims"]
        (value,) = [one["value"] for one in claims if one["name"] == "verify_ratio" and one["where"] == where]
        return value

    return find


def free(pair: str, context: int) -> Figure:
    """Return what computes the gain with the drafter's tau if drafting cost nothing."""
    return lambda: tau(pair, DRAFTER)() / verify(pair, 8, context)()


def error(codec: str, group: int, *, rotated: bool) -> Figure:
    """Return what finds a codec's relative squared error on Gaussian vectors at 4.25 bits."""

    def find() -> float:
        told = (codec, group, rotated, "gaussian", 4.25)
        names = ("codec", "group", "rotated", "distribution", "stored_bits_per_value")
        rows = report("codec-rd")["rows"]
        (value,) = [row["rel_mse"] for row in rows if tuple(row[name] for name in names) == told]
        return value

    return find


def least(*figures: Figure) -> Figure:
    return lambda: min(one() for one in figures)


def most(*figures: Figure) -> Figure:
    return lambda: max(one() for one in figures)


def share(bits: float) -> Figure:
    """Return the bytes of a cache with so many bits per value, in percent of bfloat16's."""
    return lambda: 100 * bits / 16


# What eight tokens cost, and what is accepted, on both pairs.
EIGHT = [verify(pair, 8, context) for pair in (TINY, HYBRID) for context in (128, 1024)]
TAUS = [tau(pair, arm) for pair in (TINY, HYBRID) for arm in (DRAFTER, LOOKUP, ADAPTIVE)]


def at_two(figure: Figure) -> Figure:
    """Return the gain of a round with a verification of two plain steps and a draft of half a step."""
    return lambda: figure() / 2.5


QUOTED: list[tuple[str, str, list[Figure]]] = [
    (JOURNEY, "{:.1f} and {:.1f} times on `tiny`, {:.1f} and {:.1f} on `tiny-hybrid`",
     [verify(pair, 16, context) for pair in (TINY, HYBRID) for context in (128, 1024)]),
    (JOURNEY, "The drafter's tau is {:.2f} on `tiny` and {:.2f} on `tiny-hybrid`",
     [tau(TINY, DRAFTER), tau(HYBRID, DRAFTER)]),
    (JOURNEY, "verify(8) is {:.2f} and {:.2f} plain steps at 128 cached tokens, {:.2f} and {:.2f} at 1,024",
     [EIGHT[0], EIGHT[2], EIGHT[1], EIGHT[3]]),
    (JOURNEY, "at most {:.2f} and {:.2f} at 128 cached tokens, {:.2f} and {:.2f} at 1,024",
     [free(TINY, 128), free(HYBRID, 128), free(TINY, 1024), free(HYBRID, 1024)]),
    (JOURNEY, "plain decoding in our loop {:.2f} and {:.2f} times mlx-lm's",
     [plain_loop(TINY), plain_loop(HYBRID)]),
    (JOURNEY, "adaptive {:.2f} and {:.2f}, over our own plain loop {:.2f} and {:.2f}",
     [speedup(TINY, ADAPTIVE), speedup(HYBRID, ADAPTIVE), over_plain(TINY, ADAPTIVE), over_plain(HYBRID, ADAPTIVE)]),
    (JOURNEY, "over our plain loop they give {:.2f} and {:.2f}",
     [over_plain(TINY, ADAPTIVE), over_plain(HYBRID, ADAPTIVE)]),
    (JOURNEY, "3.1 to 3.2 before, {:.1f} in the last report", [tau(TINY, ADAPTIVE)]),
    (JOURNEY, "drafter alone {:.2f} and {:.2f} |", [speedup(TINY, DRAFTER), speedup(HYBRID, DRAFTER)]),
    (BROWSER, "verify(8) costs {:.1f} to {:.1f} times verify(1) on a CPU", [least(*EIGHT), most(*EIGHT)]),
    (BROWSER, "With tau of {:.1f} to {:.1f} and verify(8) at 2 times verify(1)", [least(*TAUS), most(*TAUS)]),
    (BROWSER, "a draft of half a plain step gives {:.2f} to {:.2f}", [at_two(least(*TAUS)), at_two(most(*TAUS))]),
    (BACKEND, "{:.2f} times mlx-lm on `tiny` in the published report", [speedup(TINY, LOOKUP)]),
    (BACKEND, "error of {:.4f} on Gaussian vectors, rotated affine with groups of 128 has {:.4f}",
     [error("voronoi", 0, rotated=True), error("affine", 128, rotated=True)]),
    (BACKEND, "4.25 bits takes {:.0f} % of bfloat16's bytes", [share(4.25)]),
    (README, "{:.4f} against {:.4f} at 4.25 bits",
     [error("voronoi", 0, rotated=True), error("affine", 128, rotated=False)]),
    *((README, f"| {name} | {{:.2f}}x, {{:.2f}}x, {{:.2f}}x | {{:.2f}}x, {{:.2f}}x, {{:.2f}}x |",
       [of(pair, arm) for pair in (CODE, CHAT) for of in (speedup, worst, over_plain)])
      for name, arm in (("adaptive", ADAPTIVE), ("prompt lookup alone", LOOKUP), ("drafter alone", DRAFTER))),
    (README, "diverge by {:.3f} nats, affine's by {:.3f}", [kl("e8v@4.25"), kl("affine@4g64")]),
    (README, "in answers of 16 tokens it finds {} of six hidden codes, affine {}, raw {} (",
     [codes("e8v@4.25"), codes("affine@4g64"), codes("raw")]),
    (README, "it commits {:.2f} and {:.2f} tokens a round", [tau(CODE, DRAFTER), tau(CHAT, DRAFTER)]),
    (README, "{:.2f}x, {:.2f}x and {:.2f}x in two chat answers of 256 tokens",
     [speedup(LONG_CHAT, ADAPTIVE), worst(LONG_CHAT, ADAPTIVE), over_plain(LONG_CHAT, ADAPTIVE)]),
]  # fmt: skip


@pytest.mark.rows(5)
@pytest.mark.parametrize(("page", "text", "figures"), QUOTED, ids=[text[:60] for _, text, _ in QUOTED])
def test_a_page_quotes_the_reports(page, text, figures):
    said = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    wanted = text.format(*(figure() for figure in figures))
    assert wanted in said
