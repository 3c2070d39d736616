"""What follows from a reading of the bus, given what was written and read before."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest

from bridge.bus import exact_refs
from bridge.bus.known import sightings
from bridge.bus.known.sightings import ASK_S, GRACE_S, Sightings

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
    "what another one's deletion has removed": (["r a", LATER, "r"], "a", None),
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


def test_of_very_many_branches_old_ones_are_forgotten(world, monkeypatch):
    monkeypatch.setattr(sightings, "MOST_KNOWN", 5)
    names = [f"{NAME}{i}" for i in range(9)]
    world.seen.record(dict.fromkeys(names, "a"))
    world.do(LATER)
    assert world.seen.judge({names[0]: "ab"}, lambda _: False) == {names[0]: "ab"}
    assert [world.seen.tip(name) for name in names] == ["a", *[None] * 8]


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


def test_the_primary_is_asked_by_a_push_that_sends_nothing(user_git, bus, git):
    first = user_git.text("rev-parse", "main")
    known = user_git.text("commit-tree", f"{first}^{{tree}}", "-p", first, "-m", "known")
    foreign = git(bus, "commit-tree", "-p", first, "-m", "foreign", f"{first}^{{tree}}")
    user_git("push", "--quiet", "origin", f"{known}:refs/heads/{NAME}0", f"{first}:refs/heads/{NAME}1")
    git(bus, "update-ref", f"refs/heads/{NAME}2", foreign)
    before = git(bus, "for-each-ref")

    told = exact_refs.ask_primary(user_git, "origin", {f"{NAME}{i}": known for i in range(4)})

    assert told == {f"{NAME}0": known, f"{NAME}1": first, f"{NAME}2": foreign, f"{NAME}3": None}
    assert git(bus, "for-each-ref") == before
    assert exact_refs.ask_primary(user_git, "/nowhere.git", {NAME: known}) == {}


@pytest.mark.parametrize(
    ("deleted", "age_s", "reading", "tip"),
    [
        (False, 1.0, None, True),
        (False, 2 * GRACE_S, None, None),
        (True, 1.0, True, None),
        (True, 2 * GRACE_S, True, True),
    ],
)
def test_what_an_earlier_command_wrote_is_known(user_git, monkeypatch, deleted, age_s, reading, tip):
    commit = user_git.text("rev-parse", "main")
    now = time.time(), time.monotonic()
    sightings.OwnWrites(user_git, "https://one.example/x").note(NAME, commit, deleted=deleted)
    monkeypatch.setattr(sightings.time, "time", lambda: now[0] + age_s)
    monkeypatch.setattr(sightings.time, "monotonic", lambda: now[1] + age_s)

    for address, expected in [("https://one.example/x", tip), ("https://two.example/x", reading)]:
        seen = Sightings(sightings.Ancestry(user_git))
        sightings.OwnWrites(user_git, address).load(seen)
        assert seen.judge_one(NAME, commit if reading else None) == (commit if expected else None)


def test_records_without_parents_are_ordered_by_their_dates(user_git):
    tree = user_git.text("rev-parse", "main^{tree}")
    early, late = (
        user_git.with_env(GIT_COMMITTER_DATE=f"{at} +0000").text("commit-tree", tree, "-m", "a record")
        for at in (1_790_000_000, 1_790_000_300)
    )
    seen = Sightings(sightings.Dates(user_git))
    seen.record({NAME: late})
    assert seen.judge_one(NAME, early) == late
    seen = Sightings(sightings.Dates(user_git))
    seen.record({NAME: early})
    assert seen.judge_one(NAME, late) == late
