"""The axis of a plot: maps values to pixels, and chooses the labelled values."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

_ROOM = 0.05
_PLAIN = (1e-3, 1e6)
_DECADES_WITH_STEPS = 2.0
# On a logarithmic axis with a smaller range, linear steps are used as labels.
_WIDE = 5.0


@dataclass(frozen=True)
class Axis:
    """A scale from ``low`` to ``high`` onto pixels from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def position(self, value: float) -> float:
        """Return the pixel of a value, to a tenth."""
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return round(self.start + (at - low) / (high - low) * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Return about six round values to label."""
        wide = self.log and self.high > _WIDE * self.low
        ticks = _decades(self.low, self.high) if wide else _steps(self.low, self.high)
        return [tick for tick in ticks if self.low <= tick <= self.high]


def written(tick: float) -> str:
    """Return the label of a tick."""
    if tick and not _PLAIN[0] <= abs(tick) < _PLAIN[1]:
        digits, _, power = f"{tick:.3e}".partition("e")
        return f"{float(digits):g}e{int(power)}"
    return f"{tick:g}"


def axis(
    values: Iterable[float], start: float, end: float, *, log: bool = False, from_zero: bool = False
) -> Axis:
    """Return an axis for all values, with a small margin. A logarithmic axis needs positive values."""
    numbers = list(values)
    low, high = min(numbers), max(numbers)
    if log:
        room = (math.log10(high / low) if low > 0 else 0) * _ROOM or 0.5
        return Axis(low / 10**room, high * 10**room, start, end, log=True)
    if from_zero and low >= 0:
        return Axis(0.0, high * (1 + _ROOM) or 1.0, start, end)
    room = (high - low) * _ROOM or abs(high) * _ROOM or 1.0
    return Axis(low - room, high + room, start, end)


def _steps(low: float, high: float, about: int = 8) -> list[float]:
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step)
    return [round(i * step, 12) if step > 1e-9 else i * step for i in range(first, first + 2 * about)]  # noqa: PLR2004


def _decades(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, (last - first) // 6)
    few = math.log10(high / low) < _DECADES_WITH_STEPS
    factors = (1, 2, 5) if few else (1,)
    return [factor * 10.0**power for power in range(first, last + 1, every) for factor in factors]
