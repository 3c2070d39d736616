"""The gate believes a report only where no rule catches it in a lie, and each rule catches what no other does."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.evidence import MAX_VIOLATIONS, RULES, check_report, check_reports

ROW = {
    "codec": "affine",
    "bits": 2,
    "group": 64,
    "rotated": False,
    "distribution": "gaussian",
    "n_vectors": 64,
    "stored_bits_per_value": 2.5,
    "rel_mse": 0.156,
    "rel_mse_stderr": 0.0055,
    "limit": 0.03125,
}
REPORT = {
    "kind": "kakeya.codec-rd",
    "schema_version": 3,
    "created_at": "2026-01-31T12:00:00Z",
    "identity": {
        "host": "a-machine",
        "os": "an-os",
        "chip": "a-chip",
        "device": "cpu",
        "versions": {"mlx": "0.32.4"},
        "blas": {"name": "openblas"},
    },
    "config": {"n_vectors": 64, "dim": 64, "seed": 0},
    "rows": [ROW, {**ROW, "distribution": "t4", "rel_mse": 0.22}],
    "claims": [],
    "seconds": 0.05,
}


def codes(report: object) -> list[str]:
    return [violation.code for violation in check_report(report)]


def changed(*path: object, to: object) -> dict:
    """Return the report with the value at a path replaced."""
    made = copy.deepcopy(REPORT)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return made


def without(*path: object) -> dict:
    made = copy.deepcopy(REPORT)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return made


def row(**fields: object) -> dict:
    return changed("rows", 0, to={**ROW, **fields})


def test_an_honest_report_is_believed():
    assert check_report(REPORT) == []
    assert check_reports({"results/research/x.json": REPORT}).verdict == "ACCEPTED"


def test_what_the_engine_measures_is_believed(tmp_path):
    pytest.importorskip("mlx.core")
    argv = [
        sys.executable,
        "-P",
        "-m",
        "engine",
        "codec",
        "rd",
        "--n-vectors",
        "64",
        "--out",
        str(tmp_path / "rd.json"),
    ]
    subprocess.run(argv, check=True, capture_output=True)
    assert check_report(json.loads((tmp_path / "rd.json").read_text())) == []


LIES = {
    "another kind": (changed("kind", to="kakeya.bench"), "UNKNOWN_KIND"),
    "no kind": (without("kind"), "UNKNOWN_KIND"),
    "a kind that is a list": (changed("kind", to=["kakeya.codec-rd"]), "UNKNOWN_KIND"),
    "a kind that is an object": (changed("kind", to={}), "UNKNOWN_KIND"),
    "nothing": ({}, "UNKNOWN_KIND"),
    "an older schema": (changed("schema_version", to=2), "UNKNOWN_SCHEMA"),
    "a later schema": (changed("schema_version", to=4), "UNKNOWN_SCHEMA"),
    "a schema as text": (changed("schema_version", to="3"), "UNKNOWN_SCHEMA"),
    "no schema": (without("schema_version"), "UNKNOWN_SCHEMA"),
    **{f"no {name}": (without("identity", name), "PROVENANCE_MISSING") for name in REPORT["identity"]},
    **{f"an empty {name}": (changed("identity",
    name, to=""), "PROVENANCE_MISSING") for name in REPORT["identity"]},
    "no identity": (without("identity"), "PROVENANCE_MISSING"),
    "identity as text": (changed("identity", to="me"), "PROVENANCE_MISSING"),
    "versions as an empty list": (changed("identity", "versions", to=[]), "PROVENANCE_MISSING"),
    "no config": (without("config"), "PROVENANCE_MISSING"),
    "no time": (without("created_at"), "PROVENANCE_MISSING"),
    "no rows": (without("rows"), "NO_ROWS"),
    "an empty list of rows": (changed("rows", to=[]), "NO_ROWS"),
    "rows as an object": (changed("rows", to={"0": ROW}), "NO_ROWS"),
    "a row that is no object": (changed("rows", 0, to=7), "BAD_ROW"),
    "an error as text": (row(rel_mse="0.1"), "BAD_ROW"),
    "a negative error": (row(rel_mse=-0.1), "BAD_ROW"),
    "true as an error": (row(rel_mse=True), "BAD_ROW"),
    "no error": (row(rel_mse=None), "BAD_ROW"),
    "an error beyond all measure": (row(rel_mse=10**400), "BAD_ROW"),
    "an error that is no number": (row(rel_mse=float("nan")), "BAD_ROW"),
    "an infinite rate": (row(stored_bits_per_value=float("inf")), "BAD_ROW"),
    "affine without bits": (row(bits=None), "BAD_ROW"),
    "affine with a group as text": (row(group="64"), "BAD_ROW"),
    "affine with a group of none": (row(group=0), "BAD_ROW"),
    "less error than is possible": (row(rel_mse=0.001, rel_mse_stderr=0.0001), "RATE_IMPOSSIBLE"),
    "a spread that hides it": (row(rel_mse=0.001, rel_mse_stderr=0.5), "SPREAD_IMPOSSIBLE"),
    "a mean of nothing": (row(n_vectors=0), "SPREAD_IMPOSSIBLE"),
    "bits without scale and bias": (
        row(stored_bits_per_value=2.0, limit=2**-4.0), "RATE_OMITS_SIDE_INFORMATION",
    ),
    "a limit that makes it look better": (row(limit=0.15), "LIMIT_WRONG"),
}  # fmt: skip


@pytest.mark.parametrize(("report", "code"), LIES.values(), ids=LIES)
def test_each_lie_is_caught_by_its_own_rule_alone(report, code):
    assert codes(report) == [code]


@pytest.mark.parametrize(("report", "code"), LIES.values(), ids=LIES)
def test_a_report_with_a_lie_is_rejected_with_its_path(report, code):
    gate = check_reports({"results/research/good.json": REPORT, "results/research/bad.json": report})
    assert gate.verdict == "REJECTED"
    assert [(found.code, found.path) for found in gate.violations] == [(code, "results/research/bad.json")]


def test_every_rule_catches_at_least_one_lie():
    caught = {
        rule.__name__
        for rules in RULES.values()
        for rule in rules
        for report, _ in LIES.values()
        if [*rule(report)]
    }
    assert caught == {rule.__name__ for rules in RULES.values() for rule in rules}


def test_an_error_below_the_limit_is_believed_where_the_source_is_not_gaussian():
    assert codes(row(distribution="outliers", rel_mse=0.001, rel_mse_stderr=0.0001)) == []


def test_a_codec_that_is_not_affine_need_not_count_a_scale():
    assert codes(row(codec="voronoi", stored_bits_per_value=2.25, limit=2**-4.5)) == []


def test_an_error_a_little_below_the_limit_is_within_the_samples_spread():
    assert codes(row(rel_mse=0.03, rel_mse_stderr=0.001)) == []


@pytest.mark.parametrize("report", [None, [], "x", 7], ids=str)
def test_what_is_no_object_is_rejected(report):
    gate = check_reports({"results/research/x.json": report})
    assert (gate.verdict, gate.violations[0].code) == ("REJECTED", "UNREADABLE")


def test_a_promise_without_a_report_is_incomplete():
    gate = check_reports({})
    assert (gate.verdict, gate.violations[0].code) == ("INCOMPLETE", "NO_REPORT")


def test_a_flood_of_violations_is_cut():
    flood = changed("rows", to=[7] * 10_000)
    assert len(check_report(flood)) == MAX_VIOLATIONS
    assert len(check_reports({"a": flood, "b": flood}).violations) == MAX_VIOLATIONS
    assert len(check_report(changed("kind", to="x" * 10**6))[0].message) <= 1000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(st.sampled_from([*REPORT, "identity.host", *(f"rows.{name}" for name in ROW)]), json_values)
def test_whatever_stands_in_a_field_it_is_judged_without_a_crash(field, value):
    head, _, rest = field.partition(".")
    report = (
        row(**{rest: value}) if head == "rows" and rest else changed(head, *[rest][: bool(rest)], to=value)
    )
    assert isinstance(codes(report), list)
