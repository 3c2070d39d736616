"""The part of a report page about decoding: speed and acceptance by arm and prompt, recall by prompt length."""

from collections.abc import Callable, Iterable, Mapping

from bridge.common.drawing.plot import Plot, Point, Series
from bridge.common.drawing.text import Cell, size
from bridge.common.drawing.text import number as shown
from bridge.reports.counted import CountedRows, counted, decode_rate
from bridge.reports.statistics import exact_interval
from bridge.reports.views import rounds
from bridge.reports.views.loose import (
    Row,
    items,
    lines,
    mapping,
    median,
    number,
    spread,
    text,
)
from bridge.reports.views.model import Table
from bridge.reports.views.rows import MAX_COLUMNS, without_empty

# With more lines than this, the plot shows workloads instead of prompts.
_MAX_PROMPTS = 24

# Older reports compare speed with mlx-lm only.
_OVER = {"plain_speedup": "over plain loops", "decode_speedup": "over mlx-lm"}
_WORST = {"worst_plain_speedup": "worst", "worst_speedup": "worst"}

_EXACT = "The lines are exact 95 % intervals of so many prompts."


def decode_view(report: Row) -> tuple[list[Table], list[Plot]]:
    """Return the tables of arms and of their rounds, and plots of their speed."""
    return arms_tables(report), speed_plots(report)


def arms_tables(report: Row) -> list[Table]:
    """Return one line per arm: its role, and its figures over all of its rows; and tables of its rounds."""
    about = {text(arm.get("name")): arm for arm in items(report.get("arms"))}
    index = CountedRows(items(report.get("rows")))
    (over, speedups), (_, worst) = _claimed(report, _OVER), _claimed(report, _WORST)
    cells: list[tuple[Cell, ...]] = []
    for name in _by_arm(report):
        arm, rows = about.get(name, {}), index.of(name)
        rates = _collect(rows, decode_rate)
        cache_sizes = _collect(rows, lambda row: number(mapping(row.get("memory")).get("cache_bytes")))
        span = f"{shown(min(rates))} to {shown(max(rates))}" if rates else None
        oracle = text(arm.get("oracle"))
        cells.append((
            name, text(arm.get("role")), _cache(arm, rows), len(rows), median(index.medians(name).values()),
            speedups.get(name), worst.get(name), span, size(max(cache_sizes)) if cache_sizes else None,
            _share(index.identical(name, oracle)) if oracle else None,
        ))  # fmt: skip
    columns = (
        "arm", "role", "cache", "rows", "median tok/s", over, "worst", "all rows", "cache bytes", "same tokens",
    )  # fmt: skip
    note = "Decoded tokens a second, prefill excepted: the median over prompts of the median over repeats."
    note += f" {over.capitalize()}: the claimed speed-up, a median over prompts." if speedups else ""
    same = " Same tokens: prompts on which each repeat gives those of the arm's oracle."
    by_arm = [without_empty(Table("By arm", columns, tuple(cells), note + same))] if cells else []
    return by_arm + rounds.tables(report, _by_arm(report))


def speed_plots(report: Row) -> list[Plot]:
    """Return plots of tokens per second and tau by prompt, and of tokens per second in the order of the run."""
    plots = _by_prompt(report, "Decoding speed", "tokens a second", decode_rate)
    plots += _by_prompt(report, "Tokens a round (tau)", "tokens", lambda row: rounds.tau([row]))
    order: dict[str, list[Point]] = {name: [] for name in _by_arm(report)}
    for index, row in enumerate(items(report.get("rows")), start=1):
        if (speed := decode_rate(row)) is not None:
            label = f"{row.get('arm')} on {row.get('prompt')}: {shown(speed)}"
            order.setdefault(str(row.get("arm", "")), []).append(Point(index, speed, label=label))
    series = tuple(Series(name, tuple(points)) for name, points in order.items() if points)
    if series:
        note = "A machine that heats up or is disturbed shows here."
        plots.append(Plot("In the order of the run", "row", "tokens a second", series, note=note))
    return plots


def recall_view(report: Row) -> tuple[list[Table], list[Plot]]:
    """Return tables: for each arm, how many prompts of each length it answered with the hidden text; and the arms."""
    prompts = {text(p.get("id")): p for p in items(report.get("prompts")) if text(p.get("expected"))}
    hits_by_arm: dict[str, dict[float, list[bool]]] = {}
    for arm, mine in _by_arm(report).items():
        for prompt, rows in mine.items():
            length = number(prompts.get(prompt, {}).get("length"))
            if length is not None:
                wanted = text(prompts[prompt].get("expected"))
                hit = all(wanted in text(row.get("text")) for row in rows)
                hits_by_arm.setdefault(arm, {}).setdefault(length, []).append(hit)
    lengths = sorted({length for by in hits_by_arm.values() for length in by})[:MAX_COLUMNS]
    if not lengths:
        return arms_tables(report), []
    cells = tuple((arm, *(_share(by.get(length)) for length in lengths)) for arm, by in hits_by_arm.items())
    columns = ("arm", *(f"{length:g} tokens" for length in lengths))
    note = "In every repeat, by length of the prompt."
    table = Table("Prompts whose answer holds what was hidden", columns, cells, note)
    series = lines({
        arm: [_recalled(length, hits) for length, hits in by.items()] for arm, by in hits_by_arm.items()
    })  # fmt: skip
    plot = Plot("Recall", "tokens in the prompt", "share of prompts", series, note=_EXACT)
    return [table, *arms_tables(report)], [plot]


def _by_arm(report: Row) -> dict[str, dict[str, list[Row]]]:
    """Return the counted rows by arm and prompt, in the order in which the report describes the arms."""
    by_arm = CountedRows(items(report.get("rows"))).by_arm
    named = [text(arm.get("name")) for arm in items(report.get("arms"))]
    return {name: by_arm[name] for name in dict.fromkeys((*named, *by_arm)) if name in by_arm}


def _cache(arm: Row, rows: Iterable[Row]) -> str:
    """Return the name of an arm's cache, and how many layers it leaves raw."""
    raw = mapping(arm.get("options")).get("raw_layers")
    entries = (items(mapping(row.get("memory")).get("layers")) for row in rows)
    layers = max((sum(number(layer.get("count")) or 1 for layer in some) for some in entries), default=0)
    unpacked = f", {len(raw)} of {layers:g} layers raw" if isinstance(raw, list) and raw and layers else ""
    return text(arm.get("cache")) + unpacked


def _claimed(report: Row, over: Mapping[str, str]) -> tuple[str, dict[str, Cell]]:
    """Return the first speed-up that the report claims for arms over all prompts, and its baseline."""
    whole = [
        claim for claim in items(report.get("claims")) if not mapping(claim.get("where")).get("workload")
    ]
    for name, words in over.items():
        speedups = {text(c.get("arm")): number(c.get("value")) for c in whole if c.get("name") == name}
        if speedups:
            return words, {arm: f"{value:.2f}x" for arm, value in speedups.items() if value is not None}
    return [*over.values()][-1], {}


def _collect(rows: Iterable[Row], of: Callable[[Row], float | None]) -> list[float]:
    return [value for row in rows if (value := of(row)) is not None]


def _by_prompt(report: Row, title: str, value: str, of: Callable[[Row], float | None]) -> list[Plot]:
    """Return median, minimum and maximum of each arm by prompt; if there are many prompts, by workload."""
    workloads = {text(p.get("id")): text(p.get("workload")) for p in items(report.get("prompts"))}
    by_arm = _by_arm(report)
    prompts = dict.fromkeys(str(row.get("prompt") or "") for row in counted(items(report.get("rows"))))
    by_workload = len(prompts) > _MAX_PROMPTS
    group_of = {prompt: workloads.get(prompt, "") if by_workload else prompt for prompt in prompts}
    names = list(dict.fromkeys(group_of.values()))[:_MAX_PROMPTS]
    points: dict[str, list[Point]] = {}
    for arm, mine in by_arm.items():
        values: dict[str, list[float]] = {}
        for prompt, rows in mine.items():
            values.setdefault(group_of[prompt], []).extend(_collect(rows, of))
        points[arm] = [
            spread(index, values[name], f"{arm} on {name}")
            for index, name in enumerate(names)
            if values.get(name)
        ]
    series = tuple(Series(arm, tuple(arm_points)) for arm, arm_points in points.items() if arm_points)
    noun = "workload" if by_workload else "prompt"
    note = f"The median of each {noun}; the line spans its rows."
    return [Plot(title, noun, value, series, categories=tuple(names), note=note)] if series else []


def _share(hits: list[bool] | None) -> Cell:
    return f"{sum(hits)} of {len(hits)}" if hits else None


def _recalled(length: float, hits: list[bool]) -> Point:
    low, high = exact_interval(sum(hits), len(hits))
    return Point(length, sum(hits) / len(hits), low, high, f"{sum(hits)} of {len(hits)} at {length:g} tokens")
