"""The plots that stand beside reports as SVG files."""

from collections.abc import Mapping
from typing import Any

from bridge.common.drawing.plot import Plot, Point, Series
from bridge.common.drawing.svg import svg_file
from bridge.reports.claims.quant import by_arm, kind_of
from bridge.reports.statistics import exact_interval


def recall_plot(report: Mapping[str, Any]) -> str:
    """Return recall over length, all depths together, one curve an arm."""
    about = {prompt["id"]: prompt for prompt in report["prompts"]}
    hits: dict[str, dict[int, list[bool]]] = {arm["name"]: {} for arm in report["arms"]}
    for row in report["rows"]:
        prompt = about[row["prompt"]]
        hits[row["arm"]].setdefault(prompt["length"], []).append(prompt["expected"] in row["text"])
    series = (
        Series(arm, tuple(_share(length, hits) for length, hits in sorted(by_length.items())), "line")
        for arm, by_length in hits.items()
    )
    title, at, value = "Needles found", "tokens of the prompt", "share, with its 95 % interval"
    return svg_file([Plot(title, at, value, tuple(series))])


def _share(length: int, hits: list[bool]) -> Point:
    return Point(length, sum(hits) / len(hits), *exact_interval(sum(hits), len(hits)))


def quant_plot(report: Mapping[str, Any]) -> str:
    """Return KL divergence over stored bits, a curve for each kind of cache."""
    by_name = by_arm(report)
    curves: dict[str, list[Point]] = {}
    for arm in report["arms"]:
        figures = by_name[arm["name"]]
        if arm["role"] == "candidate" and figures["kl"] > 0:
            point = Point(figures["stored_bits_per_value"], figures["kl"])
            curves.setdefault(kind_of(arm["cache"]), []).append(point)
    series = (
        Series(kind, tuple(sorted(points, key=lambda point: point.at)), "line")
        for kind, points in curves.items()
    )
    title = "What a cache does to predictions"
    return svg_file([Plot(title, "stored bits a value", "KL divergence in nats", tuple(series), log=True)])
