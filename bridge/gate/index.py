"""Defines a check, and the index of a report that all checks query."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

from bridge.gate.deadline import Deadline, DeadlineList
from bridge.reports.cluster import RankRow, ReduceRow
from bridge.reports.counted import CountedRows
from bridge.reports.models import Report
from bridge.reports.parts import Arm, Claim, Prompt, Workload
from bridge.reports.rows import Decode, QuantRow, SolutionRow

T = TypeVar("T")


class ReportIndex:
    """Answers the queries of checks about a report. Warm-up rows are left out everywhere.

    Queries, and loops over the report's parts, raise TooLongError once the deadline has passed.

    Attributes:
        report: the typed report.
        data: the same report as parsed JSON.
    """

    def __init__(self, report: Report, data: Mapping[str, Any], deadline: Deadline | None = None) -> None:
        self.report: Any = report
        self.deadline = deadline or Deadline()
        self.data = {name: self._timed(value) for name, value in data.items()}
        self._cache: dict[tuple[object, ...], Any] = {}
        self.claims: list[Claim] = self._timed(report.claims)
        self.rows: list[Any] = self._timed(getattr(report, "rows", []))
        self.all_arms: list[Arm] = self._timed(getattr(report, "arms", []))
        self.all_prompts: list[Prompt] = self._timed(getattr(report, "prompts", []))
        self.workloads: dict[str, Workload] = getattr(report, "workloads", {})
        self.kind = str(report.kind)  # type: ignore[attr-defined]

    def option(self, name: str) -> Any:
        """Return an option of the run; None if the configuration does not name it."""
        config = getattr(self.report, "config", None)
        return self._timed(config.get(name) if isinstance(config, dict) else getattr(config, name, None))

    def _timed(self, value: Any) -> Any:
        return DeadlineList(value, self.deadline) if isinstance(value, list) else value

    @cached_property
    def arms(self) -> dict[str, Arm]:
        """The arms by name."""
        return {arm.name: arm for arm in self.all_arms}

    @cached_property
    def prompts(self) -> dict[str, Prompt]:
        """The prompts by id."""
        return {prompt.id: prompt for prompt in self.all_prompts}

    def arms_of(self, *roles: str) -> list[Arm]:
        """Return the arms that have one of these roles."""
        return self._timed([arm for arm in self.all_arms if arm.role in roles])  # type: ignore[no-any-return]

    def claims_of(self, *names: str) -> Iterator[Claim]:
        """Yield the claims of these names whose arms are described."""
        for claim in self.claims:
            if claim.name in names and all(arm in self.arms for arm in (claim.arm, claim.against) if arm):
                yield claim

    def once(self, key: tuple[object, ...], compute: Callable[[], T]) -> T:
        """Return the value of a key. It is computed when the key is first asked for, and then kept."""
        if key not in self._cache:
            self.deadline.check()
            self._cache[key] = compute()
        return cast("T", self._cache[key])

    @cached_property
    def counted(self) -> CountedRows[Any]:
        """The counted rows, of the kinds that belong to an arm and a prompt."""
        return CountedRows(row for row in self.rows if isinstance(row, Decode | QuantRow | SolutionRow))

    def rows_of(self, arm: str | None, prompt: str | None = None) -> list[Any]:
        """Return an arm's counted rows on a prompt, or on all."""
        return self._timed(self.counted.of(arm, prompt))  # type: ignore[no-any-return]

    def oracle_of(self, row: Decode) -> Decode | None:
        """Return the oracle's row for the same prompt and repeat, or its first one for the prompt."""
        oracle = self.arms[row.arm].oracle if row.arm in self.arms else None
        rows = self.counted.of(oracle, row.prompt)
        by_repeat = self.once(
            ("oracle", oracle, row.prompt), lambda: {other.repeat: other for other in reversed(rows)}
        )
        return by_repeat.get(row.repeat, rows[0] if rows else None)

    def finds(self, arm: str | None, prompt: str) -> bool:
        """Return whether every repeat of an arm on a prompt holds the expected answer."""
        wanted = self.prompts[prompt].expected
        return bool(wanted) and self.once(
            ("finds", arm, prompt), lambda: all(str(wanted) in row.text for row in self.rows_of(arm, prompt))
        )

    def recall(self, arm: str) -> float:
        """Return the share of prompts on which an arm finds the answer; NaN without any."""
        hits = [
            self.finds(arm, prompt) for prompt in self.counted.by_arm.get(arm, {}) if prompt in self.prompts
        ]
        return sum(hits) / len(hits) if hits else math.nan

    def drafts(self, arm: str) -> bool:
        """Return whether an arm drafted."""
        return self.once(("drafts", arm), lambda: any(sum(row.drafted or []) for row in self.rows_of(arm)))


def seconds_of(row: Any) -> float:
    """Return the seconds that a row took, its prefill included; 0 if its kind is not timed.

    Ranks work at the same time: the slowest one's time is that of a sum, and rank 0's is that of an answer.
    """
    if isinstance(row, ReduceRow):
        return max(row.rank_s)
    if isinstance(row, RankRow):
        return 0.0 if row.rank else row.prefill_s + row.decode_s
    return float(getattr(row, "e2e_s", getattr(row, "seconds", 0.0)))


Judge = Callable[[ReportIndex], Iterator[str]]


@dataclass(frozen=True)
class Check:
    """One check."""

    code: str  # of its violations; `bridge.gate.codes` says why each matters and what to change
    kinds: tuple[str, ...]  # the kinds of report that it judges
    judge: Judge = field(repr=False)  # yields a message for each place where a report breaks it

    @property
    def name(self) -> str:
        """The name of the function: unique within its module."""
        return self.judge.__name__

    @property
    def statement(self) -> str:
        """What must hold, in words."""
        return (self.judge.__doc__ or "").partition("\n")[0]


def check(code: str, *kinds: str) -> Callable[[Judge], Check]:
    """Return a decorator that turns a function into a check. Write the code out, so that a search finds it."""
    return lambda judge: Check(code, kinds, judge)
