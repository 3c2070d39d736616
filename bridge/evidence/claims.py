"""Claims, taken again from the rows: each name is one statistic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bridge.evidence.kinds import Parity, VerifyL
from bridge.evidence.parts import Claim
from bridge.evidence.stats import exact_interval, median
from bridge.evidence.view import View, where_of


@dataclass(frozen=True)
class Figure:
    """What the rows give: NaN where they give nothing. `interval` is None where none is defined."""

    value: float
    interval: tuple[float, float] | None = None


def figure(view: View, claim: Claim) -> Figure:
    """Take a claim again from the rows of its report."""
    about = (claim.name, claim.arm, claim.against, where_of(claim))
    return view.once(("figure", *about), lambda: _figure(view, claim))


def _figure(view: View, claim: Claim) -> Figure:
    if isinstance(view.report, VerifyL):
        return Figure(_verify(view, claim))
    if isinstance(view.report, Parity):
        return _agreement(view.report)
    if claim.name in QUANTISED:
        return Figure(QUANTISED[claim.name](view, claim))
    return DECODED[claim.name](view, claim)


def _tok_s(view: View, claim: Claim) -> Figure:
    return _middle(view.rate(claim.arm, prompt) for prompt in view.common(claim))


def quotients(view: View, claim: Claim) -> list[float]:
    """Return the quotient of two arms' rates for each prompt of a claim; NaN where there is none."""
    of = view.e2e_rate if claim.name == "e2e_speedup" else view.rate
    return [quotient(of(claim.arm, prompt), of(claim.against, prompt)) for prompt in view.common(claim)]


def quotient(a: float, b: float) -> float:
    """Return a / b, NaN where b is nothing."""
    return a / b if b else math.nan


def _speedup(view: View, claim: Claim) -> Figure:
    return _middle(quotients(view, claim))


def _worst(view: View, claim: Claim) -> Figure:
    found = quotients(view, claim)
    return Figure(min(found, default=math.nan) if not any(map(math.isnan, found)) else math.nan)


def _middle(values: Iterable[float]) -> Figure:
    found = list(values)
    return Figure(median(found), (min(found), max(found)) if found else None)


def _accept_length(view: View, claim: Claim) -> Figure:
    rows = [row for prompt in view.common(claim) for row in view.decodes(claim.arm, prompt)]
    commits = [commit for row in rows for commit in row.commits or []]
    return Figure(quotient(sum(commits), len(commits)))


def _accept_rate(view: View, claim: Claim) -> Figure:
    rows = [row for prompt in view.common(claim) for row in view.decodes(claim.arm, prompt)]
    drafted = sum(sum(row.drafted or []) for row in rows)
    return Figure(quotient(sum(sum(row.accepted or []) for row in rows), drafted))


def _identical(view: View, claim: Claim) -> Figure:
    same = []
    for prompt in view.common(claim):
        pairs = [(row, view.oracle_of(row)) for row in view.decodes(claim.arm, prompt)]
        same.append(all(oracle is not None and row.tokens == oracle.tokens for row, oracle in pairs))
    return _share(same)


def _recall(view: View, claim: Claim) -> Figure:
    return _share([view.finds(claim.arm, prompt) for prompt in view.common(claim)])


def _recall_delta(view: View, claim: Claim) -> Figure:
    prompts = view.common(claim)
    return Figure(view.recall(claim.arm or "", prompts) - view.recall(claim.against or "", prompts))


def _share(hits: list[bool]) -> Figure:
    if not hits:
        return Figure(math.nan)
    return Figure(sum(hits) / len(hits), exact_interval(sum(hits), len(hits)))


def _cache_bytes(view: View, claim: Claim) -> Figure:
    held = [
        row.memory.cache_bytes if row.memory else math.nan
        for prompt in view.common(claim)
        for row in view.decodes(claim.arm, prompt)
    ]
    return Figure(max(held, default=math.nan) if not any(map(math.isnan, held)) else math.nan)


def _memory_saving(view: View, claim: Claim) -> Figure:
    prompts = view.common(claim)
    ratios = [quotient(view.memory(claim.arm, p), view.memory(claim.against, p)) for p in prompts]
    return Figure(1 - median(ratios))


def stored_bits(view: View, arm: str | None, prompts: list[str]) -> float:
    """Return the stored bits a value, all prompts together."""
    rows = [row for prompt in prompts for row in view.quants(arm, prompt)]
    return quotient(8 * sum(row.memory.cache_bytes for row in rows), sum(row.n_values for row in rows))


def _mean_of(top: str, bottom: str) -> Callable[[View, str | None, list[str]], float]:
    def take(view: View, arm: str | None, prompts: list[str]) -> float:
        rows = [row for prompt in prompts for row in view.quants(arm, prompt)]
        return quotient(sum(getattr(row, top) for row in rows), sum(getattr(row, bottom) for row in rows))

    return take


_rel_mse = _mean_of("sum_squared_error", "sum_squares")
_kl = _mean_of("sum_kl", "n_positions")
_same_top = _mean_of("same_top", "n_positions")
_nll = _mean_of("sum_nll", "n_positions")


def _perplexity(view: View, claim: Claim) -> float:
    mean = _nll(view, claim.arm, view.common(claim))
    return math.exp(mean) if mean < 700 else math.nan  # noqa: PLR2004 - beyond a float's range


def _ratio(of: Callable[[View, str | None, list[str]], float]) -> Callable[[View, Claim], float]:
    def take(view: View, claim: Claim) -> float:
        prompts = view.common(claim)
        return quotient(of(view, claim.arm, prompts), of(view, claim.against, prompts))

    return take


def _verify(view: View, claim: Claim) -> float:
    """Return median milliseconds, or their quotient over those of one token, at the claim's context."""
    context = claim.where.context

    def index() -> dict[tuple[int, int], list[float]]:
        found: dict[tuple[int, int], list[float]] = {}
        for row in view.rows:
            if not row.warmup:
                found.setdefault((row.length, row.context), []).append(row.seconds)
        return found

    def seconds(length: int | None) -> float:
        return median(view.once(("passes",), index).get((length or 0, context or 0), []))

    took = seconds(claim.where.length)
    return 1000 * took if claim.name == "verify_ms" else quotient(took, seconds(1))


def _agreement(report: Parity) -> Figure:
    pairs = [a == b for row in report.rows for a, b in zip(row.reference, row.candidate, strict=False)]
    return _share(pairs)


DECODED: dict[str, Callable[[View, Claim], Figure]] = {
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
}
QUANTISED: dict[str, Callable[[View, Claim], float]] = {
    "stored_bits_per_value": lambda view, claim: stored_bits(view, claim.arm, view.common(claim)),
    "rel_mse": lambda view, claim: _rel_mse(view, claim.arm, view.common(claim)),
    "kl": lambda view, claim: _kl(view, claim.arm, view.common(claim)),
    "same_top": lambda view, claim: _same_top(view, claim.arm, view.common(claim)),
    "perplexity": _perplexity,
    "rel_mse_ratio": _ratio(_rel_mse),
    "kl_ratio": _ratio(_kl),
}
