"""Plots as an SVG file of their own."""

from xml.etree import ElementTree as ET

from bridge.common.drawing.plot import Plot, Point, Series
from bridge.common.drawing.svg import svg_file

SVG = "{http://www.w3.org/2000/svg}"


def plot(*series: Series) -> Plot:
    return Plot("Errors & <rates>", "bits", "error", series)


def test_plots_stand_side_by_side_and_equal_names_have_equal_looks():
    first = Series("first", (Point(0, 0), Point(2, 10)), "line")
    second = Series("second", (Point(1, 5, 4, 7), Point(2, 6, 4, 7)), "line")
    file = ET.fromstring(svg_file([plot(first, second), plot(second)]))

    left, right, *legend = file.findall(f"{SVG}g")
    assert left.findtext(f"{SVG}text") == "Errors & <rates>"
    assert right.get("transform") != left.get("transform")
    looks = [
        [group.get("class") for group in panel.iter(f"{SVG}g") if (group.get("class") or "").startswith("c")]
        for panel in (left, right)
    ]
    assert looks == [["c0", "c1"], ["c1"]]
    assert [entry.find(f"{SVG}g/{SVG}text").text for entry in legend] == ["first", "second"]
    assert len([line for line in right.iter(f"{SVG}line") if line.get("class") == "span"]) == 2


def test_a_file_without_points_is_an_empty_drawing():
    assert ET.fromstring(svg_file([plot()])).find(f"{SVG}g") is None
