"""Which rows of a report count, their index by arm and prompt, and their rate: the same for claims, gate and views."""

import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from bridge.reports.parts import HUGE

Row = TypeVar("Row")


def field_of(row: Any, name: str) -> Any:
    """Return a field of a row, which is a JSON object or a typed model; None if the row lacks the field."""
    return row.get(name) if isinstance(row, dict) else getattr(row, name, None)


def counted(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows that count: warm-up and profiled runs do not."""
    return (row for row in rows if not field_of(row, "warmup"))


def decode_rate(row: Any) -> float | None:
    """Return decoded tokens per second, without the first token; None if there is no other token, or no number."""
    tokens, seconds = field_of(row, "decode_tokens"), field_of(row, "decode_s")
    numbers = (value for value in (tokens, seconds) if type(value) in (int, float) and 0 < value < HUGE)
    return tokens / seconds if len([*numbers]) == 2 else None  # noqa: PLR2004 - both


class CountedRows(Generic[Row]):
    """Counted rows by arm and prompt, in the order in which they ran."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.by_arm: dict[str, dict[str, list[Row]]] = {}
        for row in counted(rows):
            arm, prompt = (str(field_of(row, name) or "") for name in ("arm", "prompt"))
            self.by_arm.setdefault(arm, {}).setdefault(prompt, []).append(row)
        self._medians: dict[tuple[str, Callable[[Row], float | None]], dict[str, float]] = {}

    def of(self, arm: str | None, prompt: str | None = None) -> list[Row]:
        """Return the rows of an arm on a prompt, or on all."""
        by_prompt = self.by_arm.get(arm or "", {})
        return (
            [row for rows in by_prompt.values() for row in rows]
            if prompt is None
            else by_prompt.get(prompt, [])
        )

    def medians(self, arm: str, rate: Callable[[Row], float | None] = decode_rate) -> dict[str, float]:
        """Return the median over repeats of a figure, for each prompt on which every row has the figure."""
        if (arm, rate) not in self._medians:
            by_prompt = self.by_arm.get(arm, {})
            rates = {
                prompt: [value for value in map(rate, rows) if value is not None]
                for prompt, rows in by_prompt.items()
            }
            self._medians[arm, rate] = {
                prompt: statistics.median(some)
                for prompt, some in rates.items()
                if len(some) == len(by_prompt[prompt])
            }
        return self._medians[arm, rate]

    def ratios(
        self, arm: str, against: str, rate: Callable[[Row], float | None] = decode_rate
    ) -> list[float]:
        """Return the ratio of two arms' figures, for each prompt on which both have one."""
        ours, theirs = self.medians(arm, rate), self.medians(against, rate)
        return [ours[prompt] / theirs[prompt] for prompt in ours if theirs.get(prompt)]

    def identical(self, arm: str, oracle: str) -> list[bool]:
        """Return for each prompt whether every repeat gave the oracle's tokens."""
        theirs = self.by_arm.get(oracle, {})
        return [
            [field_of(row, "tokens") for row in rows]
            == [field_of(row, "tokens") for row in theirs.get(prompt, ())]
            for prompt, rows in self.by_arm.get(arm, {}).items()
        ]
