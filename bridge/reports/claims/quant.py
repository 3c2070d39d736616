"""Claims about cache codecs, compared at their stored bits."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridge.common.errors import UsageError
from bridge.reports import cache_spec
from bridge.reports.claims.recall import where_all

Row = Mapping[str, Any]
EQUAL = 0.05  # bits: rates this close count as equal if one cache is said to err less than another
OURS, AFFINE = "e8v", "affine"
WITHIN = 1.5  # bits: a cache that stores more than this much more is not a neighbour

DEFINITIONS = {
    "stored_bits_per_value": "eight times the bytes of the arrays of keys and values, scales and all, over the "
    "values that they stand for, all prompts together",
    "rel_mse": "sum of squared errors of captured keys and values over their sum of squares, all prompts together",
    "kl": "mean over positions of the KL divergence in nats of the prediction from that with the raw cache",
    "same_top": "share of positions whose likeliest token is that with the raw cache",
    "perplexity": "exp of the mean over positions of -ln p of the next token of the text",
}
RATIO = "quotient of the two arms' {}; the second arm stores as many bits a value or more"


def statistics(rows: Sequence[Row]) -> dict[str, float]:
    """Return an arm's figures over all of its rows, by the name of their claims."""

    def mean(top: str, bottom: str) -> float:
        return float(sum(row[top] for row in rows) / sum(row[bottom] for row in rows))

    nbytes = sum(row["memory"]["cache_bytes"] for row in rows)
    return {
        "stored_bits_per_value": 8 * nbytes / sum(row["n_values"] for row in rows),
        "rel_mse": mean("sum_squared_error", "sum_squares"),
        "kl": mean("sum_kl", "n_positions"),
        "same_top": mean("same_top", "n_positions"),
        "perplexity": math.exp(min(mean("sum_nll", "n_positions"), 700)),
    }


def by_arm(report: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return ``statistics`` of each arm of a report or of its sections."""
    return {
        arm["name"]: statistics([row for row in report["rows"] if row["arm"] == arm["name"]])
        for arm in report["arms"]
    }


def quant_claims(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each arm's figures, and the quotients of each Voronoi cache's figures over its neighbours'.

    A cache's neighbour of another kind is the one that stores least, among those that store at least as much.
    """
    where = where_all([prompt["id"] for prompt in report["prompts"]])
    arm_figures = by_arm(report)
    claims = [
        {"name": name, "arm": arm, "value": value, "definition": DEFINITIONS[name], "where": where}
        for arm, figures in arm_figures.items()
        for name, value in figures.items()
    ]
    candidates = [arm["name"] for arm in report["arms"] if arm["role"] == "candidate"]
    kinds = dict.fromkeys(kind_of(name) for name in candidates)
    for arm, kind in itertools.product(candidates, kinds):
        if kind_of(arm) == OURS != kind:
            other = _neighbour(arm_figures, arm, [name for name in candidates if kind_of(name) == kind])
            claims += _ratios(arm_figures, arm, other, where) if other else []
    return claims


def kind_of(cache: str) -> str:
    """Return the kind of a cache's spec (``CacheSpec.kind``), or the beginning of a name that is no spec."""
    try:
        return cache_spec.parse(cache).kind
    except UsageError:
        return cache.split("@", maxsplit=1)[0]


def _ratios(
    figures: Mapping[str, Mapping[str, float]], arm: str, other: str, where: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    for name in ("rel_mse", "kl"):
        if figures[other][name] > 0:
            ratio = {"name": f"{name}_ratio", "arm": arm, "against": other, "where": where}
            value = figures[arm][name] / figures[other][name]
            yield {**ratio, "value": value, "definition": RATIO.format(DEFINITIONS[name])}


def _neighbour(figures: Mapping[str, Mapping[str, float]], arm: str, others: Sequence[str]) -> str | None:
    bits = {name: figures[name]["stored_bits_per_value"] for name in (arm, *others)}
    able = [name for name in others if -EQUAL <= bits[name] - bits[arm] <= WITHIN]
    return min(able, key=bits.__getitem__, default=None)


def verdicts(figures: Mapping[str, Mapping[str, float]], arms: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield for each affine cache and each lattice whether the lattice errs less without storing more bits."""
    names = [arm["name"] for arm in arms if arm["role"] == "candidate"]
    kinds = sorted({kind_of(name) for name in names} - {AFFINE})
    for affine, kind in itertools.product([n for n in names if kind_of(n) == AFFINE], kinds):
        limit = figures[affine]["stored_bits_per_value"] + EQUAL
        able = [n for n in names if kind_of(n) == kind and figures[n]["stored_bits_per_value"] <= limit]
        if not able:
            yield f"{kind} against {affine}: no verdict, every {kind} here stores more bits"
            continue
        best = min(able, key=lambda name: figures[name]["kl"])
        mse, kl = (figures[best][name] / figures[affine][name] for name in ("rel_mse", "kl"))
        word = "better" if mse < 1 and kl < 1 else "worse" if mse >= 1 and kl >= 1 else "mixed"
        bits = [figures[name]["stored_bits_per_value"] for name in (best, affine)]
        yield (
            f"{best} ({bits[0]:.2f} bits) against {affine} ({bits[1]:.2f}{_difference(*bits)}): {word}, "
            f"{mse:.2f} times its error and {kl:.2f} times its KL"
        )


def _difference(bits: float, other: float) -> str:
    apart = abs(other - bits)
    return f", {apart:.2f} {'more' if other > bits else 'fewer'}" if apart > EQUAL else ""
