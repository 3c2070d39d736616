"""What of a parameter's text is one value, and what lists the values of a sweep."""

from __future__ import annotations

import pytest

from bridge.errors import PresetError
from bridge.presets import Preset
from bridge.presets.points import differing, point_name, point_order, read_points

PARAMS = {
    "n": {"type": "int", "min": 0, "max": 99, "default": 5},
    "word": {"type": "enum", "values": ["a", "b"], "default": "a"},
    "loud": {"type": "flag", "option": "--loud"},
    "file": {"type": "path", "under": ["tests"], "default": "tests/x"},
    "cache": {"type": "cache", "words": ["raw"], "default": "raw"},
}


@pytest.fixture(scope="module")
def preset():
    argv = ["/bin/echo", *(f"{{{name}}}" for name in PARAMS)]
    return Preset.model_validate({
        "name": "p", "description": "d", "code": "request", "timeout_s": 60, "params": PARAMS,
        "steps": [{"argv": argv}],
    })  # fmt: skip


VALUES = {
    "n=3": [3],
    "n=3,1": [3, 1],
    "n= 3 ; 1 ": [3, 1],
    "word=b,a": ["b", "a"],
    "loud=on,false": [True, False],
    "file=tests/a,tests/b": ["tests/a", "tests/b"],
    "cache=k=e8v@4.25,v=e8v@3.25": ["k=e8v@4.25,v=e8v@3.25"],
    "cache=k=e8v@4.25,v=e8v@3.25;raw": ["k=e8v@4.25,v=e8v@3.25", "raw"],
    "cache=e8v@4.25,raw": ["e8v@4.25", "raw"],
}


def test_a_text_that_is_a_value_is_one_and_any_other_lists_some(preset):
    for text, values in VALUES.items():
        points = read_points(preset, [text])
        name = text.partition("=")[0]
        assert [params[name] for params in points.params] == values, text
        assert points.swept == ((name,) if len(values) > 1 else ()), text


def test_the_error_of_a_cache_spec_with_a_mistake_is_about_all_of_it(preset):
    with pytest.raises(PresetError, match=r"not 'k=e8v@4.25,v=e8v@3,25'$"):
        read_points(preset, ["cache=k=e8v@4.25,v=e8v@3,25"])


def test_the_largest_sweep_is_of_64_points(preset):
    many = ",".join(map(str, range(32)))
    assert len(read_points(preset, [f"n={many}", "word=a,b"]).params) == 64
    with pytest.raises(PresetError, match="make 66 points"):
        read_points(preset, [f"n={many},32", "word=a,b"])
    # The points are counted before they are made.
    with pytest.raises(PresetError, match=r"make 512 points \(32 x 2 x 2 x 4\)"):
        read_points(preset, [f"n={many}", "word=a,b", "loud=1,0", "file=tests/a,tests/b,tests/c,tests/d"])


def test_points_are_named_and_sorted_by_what_differs():
    points = [{"n": 20, "loud": True, "word": "a"}, {"n": 3, "loud": False, "word": "a"}, {"loud": False}]
    swept = differing(points)
    assert swept == ("n", "loud", "word")
    assert point_name(points[0], ("n", "loud")) == "n=20 loud=true"
    first, second = sorted(points[:2], key=lambda params: point_order(params, swept))
    assert (first["n"], second["n"]) == (3, 20)
