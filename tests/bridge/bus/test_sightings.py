"""What follows from a reading of the bus, given what was written and read before."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from bridge.bus import sightings
from bridge.bus.sightings import ASK_S, GRACE_S, Sightings

# A commit is the line that leads to it: "ab" is the child of "a". Upper case: it was never fetched.
NAME = "mac-bridge/noop-1790000001-abc123"


class Lines:
    """The order of such commits."""

    def is_here(self, oid: str) -> bool:
        return oid.islower()

    def is_earlier(self, oid: str, than: str) -> bool:
        return oid != than and than.startswith(oid)


@dataclass
class Primary:
    """Where pushes go; `at` is where the branch is there, and `silent` a primary that tells nothing."""

    at: str | None = None
    silent: bool = True
    asked: list[str] = field(default_factory=list)

    def __call__(self, known):
        self.asked += known.values()
        return {} if self.silent else dict.fromkeys(known, self.at)


@dataclass
class World:
    now: float = 1000.0
    primary: Primary = field(default_factory=Primary)

    def __post_init__(self):
        self.seen = Sightings(Lines(), self.primary)

    def read(self, value):
        """Judge a reading, and fetch what is news."""
        tip = self.seen.judge_one(NAME, value)
        if tip and tip.islower():
            self.seen.record({NAME: tip})
        return tip

    def do(self, step):
        """Do one step: wait so many seconds, or w(rite), r(ead), d(elete) or be refused (x) a commit."""
        if isinstance(step, float):
            self.now += step
            return
        what, _, commit = step.partition(" ")
        if what == "w":
            self.seen.record({NAME: commit}, own=True)
        elif what == "r":
            self.read(commit or None)
        elif what == "d":
            self.seen.record_deletion({NAME: commit})
        else:
            self.seen.record_refusal(NAME, commit or None)


@pytest.fixture
def world(monkeypatch):
    made = World()
    monkeypatch.setattr(sightings.time, "monotonic", lambda: made.now)
    return made


LATER = GRACE_S + 1.0
ROWS = {
    "the first reading": ([], "a", "a"),
    "nothing, and nothing was known": ([], None, None),
    "an ancestor of what was written": (["w ab"], "a", "ab"),
    "an ancestor, 30 s later": (["w ab", 30.0], "a", "ab"),
    "an ancestor that stays is a rewind": (["w ab", LATER], "a", "a"),
    "a descendant": (["w ab"], "abc", "abc"),
    "a new commit of somebody else": (["w ab"], "aX", "aX"),
    "a line of somebody else": (["w ab"], "ax", "ax"),
    "absence after a push": (["w a"], None, "a"),
    "absence 30 s later": (["w a", 30.0], None, "a"),
    "absence that stays is a deletion": (["w a", LATER], None, None),
    "absence long after the first, soon after the last push": (["w a", LATER, "w ab"], None, None),
    "an ancestor of what was read": (["r abc"], "ab", "abc"),
    "one copy is fresh, one old": (["r a", "r abc", "r a", "r abc"], "ab", "abc"),
    "absence after it was read": (["r a"], None, "a"),
    "present after its deletion": (["d ab"], "ab", None),
    "an ancestor after its deletion": (["d ab"], "a", None),
    "made again after its deletion": (["d ab"], "x", "x"),
    "present long after its deletion": (["d ab", LATER], "ab", "ab"),
    "what a deletion that was seen has removed": (["w a", LATER, "r"], "a", None),
    "what a rewrite has replaced": (["w ab", "r ax"], "ab", "ax"),
    "an ancestor of what a rewrite has replaced": (["w ab", "r x"], "a", "x"),
    "back to a commit, forward again": (["w ab", LATER, "r a"], "abc", "abc"),
    "the same after a refusal": (["w ab", "x ab"], "ab", "ab"),
    "an older one after a refusal": (["w ab", "x ab"], "a", "ab"),
    "a newer one after a refusal": (["w ab", "x ab"], "abc", "abc"),
    "nothing where a push met something": (["x "], None, None),
}


@pytest.mark.parametrize(("steps", "reading", "tip"), ROWS.values(), ids=ROWS)
def test_a_reading_older_than_what_is_known_is_no_news(world, steps, reading, tip):
    for step in steps:
        world.do(step)
    assert world.read(reading) == tip


@pytest.mark.parametrize(
    ("at", "reading", "tip", "overtaken"),
    [
        ("ab", "a", "ab", False),
        ("ab", None, "ab", False),
        (None, None, None, False),
        (None, "a", None, False),
        ("a", "a", "a", False),
        ("aX", "a", "ab", True),
        ("aX", None, "ab", True),
    ],
)
@pytest.mark.parametrize("waited", [0.0, LATER, 10 * LATER])
def test_the_primary_decides_whenever_it_can_be_asked(world, at, reading, tip, overtaken, waited):
    world.do("w ab")
    world.do(waited)
    world.primary.at, world.primary.silent = at, False

    assert world.read(reading) == tip
    assert world.seen.is_overtaken(NAME) is overtaken
    assert world.read(reading) == tip
    assert len(world.primary.asked) == 1
    world.do(ASK_S)
    assert world.read(reading) == tip


def test_the_primary_is_not_asked_about_what_was_only_read(world):
    world.do("r ab")
    assert world.read("a") == "ab"
    assert world.primary.asked == []


@pytest.mark.parametrize(
    ("steps", "still"),
    [([], True), ([30.0, "r a"], True), ([30.0, "r ab"], True), (["r aX", "r ab"], True), (["r abc"], False),
     (["r ax"], False), ([LATER, "r ab"], False), (["w ab"], False)],
)  # fmt: skip
def test_a_refusal_is_over_once_a_newer_commit_shows_or_the_grace_is_over(world, steps, still):
    for step in ["w ab", "x ab", *steps]:
        world.do(step)
    assert world.seen.is_overtaken(NAME) is still


def test_the_lag_is_measured_and_forgotten(world):
    assert world.seen.lag_s == 0
    world.do("w ab")
    world.do(7.0)
    world.do("r a")
    world.do("r ab")
    assert world.seen.lag_s == 7.0
    world.do(3600.0)
    assert world.seen.lag_s == 0


def test_a_folder_on_this_machine_has_no_copies(world):
    seen = Sightings(Lines(), grace_s=0.0)
    seen.record({NAME: "ab"}, own=True)
    seen.record_refusal(NAME, "ab")
    assert [seen.judge_one(NAME, value) for value in ("a", None, "ab")] == ["a", None, "ab"]
    assert not seen.is_overtaken(NAME)
