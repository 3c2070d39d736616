"""A push whose reply is lost: what arrived is not sent twice, and what may have arrived is known here."""

from __future__ import annotations

import pytest

from bridge.client import Client
from bridge.errors import InfrastructureError, RefusedError

pytestmark = pytest.mark.bus


@pytest.fixture
def lossy(client, clone, git, http_bus):
    """A bus over HTTP that loses the reply to each push; returns it."""
    git(clone, "remote", "set-url", "origin", http_bus.url)
    http_bus.loses_reply = lambda _: True
    return http_bus


def requests_on(bus, git):
    return git(bus, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/mac-bridge/").splitlines()


@pytest.mark.parametrize("key", [None, "a"])
def test_a_request_that_arrived_counts_as_sent(client, lossy, bus, git, key):
    sent = client.run("noop", idempotency_key=key)

    assert requests_on(bus, git) == [sent.branch]
    assert client.find().status().state == "requested"


@pytest.fixture
def vanishing(lossy, bus):
    """The bus goes away with the first push, after it has taken it; returns a function that brings it back."""
    away = bus.with_name("away.git")

    def vanish(_):
        bus.rename(away)
        return True

    lossy.loses_reply = vanish

    def come_back():
        lossy.loses_reply = lambda _: False
        away.rename(bus)

    return come_back


def test_a_request_that_may_have_arrived_is_known_and_can_be_cancelled(client, vanishing, bus, git):
    with pytest.raises(InfrastructureError, match="the reply of origin") as caught:
        client.run("noop")
    vanishing()

    (branch,) = requests_on(bus, git)
    assert (caught.value.code, caught.value.as_dict()["safe_to_retry"]) == ("unsure", False)
    assert caught.value.fix == f"Look before you send it again, or it may run twice: kakeya status {branch}"
    assert client.find().branch == branch
    assert client.find().cancel().detail == "cancelled by the requester before a runner took it"


def test_a_call_with_the_same_key_sends_nothing_twice(client, vanishing, bus, git):
    with pytest.raises(InfrastructureError) as caught:
        client.run("noop", idempotency_key="a")
    vanishing()

    sent = client.run("noop", idempotency_key="a")

    assert "the same key" in caught.value.fix
    assert requests_on(bus, git) == [sent.branch]


def test_a_cancellation_that_arrived_is_made_once(client, lossy, bus, git):
    sent = client.run("noop")
    sent.cancel()

    subjects = git(bus, "log", "--format=%s", f"{sent.commit}..{sent.branch}").splitlines()
    assert subjects == [f"Cancel {sent.branch}"]


def test_a_deletion_that_arrived_is_done(client, lossy, bus, git):
    sent = client.run("noop")

    assert client.remote.delete(sent.branch, expect=sent.commit)
    assert requests_on(bus, git) == []


@pytest.mark.parametrize("why", ["declined", "unreachable"])
def test_what_was_certainly_not_sent_leaves_no_note(clone, bus, git, why):
    if why == "declined":
        hook = bus / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    else:
        git(clone, "remote", "set-url", "origin", "http://127.0.0.1:1/bus.git")
    client = Client(clone)

    with pytest.raises((RefusedError, InfrastructureError)) as caught:
        client.run("noop")

    assert caught.value.code != "unsure"
    assert client.sent.branches() == []
