"""Claims about needles: recall, equal tokens, bytes, the pace of answers, and how far predictions move."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bridge.reports import kinds
from bridge.reports.claims.decoding import is_enough, median_claim
from bridge.reports.counted import CountedRows, counted
from bridge.reports.repetition import repeating_arms
from bridge.reports.statistics import exact_interval

Row = Mapping[str, Any]

# The arm that computes every position again for each token.
RECOMPUTE = "recompute"

RECALL = (
    "share of prompts whose greedy answer holds the expected code, case and all, in every repeat; "
    "interval: exact (Clopper and Pearson), 95 %"
)
DELTA = "recall of arm less recall of against, on the same prompts, with its sign"
IDENTICAL = (
    "share of prompts on which every token is that of the arm's oracle in every repeat; "
    "interval: exact (Clopper and Pearson), 95 %"
)
BYTES = "the most bytes that the arrays of a row's cache held after the last token, unused capacity included"
PREDICTION = (
    "mean over the positions of the prompts behind two windows of the KL divergence in nats of the prediction from "
    "that with the whole cache"
)
PREDICTION_RATIO = (
    "ratio of prompt_kl of arm to that of against, a control, on the same prompts; "
    "below 1, arm is nearer to raw"
)
CONTROLS = ("evicted", "poison")

# Predictions of an arm by prompt.
Predictions = dict[str, list[Mapping[str, Any]]]


def needle_claims(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the claims of ``kakeya.recall`` and ``kakeya.restored-prefill``."""
    rows, arms, prompts = report["rows"], report["arms"], report["prompts"]
    where = where_all([prompt["id"] for prompt in prompts])
    claims = _recall_claims(rows, prompts, arms, where)
    if report["kind"] == kinds.RESTORED and report["config"].get("layers", "full") != "full":
        # In this case the full-attention layers keep all positions, and find needles by themselves.
        claims = [claim for claim in claims if claim["name"] not in ("recall", "recall_delta")]
    return [*claims, *pace_claims(rows, arms, where), *_prediction_claims(rows, arms, where)]


def _recall_claims(
    rows: Sequence[Row],
    prompts: Sequence[Mapping[str, Any]],
    arms: Sequence[Mapping[str, Any]],
    whole: dict[str, Any],
) -> list[dict[str, Any]]:
    """Return the claims of the counted rows: recall by arm, over all prompts and in each bucket that has several."""
    expected = {prompt["id"]: prompt["expected"] for prompt in prompts}
    buckets: dict[tuple[int, float], list[str]] = {}
    for prompt in prompts:
        buckets.setdefault((prompt["length"], prompt["depth"]), []).append(prompt["id"])
    table = CountedRows(rows)
    hits = {
        name: {prompt: all(expected[prompt] in row["text"] for row in some) for prompt, some in of_arm.items()}
        for name, of_arm in table.by_arm.items()
    }  # fmt: skip
    claims = []
    for arm in arms:
        name, mine = arm["name"], hits.get(arm["name"], {})
        if set(expected) - set(mine):
            continue  # it did not run everywhere
        claims.append(share_claim("recall", name, RECALL, whole, [mine[p["id"]] for p in prompts]))
        for (length, depth), members in buckets.items():
            if len(members) > 1:
                where = {"length": length, "depth": depth}
                claims.append(share_claim("recall", name, RECALL, where, [mine[p] for p in members]))
        if arm.get("oracle"):
            claims += _against(arm, table, hits, whole)
        nbytes = [row["memory"]["cache_bytes"] for row in table.of(name) if row.get("memory")]
        if nbytes:
            about = {"name": "cache_bytes", "arm": name, "value": max(nbytes)}
            claims.append({**about, "definition": BYTES, "where": whole})
    return claims


def _against(
    arm: Mapping[str, Any],
    table: CountedRows[Row],
    hits: Mapping[str, Mapping[str, bool]],
    where: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    name, oracle = arm["name"], arm["oracle"]
    equal = table.identical(name, oracle)
    yield share_claim("identical_outputs", name, IDENTICAL, where, equal)
    mine, theirs = (list(hits.get(side, {}).values()) for side in (name, oracle))
    if theirs:
        value = sum(mine) / len(mine) - sum(theirs) / len(theirs)
        about = {"name": "recall_delta", "arm": name, "against": oracle, "value": value}
        yield {**about, "definition": DELTA, "where": where}


def share_claim(
    name: str, arm: str | None, definition: str, where: dict[str, Any], hits: Sequence[bool]
) -> dict[str, Any]:
    """Return a claim about the share of hits, with its exact interval."""
    return count_claim(name, arm, definition, where, (sum(hits), len(hits)))


def count_claim(
    name: str, arm: str | None, definition: str, where: dict[str, Any], counts: tuple[int, int]
) -> dict[str, Any]:
    """Return such a claim by the numbers of hits and of trials."""
    about = {"name": name, "arm": arm} if arm else {"name": name}
    interval, value = list(exact_interval(*counts)), counts[0] / counts[1]
    return {**about, "value": value, "interval": interval, "definition": definition, "where": where}


def where_all(prompts: Sequence[str]) -> dict[str, Any]:
    """Return the ``where`` of a claim about all prompts: empty, or the name of the only prompt."""
    return {"prompt": prompts[0]} if len(prompts) == 1 else {}


def pace_claims(
    rows: Sequence[Row], arms: Sequence[Mapping[str, Any]], where: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return each arm's tokens per second, and each candidate's ratio to the recomputation's.

    There are no such claims without a warm-up and enough repeats, prompts and tokens, or if answers repeat themselves.
    No speed-up over mlx-lm is claimed: a restored cache may give other answers than the whole cache.
    """
    if not any(row.get("warmup") for row in rows) or repeating_arms(rows):
        return []
    table, about = CountedRows(rows), {"where": where}
    timed = [arm for arm in arms if is_enough(table, arm["name"])]
    rates = {arm["name"]: list(table.medians(arm["name"]).values()) for arm in timed}
    claims = [median_claim("decode_tok_s", values, arm=name) | about for name, values in rates.items()]
    for arm in timed if RECOMPUTE in rates else ():
        ratios = table.ratios(arm["name"], RECOMPUTE) if arm["role"] == "candidate" else []
        if ratios:
            claims.append(median_claim("decode_ratio", ratios, arm=arm["name"], against=RECOMPUTE) | about)
    return claims


def _prediction_claims(
    rows: Sequence[Row], arms: Sequence[Mapping[str, Any]], where: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return each arm's divergence over all prompts, and each candidate's in proportion to each control's.

    Arms without predictions have no claims. The intervals hold the least and the greatest prompt.
    """
    predictions = {arm["name"]: _predictions(rows, arm["name"]) for arm in arms}
    claims = []
    for arm in arms:
        mine = predictions[arm["name"]]
        if mine and arm.get("oracle"):
            each = [mean_divergence(some) for some in mine.values()]
            claims.append(
                {
                    "name": "prompt_kl", "arm": arm["name"], "against": arm["oracle"], "value": _overall(mine),
                    "interval": [min(each), max(each)], "definition": PREDICTION, "where": where,
                }
            )  # fmt: skip
    return [*claims, *_prediction_ratios(predictions, arms, where)]


def _prediction_ratios(
    predictions: Mapping[str, Predictions], arms: Sequence[Mapping[str, Any]], where: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the ratio of each candidate's divergence to each control's; a control without divergence is left out."""
    controls = [arm["name"] for arm in arms if arm["role"] in CONTROLS]
    for arm in arms:
        mine = predictions[arm["name"]] if arm["role"] == "candidate" else {}
        for control in controls:
            theirs = predictions[control]
            if not mine or any(not theirs.get(p) or mean_divergence(theirs[p]) == 0 for p in mine):
                continue
            each = [mean_divergence(some) / mean_divergence(theirs[prompt]) for prompt, some in mine.items()]
            yield {
                "name": "prompt_kl_ratio", "arm": arm["name"], "against": control,
                "value": _overall(mine) / _overall(theirs),
                "interval": [min(each), max(each)], "definition": PREDICTION_RATIO, "where": where,
            }  # fmt: skip


def _predictions(rows: Sequence[Row], arm: str) -> Predictions:
    by_prompt: Predictions = {}
    for row in counted(rows):
        if row["arm"] == arm and row.get("prediction"):
            by_prompt.setdefault(row["prompt"], []).append(row["prediction"])
    return by_prompt


def _overall(predictions: Predictions) -> float:
    return mean_divergence(prediction for some in predictions.values() for prediction in some)


def mean_divergence(predictions: Iterable[Mapping[str, Any]]) -> float:
    """Return the mean divergence over the positions of predictions, in nats."""
    known = list(predictions)
    return float(sum(each["sum_kl"] for each in known) / sum(each["n_positions"] for each in known))
