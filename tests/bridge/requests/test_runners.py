"""Runners' records as a reader takes them: bounded, for their own reference alone, and signed where keys are pinned."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.bus import objects, presence
from bridge.bus.presence import Presence, RunnerState
from bridge.client import Client
from bridge.common import limits
from bridge.manifest import format_time, parse_time
from bridge.requests.runners import read_runners
from bridge.system.git import Git
from bridge.verify.state_signature import signed_message, signed_presence
from runner.state import signing_key

WHO = objects.Identity("A Forger", "forger@example.invalid")
INSTANCE = "0123456789abcdef"
REF = presence.REFS + INSTANCE


def content(**fields):
    """Return a record as a runner writes it now, with other fields."""
    known = {
        "schema_version": 1, "id": "mac", "instance": INSTANCE, "version": "0.1.0", "state": "serving",
        "at": format_time(parse_time("2026-01-31T12:00:00Z")), "valid_s": 720.0,
    }  # fmt: skip
    return json.dumps(known | fields).encode()


@pytest.fixture
def put(bus):
    """Put a record on the bus as somebody who may push, and return its commit."""
    git = Git.isolated(bus)

    def put(data, ref=REF, signer=None, sign=signed_presence, message="x\n", **signed):
        tree = objects.overlay(git, None, {presence.FILE: data})
        message = sign(message, signer, **{"ref": ref, "tree": tree, **signed}) if signer else message
        commit = objects.commit(git, tree, [], message, WHO)
        git("update-ref", ref, commit)
        return commit

    return put


def names(client):
    return [seen.record.id for seen in client.runners()]


def test_a_record_is_read_and_one_that_is_gone_goes(put, client, git, bus):
    put(content(labels=["macOS"]))
    (seen,) = client.runners()
    assert (seen.record.id, seen.record.labels, seen.signed) == ("mac", ["macOS"], None)
    git(bus, "update-ref", "-d", REF)
    assert client.runners() == []


def test_a_bus_without_records(client):
    assert client.runners() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"instance": "fedcba9876543210"},
        {"instance": "0123456789ABCDEF"},
        {"schema_version": 2},
        {"more": 1},
        {"state": "busy"},
        {"id": "a b"},
        {"id": "x" * 65},
        {"id": "\u202ex"},
        {"version": ""},
        {"busy_with": "-x"},
        {"busy_with": "a\nb"},
        {"labels": ["a b"]},
        {"labels": ["a"] * (limits.PRESENCE_LABELS + 1)},
        {"labels": "a"},
        {"presets": {"../x": "sha256:" + "0" * 64}},
        {"presets": {"noop": "sha256:0"}},
        {"presets": {f"p{i}": "sha256:" + "0" * 64 for i in range(limits.PRESENCE_PRESETS + 1)}},
        {"patterns": ["mac-bridge/"]},
        {"patterns": ["a*"] * (limits.PRESENCE_LABELS + 1)},
        {"quota": {"waiting": 0}},
        {"reason": "x" * (limits.PRESENCE_REASON + 1)},
        {"at": "2026-13-31T12:00:00Z"},
        {"at": "x" * 21},
        {"valid_s": 0},
        {"valid_s": limits.PRESENCE_VALID_S + 1},
    ],
)  # fmt: skip
def test_what_is_no_record_of_this_reference_does_not_count(fields):
    assert presence.parse(content(), REF)
    assert presence.parse(content(**fields), REF) is None


def test_at_the_limits_it_counts():
    full = {
        "labels": ["a"] * limits.PRESENCE_LABELS, "reason": "x" * limits.PRESENCE_REASON,
        "presets": {f"p{i}": "sha256:" + "0" * 64 for i in range(limits.PRESENCE_PRESETS)},
        "patterns": ["a*"] * limits.PRESENCE_LABELS, "valid_s": float(limits.PRESENCE_VALID_S),
        "quota": {"waiting": limits.COUNTER, "per_hour": None},
    }  # fmt: skip
    record = presence.parse(content(**full), REF)
    assert record is not None
    assert len(record.to_bytes()) < limits.PRESENCE_BYTES
    assert presence.parse(record.to_bytes(), REF) == record
    assert presence.parse(None, REF) is None
    assert presence.parse(b"[]", REF) is None


SHORT = st.text(max_size=9)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=80), st.lists(SHORT, max_size=3),
    st.dictionaries(SHORT, SHORT, max_size=3),
)  # fmt: skip
FIELDS = st.dictionaries(st.sampled_from(sorted(Presence.model_fields)), VALUES)


@given(st.one_of(st.binary(max_size=200), FIELDS))
def test_whatever_lies_there_is_a_record_or_none(found):
    """One field at a time is replaced, and the whole file."""
    data = found if isinstance(found, bytes) else content(**found)
    record = presence.parse(data, REF)
    assert record is None or record.ref == REF


def test_a_reason_steers_nothing():
    record = presence.parse(content(reason="a\x1b[2J\u202eb"), REF)
    assert record is not None
    assert record.reason == "a\\x1b[2J\\u202eb"


@pytest.mark.parametrize("more", [0, 1])
def test_the_size_of_a_record(put, client, monkeypatch, more):
    put(content())
    monkeypatch.setattr(limits, "PRESENCE_BYTES", len(content()) - more)
    assert names(client) == ([] if more else ["mac"])


def test_a_commit_that_is_too_large_and_what_is_no_commit(put, client, git, bus):
    put(content(), message="x" * 5000)
    assert names(client) == []
    blob = git(bus, "hash-object", "-w", "--stdin", stdin="x")
    git(bus, "update-ref", REF, blob)
    assert names(client) == []


def test_of_too_many_some_are_looked_at_and_the_newest_shown(put, client, monkeypatch):
    for i in range(4):
        instance = f"{i:016x}"
        put(content(instance=instance, id=f"m{i}", at=f"2026-01-31T12:00:0{i}Z"), presence.REFS + instance)
    put(content(), presence.REFS + "not-an-id")
    monkeypatch.setattr(limits, "PRESENCES_SHOWN", 2)
    assert names(client) == ["m3", "m2"]
    monkeypatch.setattr(limits, "PRESENCES", 1)
    assert len(client.remote.fetch_presences()) == 1


def test_a_server_that_is_slow_costs_some_seconds_and_no_status(client, monkeypatch):
    run = client.run("noop")
    monkeypatch.setattr(limits, "PRESENCE_S", 0.0)
    status = run.status()
    assert (str(status.state), status.reason) == ("requested", None)
    assert status.outlook == "no older request is waiting; no runner has written to this bus yet"


class TestPinned:
    """Where keys are pinned, only what one of them signed for this very reference counts."""

    @pytest.fixture
    def signer(self, tmp_path):
        signing_key.make_key(tmp_path / "state")
        return signing_key.load_signer(tmp_path / "state")

    @pytest.fixture
    def pinned(self, clone, signer, tmp_path):  # noqa: ARG002 - it makes the key
        return Client(clone, public_key=tmp_path / "state" / signing_key.PUBLIC)

    def test_it_counts_if_it_is_signed(self, put, pinned, signer):
        put(content(), signer=signer)
        (seen,) = pinned.runners()
        assert seen.signed is True

    def test_unsigned_or_signed_by_another_key_it_does_not(self, put, pinned, client, tmp_path):
        put(content())
        assert (names(pinned), names(client)) == ([], ["mac"])
        signing_key.make_key(tmp_path / "other")
        put(content(), signer=signing_key.load_signer(tmp_path / "other"))
        assert (names(pinned), names(client)) == ([], ["mac"])

    def test_a_copy_on_another_reference_does_not(self, put, pinned, signer, git, bus):
        commit = put(content(instance="fedcba9876543210"), signer=signer)
        git(bus, "update-ref", presence.REFS + "fedcba9876543210", commit)
        assert names(pinned) == []

    def test_other_content_under_the_same_signature_does_not(self, put, pinned, signer):
        put(content(), signer=signer, tree="0" * 40)
        assert names(pinned) == []

    def test_the_signature_of_a_state_is_none_of_a_record(self, put, pinned, signer):
        put(content(), signer=signer, sign=lambda message, signer, *, ref, tree: signed_message(
            message, signer, branch=ref, parent="0" * 40, tree=tree))  # fmt: skip
        assert names(pinned) == []

    def test_a_real_runner_signs_what_pinned_clients_read(self, keyed, clone, runners, wait_for):
        key = keyed.key()
        runners.start()
        client = Client(clone, public_key=key)
        wait_for(lambda: names(client) == ["one"])


def test_an_older_record_put_back_is_dead_by_its_own_time(put, client):
    put(content())
    (seen,) = client.runners()
    assert not seen.is_alive(time.time())
    assert seen.is_doubtful(time.time())


def test_nothing_of_it_is_a_branch_that_clients_and_runners_list(put, client, keyed):
    put(content(busy_with="mac-bridge/x", state=str(RunnerState.MAINTENANCE)))
    assert client.list() == []
    with keyed.context() as context:
        assert context.bus.fetch() == {}
    shown = client.git.text("for-each-ref", "refs/heads", "refs/remotes", "refs/tags", "--format=%(refname)")
    assert shown.split() == ["refs/heads/main", "refs/remotes/origin/HEAD", "refs/remotes/origin/main"]


def test_readers_of_records_need_no_presets(client):
    assert read_runners(client.git, {}) == []
    assert Presence.model_validate(json.loads(content())).serves("anything")


def forged(bus, kind):
    """Return an object for a reference that holds no record."""
    there = Git.isolated(bus)
    tree = objects.overlay(there, None, {"x": b"x"})
    if kind == "a large file":
        return objects.write_blob(there, b"x" * (limits.COMMIT_BYTES + 1))
    large = objects.commit(there, tree, [], "x" * (limits.COMMIT_BYTES + 1), WHO)
    if kind == "upon a large commit":
        return objects.commit(there, tree, [large], "x\n", WHO)
    if kind == "a tag":
        text = f"object {large}\ntype commit\ntag x\ntagger x <x@y> 1700000000 +0000\n\nx\n"
        return there.text("hash-object", "-t", "tag", "-w", "--stdin", stdin=text)
    return large


@pytest.mark.parametrize("kind", ["a large commit", "upon a large commit", "a tag", "a large file"])
def test_what_git_reads_at_each_fetch_is_never_kept_for_a_record(put, client, bus, kind):
    """A reference to a large commit would slow down every later command, also once it is gone from the bus."""
    put(content())
    oid = forged(bus, kind)
    Git.isolated(bus)("update-ref", presence.REFS + "f" * 16, oid)

    for _ in range(2):
        assert names(client) == ["mac"]
    assert client.git.text("for-each-ref", "--format=%(refname)", presence.REFS) == REF


@pytest.mark.parametrize(
    "name", [b"y" * 300, b"\xff\xfe", b"/".join([b"z" * 200] * 25), INSTANCE.encode() + b"/x"]
)
def test_a_reference_that_cannot_be_written_here_hides_no_runner(put, client, bus, name):
    commit = put(content()).encode()
    there = Git.isolated(bus)
    there("pack-refs", "--all")
    file = bus / "packed-refs"
    head, *lines = [line for line in file.read_bytes().split(b"\n") if line]
    lines.append(commit + b" " + presence.REFS.encode() + name)
    file.write_bytes(b"\n".join([head, *sorted(lines, key=lambda line: line.partition(b" ")[2]), b""]))

    assert names(client) == ["mac"]


def test_a_record_whose_commit_the_bus_has_lost_hides_no_other(put, client, bus):
    lost = put(content(instance="f" * 16), ref=presence.REFS + "f" * 16)
    put(content())
    (bus / "objects" / lost[:2] / lost[2:]).unlink()

    assert names(client) == ["mac"]
