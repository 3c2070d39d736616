"""Whatever a report says is either checked, or named with its reason among the fields that nothing checks."""

from __future__ import annotations

import pytest

from bridge.evidence import check_report
from bridge.evidence.laws.unchecked import UNCHECKED, reason_for
from tests.bridge.evidence import falsehoods, mutations


def leaves(report):
    """The places that hold a value, or a list of values, with the paths of all that stand there."""
    for place, paths in mutations.places(report).items():
        value = mutations.at(report, paths[0])
        inner = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
        if not any(isinstance(item, dict | list) for item in inner) and not (
            isinstance(value, dict) and value
        ):
            yield place, paths


def lies(report, paths):
    """The ways to change a place, in one item and in all, with claims computed again."""
    for change in mutations.changes_of(mutations.at(report, paths[0])).values():
        for scope, some in mutations.scopes(report, paths):
            made = mutations.lie(report, some, change) if scope in ("one", "all") else None
            if made is not None:
                yield made


def restated(honest, made):
    falsehoods.take_pauses(honest, made)
    return falsehoods.restated(made)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["codec_rd", "verify_l", "parity"])
def test_each_field_is_checked_or_named(name, monkeypatch):
    monkeypatch.setattr(mutations, "restated", restated)
    honest = restated(falsehoods.real(name), falsehoods.real(name))
    assert check_report(honest) == []
    loose = [
        place for place, paths in leaves(honest)
        if reason_for(honest["kind"], place) is None and not any(map(check_report, lies(honest, paths)))
    ]  # fmt: skip
    assert loose == []


def test_unchecked_fields_are_named_one_by_one():
    named = [place for one in UNCHECKED for place in one.fields]
    assert len({*named}) == len(named)
    assert all(place.count("*") <= 1 and not place.startswith("*") for place in named)
    assert not any(place in ("config.*", "models[].*", "arms[].*", "rows[].*") for place in named)
    assert all(one.reason and not one.reason.endswith(".") for one in UNCHECKED)


def test_a_field_that_nobody_names_has_no_reason():
    assert reason_for("kakeya.spec-bench", "config.anything") is None
    assert reason_for("kakeya.spec-bench", "rows[].anything") is None
    assert reason_for("kakeya.spec-bench", "throughput.decode_only") is None
    assert reason_for("k3_integrated_niah_acceptance_mac", "throughput.decode_only.speedup")
