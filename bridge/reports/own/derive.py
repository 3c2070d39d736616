"""Derives a claim's value from samples, and says why that is not possible."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from bridge.reports.own.model import OwnClaim
from bridge.reports.own.pointer import MISSING, value_at

# A written value may differ from the derived one by this share of it: other languages round differently.
TOLERANCE = 1e-9
# Larger whole numbers are not exact in most languages.
_EXACT = 2**53
_EPSILON = 2.0**-52

Fault = tuple[str, str]


class Derived(NamedTuple):
    """A claim's written value, and the number of samples of each arm that give it; 0 without samples."""

    value: float
    samples: int


def derive(claim: OwnClaim, report: object) -> Derived | Fault:
    """Return a claim's value if the samples give that value, otherwise a code and a message with the reason."""
    value = _number(value_at(report, claim.pointer), f"{claim.name} at {claim.pointer}")
    if isinstance(value, tuple):
        return value
    arms: list[Sequence[float]] = []
    for pointer in filter(None, (claim.samples, claim.against)):
        samples = _samples(claim, report, pointer)
        if isinstance(samples, tuple):
            return samples
        arms.append(samples)
    fault = _difference(claim, value, arms) if arms else None
    return fault or Derived(value, min(map(len, arms), default=0))


def _difference(claim: OwnClaim, value: float, arms: list[Sequence[float]]) -> Fault | None:
    name, derived = claim.name, _combine(claim, arms)
    if derived is None:
        return "RATIO_BY_ZERO", f"{name}: the median of {claim.against} is 0, so there is no ratio"
    if not math.isfinite(derived):
        return "NOT_A_NUMBER", f"{name}: the {claim.derive} of the samples is too large for a number"
    # Where samples of both signs cancel, a plain loop's mean may be off by more than the tolerance, but not by more.
    rounding = math.fsum(abs(each) * _EPSILON for each in arms[0]) if claim.derive == "mean" else 0.0
    if not abs(value - derived) <= TOLERANCE * abs(derived) + rounding:
        message = f"{name} is {value:.15g}; the {claim.derive} of the samples is {derived:.15g}"
        return "CLAIM_NOT_FROM_SAMPLES", message
    return None


def _combine(claim: OwnClaim, arms: list[Sequence[float]]) -> float | None:
    if claim.derive == "mean":
        return _mean(arms[0])
    medians = [_median(arm) for arm in arms]
    if claim.derive == "ratio":
        return medians[0] / medians[1] if medians[1] else None
    return medians[0]


def _median(values: Sequence[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    if len(ordered) % 2:
        return ordered[middle]
    low, high = ordered[middle - 1 : middle + 1]
    both = low + high
    # Halves are added if the sum is too large.
    return both / 2 if math.isfinite(both) else low / 2 + high / 2


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def _samples(claim: OwnClaim, report: object, pointer: str) -> Sequence[float] | Fault:
    samples = value_at(report, pointer)
    if samples is MISSING:
        return "CLAIM_MISSING", f"{claim.name}: there are no samples at {pointer}"
    if not isinstance(samples, list):
        return "NOT_A_NUMBER", f"{claim.name}: {pointer} is {_type(samples)}, not a list of numbers"
    if len(samples) < claim.min_samples:
        return (
            "TOO_FEW_SAMPLES",
            f"{claim.name}: {pointer} has {len(samples)} samples of at least {claim.min_samples}",
        )
    numbers: list[float] = []
    for i, item in enumerate(samples):
        number = _number(item, f"{claim.name}: sample {pointer}/{i}")
        if isinstance(number, tuple):
            return number
        numbers.append(number)
    return numbers


def _number(value: object, where: str) -> float | Fault:
    if value is MISSING:
        return "CLAIM_MISSING", f"{where} is missing"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "NOT_A_NUMBER", f"{where} is {_type(value)}, not a number"
    if isinstance(value, int) and abs(value) > _EXACT:
        return "NOT_A_NUMBER", f"{where} is a whole number above 2^53, which most programs round"
    if not math.isfinite(value):
        return "NOT_A_NUMBER", f"{where} is not a finite number"
    return float(value)


def _type(value: object) -> str:
    names = {bool: "a boolean", str: "a text", list: "a list", dict: "an object", type(None): "null"}
    return names.get(type(value), "a number")
