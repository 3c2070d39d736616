"""Collects the figures of the newest answers in the background, because verifying each answer takes time."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from bridge.bus.wire import State
from bridge.common.cli.output import say
from bridge.common.drawing.plot import Plot, Point
from bridge.common.drawing.plot import Series as Drawn
from bridge.common.drawing.text import interval, number
from bridge.errors import as_kakeya_error
from bridge.show.alarm import Change
from bridge.show.trends import Figure, Series, Trend, Value, group_into_trends, numeric_figures
from bridge.web.runs import Runs
from bridge.web.snapshot import Row, Snapshot

# At most this many of the newest answers are read.
ANSWERS = 300
# At most this many figures of one answer are kept, claimed ones first.
MAX_FIGURES = 400
# A change counts as news for this many runs.
_NEWS = 10
_PAUSE_S = 0.5


@dataclass(frozen=True)
class Alarm:
    """A change of a figure, and whether it is still news."""

    series: Series
    change: Change

    @property
    def is_news(self) -> bool:
        """Return whether the change was detected in the last few runs."""
        return len(self.series.values) - self.change.shown_at <= _NEWS

    @property
    def first(self) -> Value:
        """The first run after the change."""
        return self.series.values[self.change.at]


@dataclass(frozen=True)
class Shown:
    """A trend for display."""

    trend: Trend
    alarms: tuple[Alarm, ...]
    plot: Plot

    @classmethod
    def of(cls, trend: Trend) -> "Shown":
        """Return a trend with its alarms and its plot."""
        several = trend.series()
        alarms = tuple(Alarm(series, change) for series in several for change in series.changes())
        order = {id(value): position for position, value in enumerate(trend.values, start=1)}
        drawn = tuple(
            Drawn(series.name, tuple(_point(order[id(value)], value) for value in series.values), "line")
            for series in several
        )
        return cls(trend, alarms, Plot(trend.about or trend.name, "run", trend.name, drawn))

    @property
    def last(self) -> Value | None:
        """The newest value that counts."""
        return next((value for value in reversed(self.trend.values) if value.counts), None)

    @property
    def left_out(self) -> int:
        """How many values do not count."""
        return sum(not value.counts for value in self.trend.values)

    @property
    def is_news(self) -> bool:
        """Return whether one of the alarms is news."""
        return any(alarm.is_news for alarm in self.alarms)


class Figures:
    """The figures of the newest answers, as far as they have been read. One thread reads; any thread may ask."""

    def __init__(self, runs: Runs, snapshot: Callable[[], Snapshot]) -> None:
        self._runs = runs
        self._snapshot = snapshot
        self._read: dict[tuple[str, str], tuple[Figure, ...]] = {}
        self.version = 0
        # How many trends of claimed figures have an alarm that is news.
        self.alarms = 0

    def progress(self) -> tuple[int, int]:
        """Return how many answers have been read, and how many there are."""
        wanted = self._wanted()
        return sum((row.branch, row.request_branch.tip) in self._read for row in wanted), len(wanted)

    def trends(self, name: str = "", preset: str = "") -> list[Shown]:
        """Return the trends of matching figures, those with news first."""
        wanted = [
            figure for row in reversed(self._wanted())
            for figure in self._read.get((row.branch, row.request_branch.tip), ())
            if figure.fits(name or None) and preset in ("", figure.preset)
        ]  # fmt: skip
        return sorted(
            (Shown.of(trend) for trend in group_into_trends(wanted)), key=lambda figure: not figure.is_news
        )

    def step(self) -> bool:
        """Read one more answer. Returns whether there was one."""
        wanted = self._wanted()
        keys = {(row.branch, row.request_branch.tip) for row in wanted}
        current = {key: figures for key, figures in self._read.items() if key in keys}
        row = next((row for row in wanted if (row.branch, row.request_branch.tip) not in current), None)
        if row is None:
            return False
        # Replace the dictionary instead of changing it: pages may be reading the old one.
        self._read = {**current, (row.branch, row.request_branch.tip): self._figures(row)}
        self.alarms = sum(trend.is_news for trend in self.trends())
        self.version += 1
        return True

    def run(self, stop: threading.Event) -> None:
        """Read answers until ``stop`` is set."""
        while not stop.is_set():
            if not self.step():
                stop.wait(_PAUSE_S)

    def _wanted(self) -> list[Row]:
        """Return the answers that may have figures, the newest first."""
        may = (State.SUCCEEDED, State.GATE_REJECTED, State.GATE_INCOMPLETE)
        return [row for row in self._snapshot().ended if row.state in may][:ANSWERS]

    def _figures(self, row: Row) -> tuple[Figure, ...]:
        try:
            source = self._runs.source(row.request_branch)
        except Exception as error:  # noqa: BLE001 - the other answers are still to be read
            say(f"{row.branch} has no trends: {as_kakeya_error(error).message}")
            return ()
        figures = numeric_figures(source) if source else []
        return tuple(sorted(figures, key=lambda figure: not figure.stated)[:MAX_FIGURES])


def _point(position: int, value: Value) -> Point:
    pair = (value.low, value.high) if value.low is not None and value.high is not None else None
    label = f"{number(value.value)}" + (f" ({interval(pair)})" if pair else "")
    return Point(position, value.value, value.low, value.high, f"{label}, {value.at}, {value.branch}")
