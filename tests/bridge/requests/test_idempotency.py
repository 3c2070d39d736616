"""One key, one request: however often it is asked, whatever died on the way, and whatever strangers push."""

from __future__ import annotations

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from bridge.bus import objects, wire
from bridge.bus.remote import Remote
from bridge.client import Client
from bridge.errors import InfrastructureError, KakeyaError, UsageError
from bridge.requests.idempotency import FILE_NAME, SETTING
from bridge.requests.outbox import KEYS
from bridge.requests.waiting import Code
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


@pytest.fixture
def elsewhere(git, bus, tmp_path, asked):
    """A clone that knows nothing of the first."""
    git(tmp_path, "clone", "--quiet", str(bus), "second")
    return Client(tmp_path / "second", presets=asked)


@pytest.fixture
def shared(git, clone):
    """A secret that all clones of the requester have."""
    git(clone, "config", "--global", SETTING, "of one requester")


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


@pytest.mark.rows(2)
@pytest.mark.parametrize(
    "other",
    [{"params": {"n": 6}}, {"preset": "noop"}, {"ref": "main"}, {"labels": ["gpu"]}],
    ids=["params", "preset", "ref", "labels"],
)
@pytest.mark.parametrize("again", ["here", "elsewhere"])
@pytest.mark.usefixtures("shared")
def test_something_else_under_the_same_key_is_an_error(client, git, bus, elsewhere, other, again):
    client.run("count", {"n": 5}, idempotency_key="a")
    if again == "elsewhere":
        client = elsewhere
    call = {"preset": "count", "params": {"n": 5}, "idempotency_key": "a"} | other

    with pytest.raises(UsageError, match="was used for another request") as caught:
        client.run(**{**call, "params": {} if call["preset"] == "noop" else call["params"]})

    assert caught.value.code == "idempotency_conflict"
    assert len(on_bus(git, bus)) == 1


def test_a_default_that_is_spelled_out_is_the_same_request(client):
    first = client.run("count", idempotency_key="a")

    assert client.run("count", {"n": 5}, idempotency_key="a").branch == first.branch


@pytest.mark.usefixtures("shared")
def test_a_clone_with_the_same_secret_finds_the_request(client, elsewhere):
    first = client.run("noop", idempotency_key="a")

    second = elsewhere.run("noop", idempotency_key="a")

    assert (second.branch, second.commit, second.existing) == (first.branch, first.commit, True)


@pytest.mark.usefixtures("shared")
def test_a_clone_with_the_same_secret_finds_a_request_that_has_its_answer(client, keyed, elsewhere):
    first = client.run("noop", idempotency_key="a")
    keyed.handle()

    second = elsewhere.run("noop", idempotency_key="a")

    assert (second.branch, second.commit, second.existing) == (first.branch, first.commit, True)


@pytest.mark.usefixtures("shared")
def test_another_requester_has_keys_of_its_own(client, git, elsewhere, tmp_path):
    client.run("noop", idempotency_key="a")
    git(tmp_path / "second", "config", "user.email", "other@example.invalid")

    assert not elsewhere.run("noop", idempotency_key="a").existing


@pytest.mark.parametrize(
    "secret", ["", "horse", "fifteen letters", "aaaaaaaaaaaaaaaaaaaa", "ein Schlüssel aus Wörtern"]
)
def test_a_shared_secret_that_others_could_guess_is_refused(secret, client, clone, git, bus):
    git(clone, "config", "--global", SETTING, secret)

    with pytest.raises(UsageError, match=SETTING) as caught:
        client.run("noop", idempotency_key="a")

    assert secret == "" or secret not in str(caught.value)
    assert on_bus(git, bus) == []


def test_a_clone_keeps_its_secret_to_its_user(client, clone):
    client.run("noop", idempotency_key="a")
    secret = (clone / ".git" / FILE_NAME).read_text()
    client.run("noop", idempotency_key="b")

    assert (clone / ".git" / FILE_NAME).read_text() == secret
    assert len(secret) == 64
    assert (clone / ".git" / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (clone / ".git").glob(f"{FILE_NAME}*")] == [FILE_NAME]


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


def test_a_request_that_could_not_be_sent_before_it_expired_does_not_use_up_the_key(client, bus):
    hook = bus / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'not now' >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(KakeyaError):
        client.run("noop", lifetime=timedelta(seconds=1), idempotency_key="a")
    time.sleep(2.1)
    hook.unlink()

    run = client.run("noop", idempotency_key="a")
    assert not run.existing
    assert client.run("noop", idempotency_key="a").existing
    assert run.status().reason.code is Code.UNKNOWN


def test_a_lost_reply_of_an_expired_request_sends_no_second_one(client, monkeypatch):
    def lost(self, branch, commit, *, expect):
        push(self, branch, commit, expect=expect)
        raise InfrastructureError("the reply is lost", code="unsure")

    push = Remote.push
    with monkeypatch.context() as patch:
        patch.setattr(Remote, "push", lost)
        with pytest.raises(InfrastructureError):
            client.run("noop", lifetime=timedelta(seconds=1), idempotency_key="a")
    time.sleep(2.1)

    run = client.run("noop", idempotency_key="a")
    assert run.existing
    assert run.status().reason.code is Code.EXPIRED


def test_calls_side_by_side_send_one_request(clone, asked, git, bus):
    def call(_):
        return Client(clone, presets=asked).run("noop", idempotency_key="a").branch

    with ThreadPoolExecutor(4) as pool:
        branches = set(pool.map(call, range(4)))

    assert set(on_bus(git, bus)) == branches
    assert len(branches) == 1


@pytest.mark.usefixtures("shared")
def test_clones_side_by_side_in_one_minute_send_one_request(client, git, bus, elsewhere, monkeypatch):
    monkeypatch.setattr("bridge.requests.idempotency.time.time", lambda: 1_700_000_050.0)
    other = elsewhere
    # Neither sees the other's branch before it pushes.
    with monkeypatch.context() as patch:
        patch.setattr(Remote, "list_branches", lambda *_: {})
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


def mine(run, git, bus):
    """Return whether a run is on the bus with the commit that this clone made, upon this clone's workload."""
    there = git(bus, "rev-parse", f"refs/heads/{run.branch}")
    return there == run.commit and git(bus, "log", "-1", "--format=%s", f"{there}^") == "A workload"


def strangers_commit(elsewhere, message="x\n"):
    """Return a commit that nobody but a stranger made, pushed nowhere."""
    who = objects.Identity("A Stranger", "stranger@example.invalid")
    return objects.commit(elsewhere.git, elsewhere.git.text("rev-parse", "HEAD^{tree}"), [], message, who)


@pytest.mark.parametrize("again", ["here", "after the notes were lost"])
def test_row_116_a_request_that_a_stranger_sends_under_my_name_and_key_is_not_mine(
    client, elsewhere, git, bus, again
):
    """The stranger runs the same program, with the requester's e-mail address and a key that is easy to guess."""
    theirs = elsewhere.run("noop", idempotency_key="job-17", requested_by="tester@example.invalid")
    if again != "here":
        run = client.run("noop", idempotency_key="job-17")
        client.sent.forget(run.branch)

    run = client.run("noop", idempotency_key="job-17")

    assert run.branch != theirs.branch
    assert mine(run, git, bus)
    assert run.existing is (again != "here")


def test_row_116_names_that_depend_on_what_is_public_keep_no_key_from_use(
    client, elsewhere, git, bus, monkeypatch
):
    """Names as earlier versions made them: of the minute, the requester, the key and the content alone."""
    monkeypatch.setattr("bridge.requests.idempotency.time.time", lambda: 1_700_000_050.0)

    def half(value):
        return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()[:16]

    asked = {"preset": "noop", "params": {}, "ref": "HEAD", "snapshot": False, "labels": []}
    digits = half(["tester@example.invalid", "job-17"]) + half(asked)
    squatted = f"mac-bridge/noop-1700000040-{digits}"
    elsewhere.git("push", "--quiet", "origin", f"HEAD:refs/heads/{squatted}")

    run = client.run("noop", idempotency_key="job-17")

    assert mine(run, git, bus)
    assert run.branch != squatted


@pytest.mark.parametrize("by", ["a request", "a commit of mine", "my request under another name"])
def test_row_116_a_branch_that_somebody_overwrote_does_not_use_up_the_key(
    client, elsewhere, git, bus, monkeypatch, by
):
    """The client dies between the push and its end. Before the next call, somebody puts another commit there."""
    push = Remote.push

    def dying(self, *args, **more):
        push(self, *args, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Remote, "push", dying)
        with pytest.raises(KeyboardInterrupt):
            client.run("noop", idempotency_key="a")
    (squatted,) = on_bus(git, bus)
    if by == "a request":
        forged(bus, squatted, params={})
    elif by == "a commit of mine":
        git(bus, "update-ref", f"refs/heads/{squatted}", "refs/heads/main")
    else:
        other = client.run("noop", idempotency_key="b")
        git(bus, "update-ref", f"refs/heads/{squatted}", other.commit)

    run = client.run("noop", idempotency_key="a")

    assert run.branch != squatted
    assert mine(run, git, bus)
    assert client.run("noop", idempotency_key="a").branch == run.branch
    client.sent.forget(run.branch)
    assert client.run("noop", idempotency_key="a").branch == run.branch


def test_row_116_a_note_that_a_mirror_fetched_is_not_mine(client, elsewhere, git, bus, clone):
    client.run("noop", idempotency_key="a")
    (note,) = client.git.text("for-each-ref", "--format=%(refname)", KEYS).splitlines()
    sent = client.sent.branches()[0]
    client.sent.forget(sent)
    theirs = strangers_commit(elsewhere, f"Request noop\n\nBranch: {sent}\nKey: {'0' * 64}\n")
    elsewhere.git("push", "--quiet", "origin", f"{theirs}:{note}")
    git(clone, "fetch", "--quiet", "origin", "+refs/kakeya-keys/*:refs/kakeya-keys/*")
    git(bus, "update-ref", "-d", f"refs/heads/{sent}")

    run = client.run("noop", idempotency_key="a")

    assert not run.existing
    assert mine(run, git, bus)


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
