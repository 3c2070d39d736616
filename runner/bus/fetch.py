"""Fetches the request branches into the runner's store: together where it goes, by halves where one is bad."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from bridge.bus import exact_refs
from bridge.bus.objects import is_commit
from bridge.bus.requesters import prefixes, unsigned
from bridge.common import limits
from bridge.errors import InfrastructureError, ProcessError
from bridge.system.child import Child
from bridge.system.git import NETWORK_TIMEOUT, Git
from bridge.system.git_output import refuses_objects
from runner.bus.listing import Listing
from runner.bus.litter import unfinished
from runner.bus.quarantine import HOSTILE, Quarantine
from runner.bus.store import beside, fetch_flags, take_cut
from runner.bus.tips import HEADS, Tips
from runner.bus.weigh import LOOKS, Weigher, weigh

# Where a branch that is fetched alone is put, whatever it is called.
_LOOK = f"{LOOKS}tip"

# Where not one branch came and so many cannot be sent, that is no damage to some of them: it is the bus that fails.
_MOST_UNREADABLE = 20
# Beside branches that come slowly, the others are asked for one by one. At first each has this long, or so many times
# as long as the bus takes to list its branches: most come at once, and must not wait while the slow ones do not.
ALONE_S = 0.5
LISTINGS = 4
# Those that need longer have their turn in each search of so many, while others wait for their first one.
LONG_ONES = 3
# Of commits of which some are slow, this part is asked for together next.
_PART = 8
# A branch that took too long is asked for again after so many times that long.
PAUSES = 2
TOO_SLOW = "cannot fetch from the bus: it takes too long"


@dataclass
class _Search:
    """A search for bad branches: when it is to end, if it settled anything by then, and what it came to."""

    until: float
    settled: bool = False
    unreadable: int = 0
    got: set[str] = field(default_factory=set)

    def is_over(self) -> bool:
        return self.settled and time.monotonic() >= self.until


class _SlowError(InfrastructureError):
    """What was asked for does not come within the time that a poll has for it."""


class Fetcher:
    """Keeps the tips in the store where they are on the bus, but for the branches in quarantine."""

    def __init__(self, git: Git, url: str, patterns: tuple[str, ...], tips: Tips) -> None:
        self.git = git
        self.listing = Listing(git, url, patterns)
        self.quarantine = Quarantine()
        self._url = url
        self._tips = tips
        self._served: dict[str, str] = {}
        self._weigher = Weigher(git)
        self._prefixes = prefixes(patterns)
        # Commits that were in a fetch that failed, in the order of their turns: one of them, or several, made it fail.
        self._suspects: dict[str, None] = {}
        self._listing_s = 0.0
        self._searches = 0
        self._is_put_off = False
        # A commit that takes long to come, and the git that fetches it beside the polls, and where.
        self._slow: tuple[str, Child, Git] | None = None
        self._slow_is_first = False
        # Of these so many are asked for together: fewer after a fetch that took too long, all if none did (None).
        self._together: int | None = None
        # Branches that took too long to be fetched alone, and until when that is not tried again.
        self._late: dict[str, float] = {}
        self._is_behind = True

    def close(self) -> None:
        """End what still runs."""
        self._weigher.close()
        if self._slow:
            self._slow[1].close()
            self._slow = None

    def fetch(self) -> dict[str, str]:
        """Fetch what is new and return where all request branches are, as ``Bus.fetch`` says."""
        began = time.monotonic()
        is_new = self.listing.read()
        self._listing_s = time.monotonic() - began
        if is_new or self._is_behind or self.quarantine.unreadable:
            self._catch_up()
        return self._served

    @property
    def waiting(self) -> list[str]:
        """The branches that are not fetched yet because others that came with them take long."""
        if not self._suspects:
            return []
        return [branch for branch, oid in self.listing.tips.items() if oid in self._suspects]

    def _catch_up(self) -> None:
        listed = self.listing.tips
        self.quarantine.see(listed)
        gone = dict.fromkeys(self._tips.at.keys() - listed.keys())
        self._tips.set(gone)
        new = {b: oid for b, oid in listed.items() if self._tips.at.get(b) != oid}
        self._is_behind = True
        self._bring(new)
        at = self._tips.at
        self._served = {b: oid for b, oid in listed.items() if at.get(b) == oid}
        self._is_behind = any(
            at.get(b) != oid and not self.quarantine.is_hostile(b) for b, oid in new.items()
        )

    def _bring(self, new: Mapping[str, str]) -> None:
        """Bring the commits of these branches into the store, as far as that goes within a poll.

        What was never asked for is asked for at once, and without what could not be sent before. What was part of a
        fetch that failed is searched, for a while in each poll: by halves if something is refused, in short single
        fetches if something is slow. What was too slow for that has a longer one now and then, or comes beside the
        polls.
        """
        ask = {oid for oid in new.values() if not self.quarantine.holds(oid)} - self._weigher.undecided
        self._look_after_slow(ask)
        there = set(new.values())
        self._suspects = {oid: None for oid in self._suspects if oid in there}
        fresh = self._in_turn(ask - self._suspects.keys(), new)
        search = _Search(time.monotonic() + limits.SEARCH_S)
        again = [oid for oid in fresh if self.quarantine.failures(oid)]
        self._search([oid for oid in fresh if oid not in again], search, halve=False)
        self._search(again, search, halve=False)
        # What came at once is served before a slow search goes on, but not twice in a row.
        self._is_put_off = bool(search.got) and self._together is not None and not self._is_put_off
        if not self._is_put_off:
            self._search_on([oid for oid in self._suspects if oid in ask], search)
        self._suspects = {oid: None for oid in self._suspects if oid not in search.got}
        if not self._suspects:
            self._together = None
        self._arrived(new, search.got)
        # No number of bad branches may stop the polls for others: what came once shows that the bus can send.
        nothing_came = search.unreadable and not self._tips.at and not self._suspects
        if nothing_came and self.quarantine.unreadable >= _MOST_UNREADABLE:
            message = f"cannot fetch from the bus: {self.quarantine.unreadable} branches cannot be read"
            raise InfrastructureError(message, code="unreachable")

    def _search_on(self, suspects: list[str], search: _Search) -> None:
        """Go on with the search for what is bad or slow."""
        # It begins when the first fetch has failed, and comes on a little whatever came of that.
        search.until, search.settled = time.monotonic() + limits.SEARCH_S, False
        tried = [oid for oid in suspects if self.quarantine.failures(oid)]
        untried = [oid for oid in suspects if not self.quarantine.failures(oid)]
        self._searches += 1
        if tried and not (untried and self._searches % LONG_ONES):
            for oid in tried:
                self._search([oid], search)
            return
        while untried and not search.is_over():
            some = untried[: self._together]
            del untried[: len(some)]
            self._search(some, search)

    def _in_turn(self, commits: set[str], new: Mapping[str, str]) -> list[str]:
        """Order commits by chance, but so that groups which share the runner's turns alternate."""
        places = {oid: unsigned(branch, "", self._prefixes)[:2] for branch, oid in new.items()}
        count: Counter[tuple[str, ...]] = Counter()
        rank: dict[str, int] = {}
        for oid in random.sample(sorted(commits), len(commits)):
            count[places[oid]] += 1
            rank[oid] = count[places[oid]]
        return sorted(rank, key=rank.__getitem__)

    def _search(self, commits: list[str], search: _Search, *, halve: bool = True) -> None:
        """Fetch commits together; where that fails, by halves, down to those that cannot be fetched alone."""
        if not commits or search.is_over():
            return
        try:
            self._get(commits, self._time_for(commits) if halve else limits.FETCH_S)
        except InfrastructureError as error:
            if len(commits) > 1:
                self._suspects |= {oid: None for oid in commits if oid not in self._suspects}
                if isinstance(error, _SlowError):
                    # This took all the time of a search, and all of them would take it again in the next one.
                    search.settled, self._together = True, max(1, len(commits) // _PART)
                if halve:
                    middle = len(commits) // 2
                    self._search(commits[:middle], search)
                    self._search(commits[middle:], search)
                return
            if isinstance(error, _SlowError):
                # Never again with others that are new; if another one comes beside the polls now, after a while.
                self._suspects.pop(commits[0], None)
                self._suspects[commits[0]] = None
                self.quarantine.put(commits[0], error)
                self._together = self._together or 1
            else:
                self._suspects.pop(commits[0], None)
                self.quarantine.put(commits[0], error)
                search.unreadable += error.code != HOSTILE
        else:
            search.got.update(commits)
            self._together = self._together and 2 * self._together
        search.settled = True

    def _time_for(self, commits: list[str]) -> float:
        """Return how long a fetch of suspects may take."""
        if len(commits) > 1 or self._together is None or self.quarantine.failures(commits[0]):
            return limits.FETCH_S
        return min(limits.FETCH_S, max(ALONE_S, LISTINGS * self._listing_s))

    def _get(self, commits: list[str], time_s: float) -> None:
        """Fetch commits by their ids. One that takes too long is left to come beside the polls."""
        # One that is left to come must not lock the others out.
        git = beside(self.git) if len(commits) == 1 and self._slow is None else self.git
        child = start_fetch(git, self._url, *commits)
        try:
            if child.ended(time_s):
                self._check_whole(git)
                return
        except ProcessError as error:
            # Git leaves what it was writing if what came is cut short or damaged, and its lock if it is ended by force.
            child.close()
            self._sweep_up()
            raise explain_failure(error) from error
        finally:
            if len(commits) == 1 and self._slow is None and child.is_running:
                self._slow = (commits[0], child, git)
                self._slow_is_first = not self._tips.at
            else:
                child.close()
        self._sweep_up()
        raise _SlowError(TOO_SLOW, code="slow")

    def _look_after_slow(self, ask: set[str]) -> None:
        """See whether what comes slowly is there, and leave it out of what is asked for while it is not."""
        if self._slow is None:
            return
        commit, child, git = self._slow
        try:
            if not child.ended(0.0):
                ask.discard(commit)
                return
            self._check_whole(git)
            self.quarantine.release({commit})
            if self._slow_is_first:
                # Into an empty store each would have brought all history. Now it is there, and the others are short.
                self.quarantine.forgive()
        except InfrastructureError as error:
            self.quarantine.put(commit, explain_failure(error) if isinstance(error, ProcessError) else error)
            ask.discard(commit)
        child.close()
        self._slow = None
        self._sweep_up()

    def _sweep_up(self) -> None:
        """Remove what fetches that were ended left behind: a lock, and packs unless one is at work beside the polls."""
        (self.git.directory / "shallow.lock").unlink(missing_ok=True)
        if self._slow is None:
            for path in unfinished(self.git.directory):
                path.unlink(missing_ok=True)

    def _arrived(self, new: Mapping[str, str], got: set[str]) -> None:
        """Take note of what is in the store now; what is beyond the limits goes into quarantine."""
        quarantined = {oid for oid in new.values() if self.quarantine.holds(oid)}
        # A history that is being read is asked about in each poll, however long its branch is left out.
        unweighed = ({*new.values()} - quarantined) | self._weigher.remembered.intersection(new.values())
        heavy = self._weigher.weigh(unweighed, limits.FETCH_S)
        for oid, reason in heavy.items():
            if reason:
                self.quarantine.put(oid, InfrastructureError(reason, code=HOSTILE))
        undecided = self._weigher.undecided & unweighed
        for oid in undecided - quarantined:
            long = InfrastructureError("its history is long and is still being read", code="slow")
            self.quarantine.put(oid, long)
        for oid in got - heavy.keys() - undecided:
            moved = InfrastructureError("cannot fetch from the bus: it moved meanwhile", code="unreachable")
            self.quarantine.put(oid, moved)
        here = {oid for oid, reason in heavy.items() if reason is None}
        self.quarantine.release(here)
        self._tips.set({branch: oid for branch, oid in new.items() if oid in here})

    def tip(self, branch: str, timeout: float | None = None) -> str | None:
        """Fetch one branch and return its commit id, as ``Bus.tip`` says."""
        whole = NETWORK_TIMEOUT if timeout is None and not self._tips.at else timeout or limits.TIP_S
        if timeout is None and time.monotonic() < self._late.get(branch, 0.0):
            raise _SlowError(TOO_SLOW, code="slow")
        began = time.monotonic()
        try:
            tip = exact_refs.find_branch(self.git, self._url, branch, timeout=whole)
        except ProcessError as error:
            raise explain_failure(error) from error
        if tip is None or self._tips.at.get(branch) == tip:
            self._tips.set({branch: tip})
            return tip
        child = start_fetch(self.git, self._url, tip, at=_LOOK)
        try:
            came = child.ended(max(0.0, whole - (time.monotonic() - began)))
            if came:
                self._check_whole(self.git)
        except ProcessError as error:
            child.close()
            self._sweep_up()
            raise explain_failure(error) from error
        finally:
            child.close()
        if not came:
            self._sweep_up()
            now = time.monotonic()
            self._late = {name: until for name, until in self._late.items() if now < until}
            self._late[branch] = now + PAUSES * limits.TIP_S
            raise _SlowError(TOO_SLOW, code="slow")
        if reason := weigh(self.git, [tip], limits.FETCH_S if self._tips.at else NETWORK_TIMEOUT)[tip]:
            self.git("update-ref", "-d", _LOOK)
            raise InfrastructureError(reason, code=HOSTILE)
        self._tips.set({branch: tip})
        return tip

    def is_behind(self, branch: str) -> bool:
        """Return whether the last listing has the branch at a commit that did not come yet."""
        tip = self.listing.tips.get(branch)
        return tip is not None and not self.quarantine.is_hostile(branch) and not is_commit(self.git, tip)

    def _check_whole(self, git: Git) -> None:
        """Raise InfrastructureError if a fetch brought a history that the bus cut off, and forget what it brought."""
        cut = take_cut(git)
        if cut is None:
            return
        self._tips.set({name.removeprefix(HEADS): None for name in cut if name.startswith(HEADS)})
        self.git("update-ref", "-d", _LOOK)
        raise InfrastructureError("the bus sent a history that is cut off", code="unreachable")


def start_fetch(git: Git, url: str, *commits: str, at: str = "") -> Child:
    """Start a fetch of commits. A single one is put at the reference ``at``.

    Raises:
        InfrastructureError: it ended before it read them.
    """
    try:
        return exact_refs.start_fetch(git, url, commits, *fetch_flags(url), at=at)
    except ProcessError as error:
        raise explain_failure(error) from error


def explain_failure(error: ProcessError) -> InfrastructureError:
    """Turn git's words about a fetch into what happened."""
    if re.search(rb"^fatal: out of memory", error.stderr, re.MULTILINE | re.IGNORECASE):
        return InfrastructureError(f"git refuses what the bus sent: {error.words()}", code=HOSTILE)
    if refuses_objects(error.stderr):
        # What came is refused, which no retry changes. Git's first error names the object.
        match = re.search(r"^error: (.*)", error.stderr.decode("utf-8", "replace"), re.MULTILINE)
        message = f"git refuses what the bus sent: {match[1] if match else error.words()}"
        return InfrastructureError(message, code=HOSTILE)
    return InfrastructureError(f"cannot fetch from the bus: {error.words()}", code="unreachable")
