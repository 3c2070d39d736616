from xml.etree import ElementTree as ET

from engine.measure.plot import Axes, panels

SVG = "{http://www.w3.org/2000/svg}"
AXES = Axes("Errors & <rates>", "bits", "error", (0, 2), (0, 10))


def test_panels_stand_side_by_side_and_share_one_legend():
    left = {"one": [(2, 10), (0, 0)], "two": [(1, 5, 4, 7)]}
    found = ET.fromstring(panels([(AXES, left), (AXES, {"two": [(1, 5)]})], width=100))

    first, second = found.findall(f"{SVG}g")
    assert first.findtext(f"{SVG}text") == AXES.title
    assert [line.get("points") for line in first.iter(f"{SVG}polyline")] == [
        "0.0,280.0 100.0,0.0",
        "50.0,140.0",
    ]
    assert [path.get("d") for path in first.iter(f"{SVG}path")][-1] == "M50.0 168.0V84.0"  # the one interval
    colours = [line.get("stroke") for panel in (first, second) for line in panel.iter(f"{SVG}polyline")]
    assert colours[0] != colours[1] == colours[2]
    legend = [
        (path.get("stroke"), text.text)
        for path, text in zip(found.findall(f"{SVG}path"), found.findall(f"{SVG}text"), strict=True)
    ]
    assert legend == [(colours[0], "one"), (colours[1], "two")]
