"""Compares each reading of a bus with what this process knows already, because a reading may be outdated.

Hosts answer readers from replicas, mirrors and caches, which lag behind. Only a push always reaches the primary. So a
reading that shows an ancestor of what this process wrote or read, or no reference where one was known a moment ago, is
no news. Then the primary is asked, by the dry run of a push; and if this process may not push there, what is known
stands until it is ``GRACE_S`` seconds old. By then every copy has it, so a deletion or a rewrite is real.

A reference is *overtaken* if the primary has moved it from the newest known commit, and no reading shows yet where to.
"""

import hashlib
import math
import re
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bridge.bus import history, objects
from bridge.bus.hosts import address
from bridge.bus.times import commit_times
from bridge.common import limits
from bridge.system.git import Git
from bridge.system.local_files import NoteFile

# How long an older reading of the bus is distrusted. Readers are expected to lag by less than half of this.
GRACE_S = 60.0
# How long the primary's answer about a reference counts, and about how many references it is asked at once.
ASK_S = 5.0
_MOST_ASKED = 50
# How many earlier values of a reference are remembered, and for how long a measured lag counts.
_MOST_PAST = 8
MOST_KNOWN = 2 * limits.BRANCHES
_LAG_LASTS_S = 600.0

_FILE, _MOST_LINES = "kakeya-wrote", 200
# A commit, whether it was written or deleted, the wall and the monotonic clock, a digest of the address, the branch.
_LINE = re.compile(
    r"([0-9a-f]{40}) (at|gone) ([0-9]{1,12}\.[0-9]{6}) ([0-9]{1,12}\.[0-9]{6}) ([0-9a-f]{16}) (\S+)"
)


class Order(Protocol):
    """Decides which of two values of a reference is earlier."""

    def is_here(self, oid: str) -> bool:
        """Return whether the commit was fetched or made here. A commit that was never here is news."""

    def is_earlier(self, oid: str, than: str) -> bool:
        """Return whether a commit is earlier than another one. Both are in this repository."""


@dataclass(frozen=True)
class Ancestry:
    """The order of commits on a branch."""

    git: Git

    def is_here(self, oid: str) -> bool:  # noqa: D102
        return oid in objects.locate(self.git, [oid])

    def is_earlier(self, oid: str, than: str) -> bool:  # noqa: D102
        return oid != than and history.is_ancestor(self.git, oid, than)


@dataclass(frozen=True)
class Dates(Ancestry):
    """The order of commits without parents that one machine wrote, such as a runner's presence records."""

    def is_earlier(self, oid: str, than: str) -> bool:  # noqa: D102
        at, later = commit_times(self.git, [oid, than])
        return at is not None and later is not None and at < later


# A function that asks the primary for the values of references, given the known ones; it leaves out
# references without an answer.
Ask = Callable[[Mapping[str, str]], Mapping[str, str | None]]


@dataclass
class _Known:
    """The newest known value of a reference (None: it is deleted). All times are monotonic."""

    tip: str | None
    # The times since which this value is known, and since which the reference is known to exist.
    since: float
    born: float
    # Earlier values, and when each was replaced.
    past: list[tuple[str, float]] = field(default_factory=list)
    # When the primary contradicted this value, by refusing a push or naming another value; None once a
    # reading shows the newer value.
    overtaken: float | None = None
    # When the primary was last asked, and when it last confirmed this value although a reading contradicted
    # it.
    asked_at: float = -math.inf
    confirmed: float = -math.inf
    # Whether this process wrote the value, and so has the right to ask the primary about it.
    is_own: bool = False

    def confirms(self, reading: str | None) -> bool:
        """Return whether a reading is this value, and nothing contradicts it. So it is with most references."""
        return reading == self.tip and self.overtaken is None

    def replace(self, tip: str | None, now: float) -> None:
        """Replace the value by a newer one."""
        if self.tip is None:
            self.born = now
        else:
            self.past = [*self.past, (self.tip, now)][-_MOST_PAST:]
        self.tip, self.since, self.overtaken, self.confirmed = tip, now, None, -math.inf


class Sightings:
    """What is known about the references of one bus. Any thread may use it.

    The primary is asked about references that this process wrote; with ``asks_all``, also about the others.
    """

    def __init__(
        self, order: Order, ask: Ask = lambda _: {}, grace_s: float = GRACE_S, *, asks_all: bool = False
    ) -> None:
        self.grace_s = grace_s
        self._order = order
        self._ask = ask
        self._asks_all = asks_all
        self._known: dict[str, _Known] = {}
        self._lag = (0.0, 0.0)
        self._lock = threading.RLock()

    @property
    def lag_s(self) -> float:
        """By how many seconds, at least, readings of the bus lag behind pushes, as this process has lately noticed."""
        lag_s, at = self._lag
        return lag_s if time.monotonic() - at < _LAG_LASTS_S else 0.0

    def tip(self, name: str) -> str | None:
        """Return the newest known value of a reference, or None."""
        known = self._known.get(name)
        return known.tip if known else None

    def is_overtaken(self, name: str) -> bool:
        """Return whether the primary has moved a reference, and no reading shows yet where to."""
        known = self._known.get(name)
        return known is not None and known.overtaken is not None

    def record(self, tips: Mapping[str, str | None], age_s: float = 0.0, *, own: bool = False) -> None:
        """Record values that this process fetched or, with ``own``, wrote (None: deleted), ``age_s`` seconds ago."""
        if not self.grace_s:
            return
        now = time.monotonic() - age_s
        with self._lock:
            for name, tip in tips.items():
                known = self._known.get(name)
                if known is None:
                    known = self._known[name] = _Known(tip, now, now)
                elif known.tip != tip:
                    known.replace(tip, now)
                elif own:
                    known.overtaken = None
                known.is_own |= own

    def record_deletion(self, tips: Mapping[str, str], age_s: float = 0.0) -> None:
        """Record that this process deleted references, which were at these values."""
        self.record(tips, age_s, own=True)
        self.record(dict.fromkeys(tips), age_s, own=True)

    def record_refusal(self, name: str, expect: str | None) -> None:
        """Record that the primary refused a push, because the reference is no longer at ``expect``."""
        if not self.grace_s:
            return
        now = time.monotonic()
        with self._lock:
            known = self._known.setdefault(name, _Known(expect, now, now))
            known.is_own = True
            if known.tip == expect:
                known.overtaken = known.confirmed = now

    def judge(
        self, reading: Mapping[str, str], is_listed: Callable[[str], bool] = lambda _: True
    ) -> dict[str, str]:
        """Return a listing in which known newer values replace older ones.

        ``is_listed`` says of each known reference whether the listing would show it.
        """
        if not self.grace_s:
            return dict(reading)
        with self._lock:
            self._forget(reading)
            absent = [name for name in self._known if name not in reading and is_listed(name)]
            read: dict[str, str | None] = {**reading, **dict.fromkeys(absent)}
            questions = self._to_ask(read)
        primary = self._ask(questions) if questions else {}
        with self._lock:
            for name in primary.keys() & questions.keys():
                if (known := self._known.get(name)) and known.tip == questions[name]:
                    _learn(known, primary[name], read[name])
            now = {name: self._settle(name, oid) for name, oid in read.items()}
        return {name: tip for name, tip in now.items() if tip}

    def judge_one(self, name: str, reading: str | None) -> str | None:
        """Judge a single reading."""
        return self.judge({name: reading} if reading else {}, name.__eq__).get(name)

    def _to_ask(self, read: Mapping[str, str | None]) -> dict[str, str]:
        """Return the references of a reading about which to ask the primary now, with their known values."""
        now, questions = time.monotonic(), dict[str, str]()
        for name, reading in read.items():
            known = self._known.get(name)
            if known is None or known.confirms(reading):
                continue
            if not (known.tip and (known.is_own or self._asks_all) and now - known.asked_at >= ASK_S):
                continue
            grace_s = math.inf if known.is_own else self.grace_s
            if self._outdated_since(known, reading, grace_s) is not None:
                known.asked_at, questions[name] = now, known.tip
                if len(questions) == _MOST_ASKED:
                    break
        return questions

    def _settle(self, name: str, reading: str | None) -> str | None:
        """Return the newest value of a reference after a reading."""
        known = self._known.get(name)
        if known is None or known.confirms(reading):
            return reading
        outdated_since = self._outdated_since(known, reading, self.grace_s)
        now = time.monotonic()
        if outdated_since is not None:
            if now - outdated_since > self.lag_s:
                self._lag = now - outdated_since, now
            return known.tip
        if reading == known.tip:
            known.overtaken = None
        elif reading is None:
            known.replace(None, now)
        # A new commit counts as known only once it is fetched: another copy of the bus may not have it yet.
        return reading

    def _outdated_since(self, known: _Known, reading: str | None, grace_s: float) -> float | None:
        """Return since when a reading is outdated; None if it is newer than the known value, or equal to it."""
        now = time.monotonic()

        def counts(at: float) -> bool:
            return now - at < grace_s

        if reading == known.tip:
            return known.overtaken if known.overtaken is not None and counts(known.overtaken) else None
        if reading is None:
            return known.born if counts(max(known.born, known.confirmed)) else None
        if not self._order.is_here(reading):
            return None
        before = [(oid, at) for oid, at in known.past if counts(at)]
        if known.tip is not None:
            if self._order.is_earlier(known.tip, reading):
                return None
            if counts(max(known.since, known.confirmed)):
                before.append((known.tip, known.since))
        return next(
            (at for oid, at in before if reading == oid or self._order.is_earlier(reading, oid)), None
        )

    def _forget(self, reading: Container[str]) -> None:
        """Forget values that no copy shows any more; if there are very many references, all that this reading lacks."""
        now, too_many = time.monotonic(), len(self._known) > MOST_KNOWN
        old = [
            name
            for name, known in self._known.items()
            if (known.tip is None or (too_many and not known.is_own and name not in reading))
            and now - max(known.since, known.confirmed) >= self.grace_s
        ]
        for name in old:
            del self._known[name]


def _learn(known: _Known, primary: str | None, reading: str | None) -> None:
    """Record where the primary says that a reference is, which was read as ``reading``."""
    now = time.monotonic()
    if primary == known.tip:
        known.confirmed, known.overtaken = now, None
    elif primary in (reading, None):
        known.replace(primary, now)
    else:
        known.overtaken = known.confirmed = now


class OwnWrites:
    """A file in the clone with the references that its commands have just written to a remote."""

    def __init__(self, git: Git, url: str) -> None:
        self._where = hashlib.sha256(url.encode()).hexdigest()[:16]
        self._file = NoteFile(git, _FILE, _LINE, _MOST_LINES)

    def load(self, sightings: Sightings) -> None:
        """Record the references that earlier commands wrote in ``sightings``."""
        for age_s, (oid, kind, *_, where, branch) in self._recent():
            if where == self._where:
                if kind == "at":
                    sightings.record({branch: oid}, age_s, own=True)
                else:
                    sightings.record_deletion({branch: oid}, age_s)

    def note(self, branch: str, oid: str, *, deleted: bool = False) -> None:
        """Note that a branch was set to a commit or, with ``deleted``, was at the commit and is deleted."""
        recent = [" ".join(groups) for _, groups in self._recent()]
        clocks = f"{time.time():.6f} {time.monotonic():.6f}"
        self._file.write([*recent, f"{oid} {'gone' if deleted else 'at'} {clocks} {self._where} {branch}"])

    def _recent(self) -> Iterable[tuple[float, tuple[str, ...]]]:
        """Return the lines that still count, each with its age in seconds."""
        wall, running = time.time(), time.monotonic()
        # The wall clock can be set, and the monotonic clock restarts with each boot: both must agree.
        aged = [
            (max(wall - float(line[2]), running - float(line[3])), line)
            for line in self._file.read()
            if float(line[2]) <= wall and float(line[3]) <= running
        ]
        return [(age_s, line) for age_s, line in aged if age_s < GRACE_S]


_shared: dict[tuple[str, ...], Sightings] = {}
_lock = threading.Lock()


def shared(git: Git, url: str, push_url: str, private: str, make: Callable[[float], Sightings]) -> Sightings:
    """Return what this process knows about a remote, whichever client asks. ``make`` takes the grace in seconds."""
    key = (str(git.directory.absolute()), url, push_url, private)
    with _lock:
        if key not in _shared:
            # A bus in a folder on this machine has no copies, so each reading is current.
            has_copies = not all(address.parse(each).is_local for each in (url, push_url))
            known = _shared[key] = make(GRACE_S if has_copies else 0.0)
            if has_copies:
                OwnWrites(git, url).load(known)
        return _shared[key]
