"""Plots as text: each mark stands where its value is, and nothing in a report breaks the lines."""

from __future__ import annotations

import math

import pytest

from bridge.common.drawing.plot import Plot, Point, Series
from bridge.common.drawing.textplot import text_plot


def series(name, *pairs, style="marks"):
    return Series(name, tuple(Point(at, value) for at, value in pairs), style)


def test_a_larger_value_stands_higher_and_a_later_one_further_right():
    lines = text_plot(Plot("", "bits", "error", (series("one", (1, 10), (2, 20), (3, 30)),)))

    places = [
        (line.index("o", line.index("|")), i) for i, line in enumerate(lines) if "|" in line and "o" in line
    ]
    assert len(places) == 3
    assert [across for across, _ in places] == sorted((across for across, _ in places), reverse=True)
    assert lines[0] == "error"
    assert "bits" in lines[-2]


def test_series_have_marks_of_their_own_and_a_limit_lies_behind():
    both = (series("limit", (1, 1), (2, 2), style="limit"), series("one", (1, 1)), series("two", (2, 2)))

    lines = text_plot(Plot("", "at", "value", both))

    drawn = "".join(line.partition("|")[2] for line in lines if "|" in line)
    assert (drawn.count("o"), drawn.count("x"), drawn.count(".")) == (1, 1, 0)
    assert lines[-1] == ". limit   o one   x two"


def test_categories_have_a_line_each():
    two = (series("plain", (0, 10), (1, 12)), series("fast", (0, 15), (1, 18)))

    lines = text_plot(Plot("", "prompt", "tokens a second", two, categories=("first", "second")))

    assert [line.partition(" |")[0].strip() for line in lines[:2]] == ["first", "second"]
    assert all(line.index("o") < line.index("x") for line in (part.partition("|")[2] for part in lines[:2]))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
def test_what_has_no_place_is_left_out(value):
    assert text_plot(Plot("", "at", "value", (series("one", (1, value)),))) == []
    assert text_plot(Plot("", "at", "value", (series("one", (value, 1)),))) == []


def test_a_logarithmic_axis_leaves_out_what_is_not_positive():
    assert text_plot(Plot("", "at", "value", (series("one", (1, 0), (2, -1)),), log=True)) == []


def test_more_series_than_marks_are_counted():
    many = tuple(series(f"s{i}", (1, i)) for i in range(20))

    assert text_plot(Plot("", "at", "value", many))[-1].endswith("and 8 more")


def test_more_categories_than_lines_are_counted():
    names = tuple(map(str, range(40)))
    lines = text_plot(
        Plot("", "at", "value", (series("one", *((i, i + 1) for i in range(40))),), categories=names)
    )

    assert any("and 10 more" in line for line in lines)


def test_a_strangers_names_stay_on_their_lines():
    bad = "a\nb\x1b[31m```" + "x" * 500
    plot = Plot(bad, bad, bad, (series(bad, (0, 1), (1, 2)),), categories=(bad, bad))

    for lines in (text_plot(plot), text_plot(Plot(bad, bad, bad, plot.series))):
        assert all(line.isprintable() and len(line) < 160 for line in lines)
