"""Claims about the engine's two backends: equal tokens and codes, bytes, divergence, speed and memory."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridge.reports import kinds
from bridge.reports.claims.decoding import is_enough, median_claim
from bridge.reports.claims.recall import IDENTICAL, count_claim, share_claim, where_all
from bridge.reports.counted import CountedRows, decode_rate
from bridge.reports.statistics import bounds_of_median

Row = Mapping[str, Any]
Arm = Mapping[str, Any]
BFLOAT16 = 2  # bytes of a value
SPREAD = 2.0  # if equal runs differ by more, the machine was busy, and their wall time means nothing

_EXACT = "interval: exact (Clopper and Pearson), 95 %"
SAME_ANSWERS = f"share of prompts on which every token is that of the other arm in every repeat; {_EXACT}"
EQUAL_CODES = (
    f"share of equal rows of codes that both arms' backends write for the same float32 vectors; {_EXACT}"
)
KL = (
    "mean over positions of the KL divergence in nats of the arm's prediction from that of the other arm, both after "
    "the greedy tokens of MLX over the raw cache"
)
SAME_TOP = f"share of the positions of kl whose likeliest token is that of the other arm; {_EXACT}"
CACHE_SHARE = (
    "bytes of the arrays of the arm's caches, unused capacity included, over two bytes for each value in those of the "
    "same backend's raw caches, all prompts together"
)
STEP_MS = "median over all steps of the milliseconds from a token to the next"
PROCESSOR_MS = "median over rows of the processor's milliseconds for a token, all threads together"
PROCESSOR_RATIO = "quotient of the two arms' processor_ms"
PEAK = "the most memory that the backend's process had occupied by the end of the arm's last row, weights and all"


def backend_claims(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the claims of ``kakeya.torch-parity``; those about time only after a warm-up.

    Claims about wall time also need enough repeats, and equal runs that took about equally long.
    """
    arms, table = report["arms"], CountedRows(report["rows"])
    where = where_all([prompt["id"] for prompt in report["prompts"]])
    is_warm = any(row.get("warmup") for row in report["rows"])
    timed = {arm["name"] for arm in arms if is_warm and is_steady(table, arm["name"])}
    claims: list[dict[str, Any]] = []
    for arm in arms:
        if table.of(arm["name"]):
            claims += _of_arm(table, arm, arms, where)
            claims += _processor(table, arm, arms) if is_warm else ()
            claims += _times(table, arm, arms, timed) if arm["name"] in timed else ()
    return [{**claim, "where": where} for claim in claims]


def _of_arm(
    table: CountedRows[Row], arm: Arm, arms: Sequence[Arm], where: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    name = arm["name"]
    if arm.get("oracle"):
        yield share_claim("identical_outputs", name, IDENTICAL, where, table.identical(name, arm["oracle"]))
    for other in compared(arm, arms):
        against = other["name"]
        if against != arm.get("oracle"):
            equal = share_claim("same_answers", name, SAME_ANSWERS, where, table.identical(name, against))
            yield {**equal, "against": against}
        codes = equal_codes(table, name, against)
        if codes:
            yield {**share_claim("equal_codes", name, EQUAL_CODES, where, codes), "against": against}
    if predicted_from := reference_of(arm, arms):
        yield from _predictions(table, name, predicted_from["name"], where)
    raw = counterpart(arms, arm["role"], kinds.RAW)
    values = sum(map(_values_in, table.of(raw["name"]))) if raw else 0
    if values:
        nbytes = sum(row["memory"]["cache_bytes"] for row in table.of(name) if row.get("memory"))
        yield _claim("cache_share", nbytes / (BFLOAT16 * values), CACHE_SHARE, name)
    yield _claim("peak_bytes", max(row["process_peak_bytes"] for row in table.of(name)), PEAK, name)


def _predictions(
    table: CountedRows[Row], name: str, against: str, where: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    known = [row["prediction"] for row in table.of(name) if row.get("prediction")]
    positions = sum(each["n_positions"] for each in known)
    if positions:
        kl = sum(each["sum_kl"] for each in known) / positions
        yield {**_claim("kl", kl, KL, name), "against": against}
        same = min(sum(each["same_top"] for each in known), positions)
        yield {**count_claim("same_top", name, SAME_TOP, where, (same, positions)), "against": against}


def _times(
    table: CountedRows[Row], arm: Arm, arms: Sequence[Arm], timed: set[str]
) -> Iterator[dict[str, Any]]:
    name, rows = arm["name"], table.of(arm["name"])
    yield median_claim("decode_tok_s", list(table.medians(name).values()), arm=name)
    steps = [seconds for row in rows for seconds in row["step_s"]]
    if steps:
        yield _claim("step_ms", 1000 * statistics.median(steps), STEP_MS, name)
    for other in compared(arm, arms):
        ratios = table.ratios(name, other["name"]) if other["name"] in timed else []
        if ratios:
            yield median_claim("decode_ratio", ratios, arm=name, against=other["name"])


def _processor(table: CountedRows[Row], arm: Arm, arms: Sequence[Arm]) -> Iterator[dict[str, Any]]:
    name, mine = arm["name"], processor_ms(table, arm["name"])
    if mine is None:
        return
    yield _claim("processor_ms", mine, PROCESSOR_MS, name)
    for other in compared(arm, arms):
        theirs = processor_ms(table, other["name"])
        if theirs:
            yield {
                **_claim("processor_ratio", mine / theirs, PROCESSOR_RATIO, name),
                "against": other["name"],
            }


def processor_ms(table: CountedRows[Row], arm: str) -> float | None:
    """Return the median over an arm's rows of the processor's milliseconds for a token; None without any."""
    rows = [row for row in table.of(arm) if row["decode_tokens"]]
    return (
        statistics.median(1000 * row["processor_s"] / row["decode_tokens"] for row in rows) if rows else None
    )


def is_steady(table: CountedRows[Row], arm: str) -> bool:
    """Return whether an arm ran often enough for claims about wall time, each prompt about equally fast each time."""
    rates = [
        [rate for row in some if (rate := decode_rate(row))] for some in table.by_arm.get(arm, {}).values()
    ]
    bounds = [bounds_of_median(some) for some in rates if some]
    return is_enough(table, arm) and all(most <= SPREAD * least for least, most in bounds)


def compared(arm: Arm, arms: Sequence[Arm]) -> list[Arm]:
    """Return the arms with which one is compared: its backend's raw cache, and MLX over the same cache."""
    others = [counterpart(arms, arm["role"], kinds.RAW)]
    others += [counterpart(arms, "reference", arm["cache"])] if arm["role"] == "candidate" else []
    return [other for other in others if other and other["name"] != arm["name"]]


def reference_of(arm: Arm, arms: Sequence[Arm]) -> Arm | None:
    """Return the arm from whose predictions an arm's are measured: its backend's raw cache, for that one MLX's."""
    raw = counterpart(arms, arm["role"], kinds.RAW)
    other = counterpart(arms, "reference", kinds.RAW) if raw is None or raw["name"] == arm["name"] else raw
    return None if other is None or other["name"] == arm["name"] else other


def counterpart(arms: Sequence[Arm], role: str, cache: str) -> Arm | None:
    """Return the first arm with a role and a cache."""
    return next((arm for arm in arms if arm["role"] == role and arm["cache"] == cache), None)


def equal_codes(table: CountedRows[Row], arm: str, other: str) -> list[bool]:
    """Return for each row of codes that both arms wrote of the same vectors whether both rows are equal."""
    both = [_codes(table, name) for name in (arm, other)]
    shared = [(codes, both[1][prompt]) for prompt, codes in both[0].items() if prompt in both[1]]
    return [a == b for ours, theirs in shared for a, b in zip(ours, theirs, strict=True)]


def _codes(table: CountedRows[Row], arm: str) -> dict[str, Sequence[str]]:
    return {row["prompt"]: row["codes"] for row in reversed(table.of(arm)) if row.get("codes")}


def _values_in(row: Row) -> int:
    layers = (row.get("memory") or {}).get("layers", ())
    return sum(math.prod(a["shape"]) * layer.get("count", 1) for layer in layers for a in layer["arrays"])


def _claim(name: str, value: float, definition: str, arm: str) -> dict[str, Any]:
    return {"name": name, "arm": arm, "value": value, "definition": definition}
