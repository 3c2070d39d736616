"""One key, one request: however often it is asked, from wherever, and whatever died on the way."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from bridge.bus import objects, wire
from bridge.bus.remote import Remote
from bridge.client import Client
from bridge.errors import InfrastructureError, UsageError
from bridge.requests.outbox import KEYS
from bridge.system.git import Git

pytestmark = pytest.mark.bus


@pytest.fixture
def asked(presets):
    number = {"type": "int", "min": 1, "max": 50, "default": 5}
    return str(presets(
        noop={"steps": [{"argv": ["/bin/echo", "done"]}]},
        count={"params": {"n": number}, "steps": [{"argv": ["/bin/echo", "{n}"]}]},
    ))  # fmt: skip


@pytest.fixture
def client(clone, asked):
    return Client(clone, presets=asked)


def on_bus(git, bus):
    return git(bus, "for-each-ref", "--format=%(refname:short)", "refs/heads/mac-bridge/").splitlines()


def test_a_second_call_sends_nothing(client, git, bus):
    first = client.run("noop", idempotency_key="a")
    second = client.run("noop", idempotency_key="a")

    assert (first.existing, second.existing) == (False, True)
    assert (second.branch, second.commit) == (first.branch, first.commit)
    assert on_bus(git, bus) == [first.branch]


def test_another_key_and_none_send_requests_of_their_own(client, git, bus):
    sent = {client.run("noop", idempotency_key=key).branch for key in ("a", "b", None, None)}

    assert set(on_bus(git, bus)) == sent
    assert len(sent) == 4


@pytest.mark.parametrize(
    "other",
    [{"params": {"n": 6}}, {"preset": "noop"}, {"ref": "main"}, {"labels": ["gpu"]}],
    ids=["params", "preset", "ref", "labels"],
)
@pytest.mark.parametrize("again", ["here", "elsewhere"])
def test_something_else_under_the_same_key_is_an_error(client, git, bus, tmp_path, asked, other, again):
    client.run("count", {"n": 5}, idempotency_key="a")
    if again == "elsewhere":
        git(tmp_path, "clone", "--quiet", str(bus), "second")
        client = Client(tmp_path / "second", presets=asked)
    call = {"preset": "count", "params": {"n": 5}, "idempotency_key": "a"} | other

    with pytest.raises(UsageError, match="was used for another request") as caught:
        client.run(**{**call, "params": {} if call["preset"] == "noop" else call["params"]})

    assert caught.value.code == "idempotency_conflict"
    assert len(on_bus(git, bus)) == 1


def test_a_default_that_is_spelled_out_is_the_same_request(client):
    first = client.run("count", idempotency_key="a")

    assert client.run("count", {"n": 5}, idempotency_key="a").branch == first.branch


def test_a_clone_that_knows_nothing_finds_the_request(client, git, bus, tmp_path, asked):
    first = client.run("noop", idempotency_key="a")
    git(tmp_path, "clone", "--quiet", str(bus), "second")

    second = Client(tmp_path / "second", presets=asked).run("noop", idempotency_key="a")

    assert (second.branch, second.commit, second.existing) == (first.branch, first.commit, True)


def test_another_requester_has_keys_of_its_own(client, git, bus, tmp_path, asked):
    client.run("noop", idempotency_key="a")
    git(tmp_path, "clone", "--quiet", str(bus), "second")
    git(tmp_path / "second", "config", "user.email", "other@example.invalid")

    assert not Client(tmp_path / "second", presets=asked).run("noop", idempotency_key="a").existing


@pytest.mark.parametrize("moment", ["before the push", "after the push"])
def test_a_call_that_died_is_completed_by_the_next(client, git, bus, monkeypatch, moment):
    real = Remote.push

    def dying(self, *args, **more):
        if moment == "after the push":
            real(self, *args, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Remote, "push", dying)
        with pytest.raises(KeyboardInterrupt):
            client.run("noop", idempotency_key="a")
    noted = client.git.text("for-each-ref", "--format=%(objectname)", KEYS)

    sent = client.run("noop", idempotency_key="a")

    assert (sent.commit, sent.existing) == (noted, True)
    assert on_bus(git, bus) == [sent.branch]


def test_calls_side_by_side_send_one_request(clone, asked, git, bus):
    def call(_):
        return Client(clone, presets=asked).run("noop", idempotency_key="a").branch

    with ThreadPoolExecutor(4) as pool:
        branches = set(pool.map(call, range(4)))

    assert set(on_bus(git, bus)) == branches
    assert len(branches) == 1


def test_clones_side_by_side_in_one_minute_send_one_request(client, git, bus, tmp_path, asked, monkeypatch):
    monkeypatch.setattr("bridge.requests.idempotency.time.time", lambda: 1_700_000_050.0)
    git(tmp_path, "clone", "--quiet", str(bus), "second")
    other = Client(tmp_path / "second", presets=asked)
    # Neither sees the other's branch before it pushes.
    with monkeypatch.context() as patch:
        patch.setattr(Remote, "listed", lambda *_: {})
        first, second = client.run("noop", idempotency_key="a"), other.run("noop", idempotency_key="a")

    assert (first.branch, first.commit) == (second.branch, second.commit)
    assert other.run("noop", idempotency_key="a").commit == first.commit
    assert on_bus(git, bus) == [first.branch]


def forged(bus, branch, **changes):
    """Put a request of a stranger on a branch."""
    there = Git.isolated(bus)
    manifest = json.loads(objects.read_blob(there, f"refs/heads/{branch}", wire.REQUEST, max_bytes=1 << 20))
    files = {wire.REQUEST: json.dumps(manifest | changes).encode()}
    tree = objects.overlay(there, f"refs/heads/{branch}^{{tree}}", files)
    who = objects.Identity("A Stranger", "stranger@example.invalid")
    commit = objects.commit(there, tree, objects.parents_of(there, f"refs/heads/{branch}"), "x\n", who)
    there("update-ref", f"refs/heads/{branch}", commit)


def test_a_strangers_branch_of_that_name_is_not_taken_for_the_request(
    client, git, bus, tmp_path, asked, monkeypatch
):
    monkeypatch.setattr("bridge.requests.idempotency.time.time", lambda: 1_700_000_050.0)
    first = client.run("noop", idempotency_key="a")
    forged(bus, first.branch, requested_by="stranger@example.invalid")
    git(tmp_path, "clone", "--quiet", str(bus), "second")

    with pytest.raises(InfrastructureError, match="is not yours"):
        Client(tmp_path / "second", presets=asked).run("noop", idempotency_key="a")


def test_a_branch_without_a_manifest_is_not_taken_for_the_request(
    client, git, bus, tmp_path, asked, monkeypatch
):
    monkeypatch.setattr("bridge.requests.idempotency.time.time", lambda: 1_700_000_050.0)
    first = client.run("noop", idempotency_key="a")
    git(bus, "update-ref", f"refs/heads/{first.branch}", "refs/heads/main")
    git(tmp_path, "clone", "--quiet", str(bus), "second")
    # In a later minute its name is another one.
    monkeypatch.setattr("bridge.requests.idempotency.time.time", lambda: 1_700_000_200.0)

    second = Client(tmp_path / "second", presets=asked).run("noop", idempotency_key="a")

    assert not second.existing
    assert second.branch != first.branch


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb"])
def test_what_is_no_key_is_told(client, key):
    with pytest.raises(UsageError, match="1 to 200 printable characters"):
        client.run("noop", idempotency_key=key)


def test_what_is_forgotten_is_gone_with_its_key(client):
    first = client.run("noop", idempotency_key="a")
    client.sent.forget(first.branch)

    assert client.git.text("for-each-ref", KEYS) == ""


def test_a_note_that_cannot_be_written_is_told(client, clone, git, bus):
    (clone / ".git" / "refs" / "kakeya-keys").write_text("in the way")

    with pytest.raises(InfrastructureError):
        client.run("noop", idempotency_key="a")

    assert on_bus(git, bus) == []
