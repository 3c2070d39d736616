"""The order of sending is recorded, and not guessed from names."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from bridge.cli import main
from bridge.client import Client
from bridge.requests.outbox import Sent


@pytest.fixture
def head(user_git) -> str:
    return user_git.text("rev-parse", "HEAD")


def branch(seconds: int, nonce: str) -> str:
    return f"mac-bridge/noop-{seconds}-{nonce}"


def commits(user_git, head: str, count: int) -> list[str]:
    tree = f"{head}^{{tree}}"
    return [user_git.text("commit-tree", tree, "-m", str(i)) for i in range(count)]


def test_of_requests_within_one_second_the_last_sent_is_the_last(user_git, head):
    sent = Sent(user_git)
    order = [branch(1700000000, nonce) for nonce in ("ffffff", "000000", "888888")]
    for name, commit in zip(order, commits(user_git, head, 3), strict=True):
        sent.add(name, commit)

    assert sent.branches() == order


def test_a_clock_that_was_set_back_changes_no_order(user_git, head):
    sent = Sent(user_git)
    order = [branch(1800000000, "abcdef"), branch(1700000000, "abcdef")]
    for name, commit in zip(order, commits(user_git, head, 2), strict=True):
        sent.add(name, commit)

    assert sent.branches() == order


def test_notes_of_older_versions_come_first_by_their_age(user_git, head):
    old = [branch(1700000000, "aaaaaa"), branch(1700000001, "aaaaaa")]
    made = commits(user_git, head, 3)
    for name, commit in zip(reversed(old), made, strict=False):
        user_git("update-ref", f"refs/kakeya-sent/{name}", commit)
    sent = Sent(user_git)
    sent.add(branch(1600000000, "bbbbbb"), made[2])

    assert sent.branches() == [*old, branch(1600000000, "bbbbbb")]


def test_what_is_forgotten_leaves_nothing_and_the_order_stays(user_git, head):
    sent = Sent(user_git)
    names = [branch(1700000000, nonce) for nonce in ("cccccc", "bbbbbb", "aaaaaa")]
    made = commits(user_git, head, 4)
    for name, commit in zip(names, made, strict=False):
        sent.add(name, commit)
    sent.forget(names[2])
    sent.add(branch(1700000000, "999999"), made[3])

    assert sent.branches() == [*names[:2], branch(1700000000, "999999")]
    for name in sent.branches():
        sent.forget(name)
    assert user_git.text("for-each-ref", "refs/kakeya-sent", "refs/kakeya-order") == ""


def test_many_that_send_at_once_are_all_noted(user_git, head):
    sent = Sent(user_git)
    made = commits(user_git, head, 8)
    names = [branch(1700000000 + i, "abcdef") for i in range(8)]
    threads = [threading.Thread(target=sent.add, args=pair) for pair in zip(names, made, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(sent.branches()) == names
    numbers = user_git.text("for-each-ref", "--format=%(refname)", "refs/kakeya-order").split("\n")
    assert len(numbers) == 8


def test_the_default_is_the_last_request_without_a_pause_between_them(client):
    last = [client.run("noop") for _ in range(4)][-1]

    assert client.find().branch == last.branch


def test_gc_says_why_nothing_goes(clone):
    client = Client(clone)
    client.run("noop")

    swept = client.sweep(timedelta(days=14), remote=True)

    assert (swept.gone, swept.young) == ([], 1)
    assert list(swept.explain_unswept("14 days")) == [
        "1 are younger than 14 days: --older-than DUR takes younger ones too"
    ]
    later = client.sweep(timedelta(seconds=-60), remote=True, dry_run=True)
    assert later.unanswered == 1


@pytest.mark.parametrize("how", ["pushurl", "pushInsteadOf"])
def test_a_request_that_goes_to_another_repository_is_told_with_both_addresses(
    clone, bus, git, tmp_path, how, capsys, monkeypatch
):
    other = tmp_path / "other.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(bus), str(other))
    key = "remote.origin.pushurl" if how == "pushurl" else f"url.{other}.pushInsteadOf"
    git(clone, "config", key, str(other if how == "pushurl" else bus))
    monkeypatch.chdir(clone)
    monkeypatch.setattr("sys.argv", ["kakeya", "run", "noop", "--wait", "1s"])
    with pytest.raises(SystemExit):
        main()

    said = capsys.readouterr().err
    assert f"read from {bus}, but git pushes to {other}" in said
    assert "must be the same repository" in said


def test_two_addresses_of_one_repository_are_no_fault(clone, bus, git, capsys, monkeypatch):
    git(clone, "config", "remote.origin.pushurl", f"file://{bus}")
    monkeypatch.chdir(clone)
    monkeypatch.setattr("sys.argv", ["kakeya", "run", "noop"])
    with pytest.raises(SystemExit):
        main()

    assert "pushes to" not in capsys.readouterr().err
