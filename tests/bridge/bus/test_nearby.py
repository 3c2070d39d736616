"""Pushes to a bus on this machine end a wait before its time; what else happens there does not."""

from __future__ import annotations

import pytest

from bridge.bus import nearby
from bridge.bus.nearby import TICK_S, Changes
from bridge.client import Client


@pytest.fixture
def clock(monkeypatch):
    """A clock that only a rest moves."""

    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(nearby, "time", clock)
    return clock


@pytest.fixture
def waited(clock):
    """Wait for changes of these branches, while something happens after 1 s. Returns for how long it was waited."""

    def wait(url, names, happens=lambda: None, seconds=10.0, least=0.0):
        began, done = clock.now, []

        def rest(some):
            clock.now += some
            if not done and clock.now >= began + 1:
                done.append(happens())

        changes = Changes(str(url), names)
        changes.mark()
        changes.wait(seconds, rest, least=least)
        return clock.now - began

    return wait


def test_a_push_to_a_branch_or_below_a_folder_ends_the_wait(bus, clone, git, waited):
    assert waited(bus, ["x/one"], lambda: git(clone, "push", "-q", "origin", "HEAD:refs/heads/x/one")) < 2
    assert (
        waited(f"file://{bus}", ["x"], lambda: git(clone, "push", "-q", "origin", "HEAD:refs/heads/x/two"))
        < 2
    )
    git(clone, "commit", "-q", "--allow-empty", "-m", "More")
    assert waited(bus, ["x/one"], lambda: git(clone, "push", "-q", "origin", "HEAD:refs/heads/x/one")) < 2
    assert waited(bus, ["x/one"], lambda: git(clone, "push", "-q", "origin", ":refs/heads/x/one")) < 2


def test_the_first_branch_of_a_folder_ends_the_wait(bus, clone, waited):
    assert waited(bus, ["mac-bridge", "claude"], lambda: Client(clone).run("noop")) < 2


def test_the_wait_goes_on_whatever_else_is_pushed(bus, clone, git, waited):
    git(clone, "push", "-q", "origin", "HEAD:refs/heads/x/one")
    assert waited(bus, ["x/one"], lambda: git(clone, "push", "-q", "origin", "HEAD:refs/heads/x/two")) >= 10


def test_a_change_before_the_least_time_ends_the_wait_then(bus, clone, git, waited):
    spent = waited(bus, ["x"], lambda: git(clone, "push", "-q", "origin", "HEAD:refs/heads/x/one"), least=5.0)
    assert 5 <= spent < 6


def test_what_is_pushed_after_the_mark_is_noticed_at_once(bus, clone, git, clock):
    changes = Changes(str(bus), ["x"])
    changes.mark()
    git(clone, "push", "-q", "origin", "HEAD:refs/heads/x/one")
    changes.wait(10, lambda some: setattr(clock, "now", clock.now + some), least=0.0)
    assert clock.now == pytest.approx(1000 + TICK_S)


@pytest.mark.parametrize(
    "url", ["https://host/bus.git", "host:bus.git", "./bus.git", "/no/such/bus.git", "/\0"]
)
def test_elsewhere_the_whole_time_is_waited_at_once(url):
    rests = []
    changes = Changes(url, ["x"])
    changes.mark()
    changes.wait(0.5, lambda some: rests.append(some) or True, least=0.0)
    assert not changes.are_seen
    assert rests == [pytest.approx(0.5, abs=0.1)]


def test_a_rest_that_says_so_ends_the_wait(bus):
    rests = []
    changes = Changes(str(bus), ["x"])
    changes.mark()
    changes.wait(600, lambda some: rests.append(some) or True, least=0.0)
    assert changes.are_seen
    assert rests == [TICK_S]
