"""What is no report, what was promised, and what must not crash the gate."""

from __future__ import annotations

import copy
import importlib
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.evidence import KINDS, MAX_VIOLATIONS, check_report, check_reports, judge
from bridge.evidence.floors import floor_of
from bridge.evidence.stats import exact_interval, median, repeats_at_the_end, shared_prefix, shared_suffix
from tests.bridge.evidence import reports
from tests.properties import examples

CODEC = reports.codec_rd()
PATH = "results/research/x.json"


def test_what_the_engine_measures_is_believed(tmp_path):
    pytest.importorskip("mlx")
    out = tmp_path / "rd.json"
    argv = [sys.executable, "-P", "-m", "engine", "codec", "rd", "--n-vectors", "64", "--out", str(out)]
    subprocess.run(argv, check=True, capture_output=True)
    assert check_report(json.loads(out.read_text())) == []


@pytest.mark.parametrize("dim", [64, 128, 256, 512])
def test_the_least_that_a_cache_stores_is_what_the_engine_stores(dim):
    pytest.importorskip("mlx")
    mx = importlib.import_module("engine.mx").mx
    codecs = {
        name: importlib.import_module(f"engine.codec.{name}") for name in ("affine", "classic", "voronoi")
    }
    for bits in (2, 3, 4, 5, 6):
        stored = codecs["voronoi"].VoronoiCodec(dim, bits).bits_per_vector
        assert floor_of(f"e8v@{bits}.25:fast", dim) == stored / dim
    for lattice, q_range in (("e8", 1), ("e8", 38), ("d4", 3), ("d4", 38)):
        stored = codecs["classic"].ClassicCodec(lattice, dim, q_range).bits_per_vector
        assert floor_of(f"{lattice}@q{q_range}", dim) == pytest.approx(stored / dim)
    packed = codecs["affine"].AffineCodec(dim, 4, 64).encode(mx.ones((1, dim)))
    assert floor_of("affine@4g64", dim) == 8 * packed.nbytes / dim
    assert floor_of("e8v@4.25") == pytest.approx(4.125, abs=1e-4)
    assert floor_of("e8v@7.25") is None


def test_the_violations_of_one_report_name_it():
    bad = {**CODEC, "kind": "kakeya.codec-rq"}
    gate = check_reports({"results/research/good.json": CODEC, "results/research/bad.json": bad})
    assert gate.verdict == "REJECTED"
    assert [(one.code, one.path) for one in gate.violations] == [
        ("UNKNOWN_KIND", "results/research/bad.json")
    ]


@pytest.mark.parametrize("report", [None, [], "x", 7], ids=str)
def test_what_is_no_object_is_rejected(report):
    gate = check_reports({PATH: report})
    assert (gate.verdict, gate.violations[0].code) == ("REJECTED", "UNREADABLE")


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": 1, "a": 2}', b"[" * 5000, b'{"a":' * 5000],
    ids=["nothing", "half", "no text", "NaN", "infinite", "twice", "deep lists", "deep objects"],
)
def test_what_has_no_meaning_or_several_is_rejected(data):
    gate = judge({PATH: data})
    assert (gate.verdict, gate.violations[0].code) == ("REJECTED", "UNREADABLE")


def test_other_files_are_no_reports():
    assert (
        judge({PATH: json.dumps(CODEC).encode(), "results/research/plot.svg": b"<svg"}).verdict == "ACCEPTED"
    )


def test_a_promise_without_a_report_is_incomplete():
    gate = check_reports({})
    assert (gate.verdict, [one.code for one in gate.violations]) == ("INCOMPLETE", ["NO_REPORT"])


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_can_be_promised_and_is_then_the_only_one(kind):
    honest = reports.HONEST[kind]()
    other = reports.verify_l() if kind != "kakeya.verify-l" else CODEC
    assert check_reports({PATH: honest}, [kind]).verdict == "ACCEPTED"
    gate = check_reports({PATH: other}, [kind])
    assert gate.verdict == "REJECTED"
    assert [one.code for one in gate.violations] == ["WRONG_KIND", "NO_REPORT"]
    gate = check_reports({PATH: honest, "results/research/y.json": other}, [kind])
    assert [(one.code, one.path) for one in gate.violations] == [("WRONG_KIND", "results/research/y.json")]
    gate = check_reports({PATH: honest}, [kind, other["kind"]])
    assert (gate.verdict, [one.code for one in gate.violations]) == ("INCOMPLETE", ["NO_REPORT"])


def test_a_flood_of_violations_is_cut():
    flood = {**CODEC, "rows": [7] * 10_000}
    assert len(check_report(flood)) == MAX_VIOLATIONS
    assert len(check_reports({"a": flood, "b": flood}).violations) == MAX_VIOLATIONS
    assert len(check_report({**CODEC, "kind": "x" * 10**6})[0].message) <= 1000


def test_the_verdict_is_that_of_all_violations_not_of_those_that_are_told():
    flood = {**CODEC, "rows": [7] * 10_000}
    assert check_reports({"a": flood, "b": {**CODEC, "kind": "lie"}}).verdict == "REJECTED"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from([10**400, -1, 0, 1e14, 10**14, "\ud800", [], {}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def paths(value: object, path: tuple = ()) -> list[tuple]:
    """Return the paths of all that a report holds, of lists the first and the last item."""
    steps: list = []
    if isinstance(value, dict):
        steps = [*value]
    elif isinstance(value, list) and value:
        steps = [0, len(value) - 1]
    return [path, *(found for step in steps for found in paths(value[step], (*path, step)))]


HONEST = {kind: make() for kind, make in reports.HONEST.items()}
PLACES = [(kind, path) for kind, report in HONEST.items() for path in dict.fromkeys(paths(report)) if path]


@examples(300)
@given(st.sampled_from(PLACES), json_values)
def test_whatever_stands_in_a_field_it_is_judged_without_a_crash(place, value):
    kind, path = place
    report = copy.deepcopy(HONEST[kind])
    inner = report
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    assert check_reports({PATH: report}).verdict in ("ACCEPTED", "REJECTED", "INCOMPLETE")


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_left_out_it_is_judged_without_a_crash(kind):
    for _, path in [place for place in PLACES if place[0] == kind]:
        report = copy.deepcopy(HONEST[kind])
        inner = report
        for step in path[:-1]:
            inner = inner[step]
        del inner[path[-1]]
        assert check_reports({PATH: report}).verdict in ("ACCEPTED", "REJECTED", "INCOMPLETE")


# Two-sided 95 %, from published tables.
@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        (0, 5, 0, 0.5218),
        (5, 5, 0.4782, 1),
        (4, 5, 0.2836, 0.9949),
        (1, 30, 0.0008, 0.1722),
        (50, 100, 0.3983, 0.6017),
    ],
)
def test_exact_intervals_are_those_of_the_tables(hits, trials, low, high):
    assert exact_interval(hits, trials) == pytest.approx((low, high), abs=6e-5)


def test_an_exact_interval_of_very_many_trials_nears_the_normal_one():
    low, high = exact_interval(3_000_000, 10_000_000)
    half = 1.96 * (0.3 * 0.7 / 1e7) ** 0.5
    assert (low, high) == pytest.approx((0.3 - half, 0.3 + half), abs=1e-6)


def test_a_median_of_what_is_not_known_is_not_known():
    assert median([3, 1, 2]) == 2
    assert median([4, 1, 2, 3]) == 2.5
    assert median([]) != median([])
    assert median([1, float("nan"), 2]) != 1


def test_what_texts_share():
    assert shared_prefix(["abc", "abd", "ab"]) == "ab"
    assert shared_suffix(["xyz", "ayz"]) == "yz"
    assert shared_prefix(["same", "same"]) == "same"


@pytest.mark.parametrize(
    ("items", "loops"),
    [([1] * 12, True), ([1] * 11, False), ([5, *[1, 2] * 12], True), ([*[1, 2] * 12, 3], False), ([], False),
     ([*range(8)] * 12, True), ([*range(9)] * 12, False)],
)  # fmt: skip
def test_a_unit_of_eight_twelve_times_over_is_a_loop(items, loops):
    assert repeats_at_the_end(items) is loops
