"""The place in a group that a branch's name claims, whoever gave it that name."""

from __future__ import annotations

from bridge.bus.branch_names import parse_branch
from bridge.requests.groups.names import MOST_LISTED, group_of, members, place_of
from bridge.requests.idempotency import Key

GROUP = "0123456789ab"


def branch(digits, seconds=1795204112, prefix="mac-bridge/"):
    return f"{prefix}count-{seconds}-{digits}"


def test_the_key_of_a_point_makes_names_that_claim_its_place():
    place = place_of(branch(f"{GROUP}0203{'e' * 14}"))
    assert (place.group, place.index, place.count) == (GROUP, 2, 3)
    key = Key.of("k", "ada", {"n": 1}, b"secret" * 8, place.digits)
    names = [f"mac-bridge/count-{key.nonce(index)}" for index in range(8)]
    assert [place_of(name) for name in names] == [place] * 8
    assert [key.name_index(name) for name in names] == [*range(8)]
    assert all(parse_branch(name) for name in names)
    key.check(names[0])
    other = Key.of("k", "eve", {"n": 1}, b"secret" * 8, place.digits)
    assert other.name_index(names[0]) is None


def test_other_names_claim_no_place():
    for digits in ("0123456789ab", f"{GROUP}{'0' * 20}", f"{GROUP}0303{'0' * 14}", f"{GROUP}0041{'0' * 14}"):
        assert group_of(branch(digits)) is None, digits
    assert group_of("main") is None
    assert group_of(branch(f"{GROUP}0002{'0' * 14}", prefix="../")) is None


def test_the_members_of_a_group_are_bounded_and_the_oldest():
    own = [branch(f"{GROUP}{index:02x}02{'0' * 14}") for index in (1, 0)]
    others = [branch(f"{GROUP}0002{index:014x}", 1795204113 + index) for index in range(300)]
    found = members([*others, *own, branch("0123456789ab")], GROUP)
    assert len(found) == MOST_LISTED
    assert {*own} <= {*found}
    assert found[-1] == own[0]
