"""The part of a report page about ``kakeya.compare``: both ratios, and each arm's runs in the order of rounds."""

from bridge.common.drawing.plot import Plot, Point, Series
from bridge.reports.claims.compare import ARMS
from bridge.reports.views.loose import Row, items, mapping, median, number, text
from bridge.reports.views.model import Table


def compare_view(report: Row) -> tuple[list[Table], list[Plot]]:
    """Return a table with one row an arm, and a plot of all runs."""
    config = mapping(report.get("config"))
    unit = text(config.get("unit")) or "?"
    values = {arm: [*_values(report, arm)] for arm in ARMS}
    rows = tuple(
        (arm, text(mapping(config.get(_tree_of(arm))).get("commit"))[:12], len(some), median(v for _, v in some),
         min((v for _, v in some), default=None), max((v for _, v in some), default=None))
        for arm, some in values.items()
    )  # fmt: skip
    columns = ("arm", "commit", "runs", f"median, {unit}", "least", "greatest")
    note = "`again` is the baseline once more: how far it is from the baseline is this machine's noise."
    series = tuple(
        Series(arm, tuple(Point(at, value) for at, value in some), "line") for arm, some in values.items()
    )
    better = f"{unit}, {text(config.get('better')) or '?'} is better"
    return [Table("What was compared", columns, rows, note)], [Plot("Each run", "round", better, series)]


def _tree_of(arm: str) -> str:
    return "baseline" if arm == "again" else arm


def _values(report: Row, arm: str) -> list[tuple[float, float]]:
    """Return an arm's counted runs, each at its place in time: the round, and its position as a sixth of it."""
    runs = [
        row for row in items(report.get("rows")) if row.get("arm") == arm and row.get("warmup") is not True
    ]
    points = []
    for row in runs:
        at, position, value = (number(row.get(name)) for name in ("round", "position", "value"))
        if at is not None and position is not None and value is not None:
            points.append((at + position / 6, value))
    return points
