"""Whatever a report says is either checked, or named with its reason among the fields that nothing checks."""

from __future__ import annotations

import pytest

from bridge.evidence import check_report
from bridge.evidence.laws.change import Change, Sort
from bridge.evidence.laws.unchecked import Unchecked
from bridge.evidence.laws.unchecked_table import UNCHECKED
from tests.bridge.evidence import falsehoods, mutations, tell


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


def named(kind, place):
    return any(entry.names(kind, place) for entry in UNCHECKED)


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
        if not named(honest["kind"], place) and not any(map(check_report, lies(honest, paths)))
    ]  # fmt: skip
    assert loose == []


def test_unchecked_fields_are_named_one_by_one():
    told = [
        (place, kind, entry.moves, entry.others)
        for entry in UNCHECKED
        for place in entry.fields
        for kind in entry.kinds
    ]
    assert len({*told}) == len(told)
    places = {place for entry in UNCHECKED for place in entry.fields}
    assert all(place.count("*") <= 1 and not place.startswith("*") for place in places)
    assert not places & {"config.*", "models[].*", "arms[].*", "rows[].*"}
    assert all(entry.reason and not entry.reason.endswith(".") for entry in UNCHECKED)
    assert all(entry.kinds and entry.sorts and len({*entry.sorts}) == len(entry.sorts) for entry in UNCHECKED)
    assert all((Sort.SMALL in entry.sorts) == (entry.within > 0) for entry in UNCHECKED)


def test_a_field_that_nobody_names_is_not_named():
    assert not named("kakeya.spec-bench", "config.anything")
    assert not named("kakeya.spec-bench", "rows[].anything")
    assert not named("kakeya.spec-bench", "throughput.decode_only")
    assert not named("kakeya.spec-bench", "claims[].value")
    assert named("kakeya.spec-bench", "identity.host")


ENTRY = Unchecked(
    ("rows[].a",), ("kakeya.native",), (Sort.SMALL, Sort.ABSENT, Sort.ALIKE), "a reason", 0.1, 0.2
)


@pytest.mark.parametrize(
    ("kind", "place", "change", "passes"),
    [
        ("kakeya.native", "rows[].a", Change(Sort.NUMBER, size=0.2), True),
        ("kakeya.native", "rows[].a", Change(Sort.NUMBER, size=9.0), False),
        ("kakeya.native", "rows[].a", Change(Sort.NUMBER, alike=True, size=9.0), True),
        ("kakeya.native", "rows[].a", Change(Sort.NUMBER, size=0.2, moved=0.11), False),
        ("kakeya.native", "rows[].a", Change(Sort.ABSENT), True),
        ("kakeya.native", "rows[].a", Change(Sort.SWAP), False),
        ("kakeya.native", "rows[].b", Change(Sort.ABSENT), False),
        ("kakeya.parity", "rows[].a", Change(Sort.ABSENT), False),
    ],
)
def test_a_change_passes_if_kind_field_and_sort_fit(kind, place, change, passes, monkeypatch):
    monkeypatch.setattr(tell, "UNCHECKED", (ENTRY,))
    assert bool(tell.look_up(mutations.Mutation(kind, place, "a change", "one"), change)) is passes


def test_what_no_lie_needs_is_noticed(monkeypatch):
    monkeypatch.setattr(tell, "UNCHECKED", (ENTRY,))
    needed = tell.look_up(
        mutations.Mutation("kakeya.native", "rows[].a", "a change", "one"), Change(Sort.ABSENT)
    )
    assert tell.table() - needed == {(0, str(Sort.SMALL)), (0, str(Sort.ALIKE))}
