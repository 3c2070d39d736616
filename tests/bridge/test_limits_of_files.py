"""The protocol's own files: each is read at its limit, and not with one byte, item or count more."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bridge.bus import history, objects, wire
from bridge.bus.objects import Identity
from bridge.common import limits, strict_json
from bridge.errors import ManifestError, VerificationError
from bridge.manifest import parse_manifest
from bridge.system.git_output import each_line
from bridge.verify import attestation

STATE = {
    "schema_version": 2, "state": "running", "branch": "b", "request": "c" * 40, "salt": "s", "token": 1,
    "sequence": 1, "lease_s": 1.0, "runner": {"id": "i", "instance": "x", "version": "1"}, "at": "t",
}  # fmt: skip


def state(**changes: object) -> wire.StateFile | None:
    return wire.parse_state(json.dumps(STATE | changes).encode())


@pytest.mark.parametrize("more", [0, 1])
def test_a_state(more):
    data = json.dumps(STATE).encode()
    data += b" " * (limits.STATE_BYTES - len(data) + more)

    assert (wire.parse_state(data) is None) == bool(more)


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("field", ["token", "sequence", "step"])
def test_counters(field, more):
    assert (state(**{field: limits.COUNTER + more}) is None) == bool(more)


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("labels", lambda more: ["x"] * (32 + more)),
        ("labels", lambda more: ["x" * (64 + more)]),
        ("lease_s", lambda more: 86_400.0 + more),
        ("left_out", lambda more: (1 << 53) + more),
    ],
)
def test_fields_of_a_state(field, make: Callable[[int], object], more):
    assert (state(**{field: make(more)}) is None) == bool(more)


@pytest.mark.parametrize("more", [0, 1])
def test_the_detail_of_a_state_is_cut(more):
    found = state(detail="x" * (1000 + more))

    assert found is not None
    assert (found.detail == "x" * 1000) == (not more)
    assert len(found.detail) <= 1000


@pytest.mark.parametrize("more", [0, 1])
def test_a_result(more):
    """What is read at the limit is an object that is not a result; beyond it nothing is parsed."""
    data = b"{}" + b" " * (limits.RESULT_BYTES - 2 + more)

    with pytest.raises(VerificationError, match="is larger than" if more else "is not valid"):
        wire.parse_result(data)


@pytest.mark.parametrize("more", [0, 1])
def test_a_signed_statement(more):
    data = b"{}" + b" " * (limits.EVIDENCE_BYTES - 2 + more)

    with pytest.raises(VerificationError, match="is larger than" if more else "is not a DSSE envelope"):
        attestation.open_envelope(data, [])


@pytest.mark.parametrize("more", [0, 1])
def test_a_manifest(more):
    data = b"{}" + b" " * (strict_json.MAX_BYTES - 2 + more)

    with pytest.raises(ManifestError) as caught:
        parse_manifest(data)

    assert (caught.value.code == "too_large") == bool(more)
    assert strict_json.MAX_BYTES == 64 * limits.KIB


@pytest.mark.parametrize("more", [0, 1])
def test_a_line_of_a_listing(more):
    line = b"x" * (limits.LINE_BYTES + more)

    assert [len(one) for one in each_line([line, b"\n"])] == [limits.LINE_BYTES]
    assert [len(one) for one in each_line([line, b"y\n"])] == [limits.LINE_BYTES + 1]


@pytest.mark.parametrize("more", [0, 1])
def test_commits_of_a_branch(user_git, monkeypatch, more):
    monkeypatch.setattr(limits, "COMMITS", 30)
    tree = objects.overlay(user_git, None, {"a": b""})
    first = tip = objects.commit(user_git, tree, (), "x\n", Identity("x", "x@y"))
    made = []
    for i in range(30 + more):
        tip = objects.commit(user_git, tree, (tip,), f"{i}\n", Identity("x", "x@y"))
        made.append(tip)

    assert history.commits_between(user_git, first, tip) == made[more:]
