"""Recomputes claims from the rows. Each claim name is one statistic."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bridge.evidence.kinds import Parity, VerifyL
from bridge.evidence.parts import Claim
from bridge.evidence.report_index import ReportIndex, where_of
from bridge.evidence.rows import Prediction
from bridge.evidence.stats import exact_interval, median


@dataclass(frozen=True)
class Figure:
    """A recomputed figure; NaN if the rows do not give it. ``interval`` is None if none is defined."""

    value: float
    interval: tuple[float, float] | None = None


def figure(index: ReportIndex, claim: Claim) -> Figure:
    """Recompute a claim from the rows of its report."""
    about = (claim.name, claim.arm, claim.against, where_of(claim))
    return index.once(("figure", *about), lambda: _figure(index, claim))


def _figure(index: ReportIndex, claim: Claim) -> Figure:
    if isinstance(index.report, VerifyL):
        return Figure(_verify(index, claim))
    if isinstance(index.report, Parity):
        return _agreement(index.report)
    if claim.name in QUANTISED:
        return Figure(QUANTISED[claim.name](index, claim))
    return DECODED[claim.name](index, claim)


def _tok_s(index: ReportIndex, claim: Claim) -> Figure:
    return _middle(index.rate(claim.arm, prompt) for prompt in index.common(claim))


def quotients(index: ReportIndex, claim: Claim) -> list[float]:
    """Return the ratio of two arms' rates for each prompt of a claim; NaN if there is none."""
    of = index.e2e_rate if claim.name == "e2e_speedup" else index.rate
    return [quotient(of(claim.arm, prompt), of(claim.against, prompt)) for prompt in index.common(claim)]


def quotient(a: float, b: float) -> float:
    """Return a / b; NaN if b is 0."""
    return a / b if b else math.nan


def _speedup(index: ReportIndex, claim: Claim) -> Figure:
    return _middle(quotients(index, claim))


def _worst(index: ReportIndex, claim: Claim) -> Figure:
    found = quotients(index, claim)
    return Figure(min(found, default=math.nan) if not any(map(math.isnan, found)) else math.nan)


def _middle(values: Iterable[float]) -> Figure:
    found = list(values)
    return Figure(median(found), (min(found), max(found)) if found else None)


def _accept_length(index: ReportIndex, claim: Claim) -> Figure:
    rows = [row for prompt in index.common(claim) for row in index.decodes(claim.arm, prompt)]
    commits = [commit for row in rows for commit in row.commits or []]
    return Figure(quotient(sum(commits), len(commits)))


def _accept_rate(index: ReportIndex, claim: Claim) -> Figure:
    rows = [row for prompt in index.common(claim) for row in index.decodes(claim.arm, prompt)]
    drafted = sum(sum(row.drafted or []) for row in rows)
    return Figure(quotient(sum(sum(row.accepted or []) for row in rows), drafted))


def _identical(index: ReportIndex, claim: Claim) -> Figure:
    same = []
    for prompt in index.common(claim):
        pairs = [(row, index.oracle_of(row)) for row in index.decodes(claim.arm, prompt)]
        same.append(all(oracle is not None and row.tokens == oracle.tokens for row, oracle in pairs))
    return _share(same)


def _recall(index: ReportIndex, claim: Claim) -> Figure:
    return _share([index.finds(claim.arm, prompt) for prompt in index.common(claim)])


def _recall_delta(index: ReportIndex, claim: Claim) -> Figure:
    prompts = index.common(claim)
    return Figure(index.recall(claim.arm or "", prompts) - index.recall(claim.against or "", prompts))


def _share(hits: list[bool]) -> Figure:
    if not hits:
        return Figure(math.nan)
    return Figure(sum(hits) / len(hits), exact_interval(sum(hits), len(hits)))


def _cache_bytes(index: ReportIndex, claim: Claim) -> Figure:
    held = [
        row.memory.cache_bytes if row.memory else math.nan
        for prompt in index.common(claim)
        for row in index.decodes(claim.arm, prompt)
    ]
    return Figure(max(held, default=math.nan) if not any(map(math.isnan, held)) else math.nan)


def _memory_saving(index: ReportIndex, claim: Claim) -> Figure:
    prompts = index.common(claim)
    ratios = [quotient(index.memory(claim.arm, p), index.memory(claim.against, p)) for p in prompts]
    return Figure(1 - median(ratios))


def stored_bits(index: ReportIndex, arm: str | None, prompts: list[str]) -> float:
    """Return the stored bits per value over all prompts."""
    rows = [row for prompt in prompts for row in index.quants(arm, prompt)]
    return quotient(8 * sum(row.memory.cache_bytes for row in rows), sum(row.n_values for row in rows))


def _mean_of(top: str, bottom: str) -> Callable[[ReportIndex, str | None, list[str]], float]:
    def take(index: ReportIndex, arm: str | None, prompts: list[str]) -> float:
        rows = [row for prompt in prompts for row in index.quants(arm, prompt)]
        return quotient(sum(getattr(row, top) for row in rows), sum(getattr(row, bottom) for row in rows))

    return take


_rel_mse = _mean_of("sum_squared_error", "sum_squares")
_kl = _mean_of("sum_kl", "n_positions")
_same_top = _mean_of("same_top", "n_positions")
_nll = _mean_of("sum_nll", "n_positions")


def _prompt_kl(index: ReportIndex, claim: Claim) -> Figure:
    """Return the mean over all positions, with the means of the least and of the greatest prompt."""
    asked = [[row.prediction for row in index.decodes(claim.arm, name)] for name in index.common(claim)]
    found = [[one for one in made if one is not None] for made in asked]
    means = [_mean_kl(made) for made in found if made]
    return Figure(_mean_kl(itertools.chain(*found)), (min(means), max(means)) if means else None)


def _prompt_kl_ratio(index: ReportIndex, claim: Claim) -> Figure:
    """Return the ratio of two arms' divergences, with those of the least and of the greatest prompt."""
    ratios = [
        quotient(mean_divergence(index, claim.arm, [name]), mean_divergence(index, claim.against, [name]))
        for name in index.common(claim)
    ]
    whole = quotient(
        *(mean_divergence(index, arm, index.common(claim)) for arm in (claim.arm, claim.against))
    )
    return Figure(whole, (min(ratios), max(ratios)) if ratios else None)


def mean_divergence(index: ReportIndex, arm: str | None, prompts: list[str]) -> float:
    """Return how far an arm moves predictions, over all positions of some prompts; NaN if its rows do not say."""
    found = (row.prediction for name in prompts for row in index.decodes(arm, name))
    return _mean_kl(one for one in found if one is not None)


def _mean_kl(made: Iterable[Prediction]) -> float:
    counted = [*made]
    return quotient(sum(one.sum_kl for one in counted), sum(one.n_positions for one in counted))


def _perplexity(index: ReportIndex, claim: Claim) -> float:
    mean = _nll(index, claim.arm, index.common(claim))
    return math.exp(mean) if mean < 700 else math.nan  # noqa: PLR2004 - beyond a float's range


def _ratio(
    of: Callable[[ReportIndex, str | None, list[str]], float],
) -> Callable[[ReportIndex, Claim], float]:
    def take(index: ReportIndex, claim: Claim) -> float:
        prompts = index.common(claim)
        return quotient(of(index, claim.arm, prompts), of(index, claim.against, prompts))

    return take


def _verify(index: ReportIndex, claim: Claim) -> float:
    """Return median milliseconds at the claim's context, or their ratio to a pass over one token."""
    context = claim.where.context

    def passes() -> dict[tuple[int, int], list[float]]:
        found: dict[tuple[int, int], list[float]] = {}
        for row in index.rows:
            if not row.warmup:
                found.setdefault((row.length, row.context), []).append(row.seconds)
        return found

    def seconds(length: int | None) -> float:
        return median(index.once(("passes",), passes).get((length or 0, context or 0), []))

    took = seconds(claim.where.length)
    return 1000 * took if claim.name == "verify_ms" else quotient(took, seconds(1))


def _agreement(report: Parity) -> Figure:
    pairs = [a == b for row in report.rows for a, b in zip(row.reference, row.candidate, strict=False)]
    return _share(pairs)


DECODED: dict[str, Callable[[ReportIndex, Claim], Figure]] = {
    "decode_tok_s": _tok_s,
    "decode_speedup": _speedup,
    "decode_ratio": _speedup,
    "e2e_speedup": _speedup,
    "worst_speedup": _worst,
    "accept_length": _accept_length,
    "accept_rate": _accept_rate,
    "identical_outputs": _identical,
    "recall": _recall,
    "recall_delta": _recall_delta,
    "cache_bytes": _cache_bytes,
    "memory_saving": _memory_saving,
    "prompt_kl": _prompt_kl,
    "prompt_kl_ratio": _prompt_kl_ratio,
}
QUANTISED: dict[str, Callable[[ReportIndex, Claim], float]] = {
    "stored_bits_per_value": lambda index, claim: stored_bits(index, claim.arm, index.common(claim)),
    "rel_mse": lambda index, claim: _rel_mse(index, claim.arm, index.common(claim)),
    "kl": lambda index, claim: _kl(index, claim.arm, index.common(claim)),
    "same_top": lambda index, claim: _same_top(index, claim.arm, index.common(claim)),
    "perplexity": _perplexity,
    "rel_mse_ratio": _ratio(_rel_mse),
    "kl_ratio": _ratio(_kl),
}
