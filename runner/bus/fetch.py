"""Fetches the request branches into the runner's store: in batches, and one by one if a batch fails."""

import random
import time
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from itertools import zip_longest

from bridge.bus import exact_refs, history
from bridge.bus.branch_names import pattern_prefixes, unsigned_requester
from bridge.bus.hosts import address
from bridge.bus.known.sightings import GRACE_S, Ancestry, Sightings
from bridge.bus.objects import is_commit
from bridge.common import limits
from bridge.errors import InfrastructureError, ProcessError
from bridge.system.deadline import pause
from bridge.system.git import NETWORK_TIMEOUT, Git
from runner.bus.commits import HOSTILE, Commits, Stage
from runner.bus.history_size import HistorySizeChecker, check_size
from runner.bus.listing import Listing
from runner.bus.packed_refs import PackedRefs
from runner.bus.transfer import LOOK, SlowError, Transfer, explain_failure

# If no branch could be fetched and the bus fails to send this many, the bus as a whole counts as broken.
_MOST_UNREADABLE = 20
# A commit of a failed batch, fetched alone, may take this long, or LISTINGS times as long as a listing if that is more.
ALONE_S = 0.5
LISTINGS = 4
# A commit that failed alone is tried again in one of this many polls while others wait for their first turn.
RETRY_TURN = 3
# After a failed batch, the next one is smaller by this factor; after a successful one, it is twice as large.
_PART = 8
# A branch that does not show an expected commit yet is fetched again after this many seconds.
AGAIN_S = 1.0
# A branch that took too long is fetched again after this many times that duration.
PAUSES = 2


class Fetcher:
    """Keeps the tips in the store up to date with the bus, except for the branches that are left out."""

    def __init__(self, git: Git, url: str, patterns: tuple[str, ...]) -> None:
        self.git = git
        self.url = url
        self.patterns = patterns
        self.listing = Listing(git, url, patterns)
        self.commits = Commits()
        self._tips = PackedRefs(git)
        # References that an earlier process of this runner wrote or read count as known since now.
        ask = partial(exact_refs.ask_primary, git, url)
        grace_s = 0.0 if address.parse(url).is_local else GRACE_S
        self.sightings = Sightings(Ancestry(git), ask, grace_s, asks_all=True)
        self.sightings.record(self._tips.at)
        # The last listing without outdated readings, and whether to judge it again although it has not
        # changed: parts of it are outdated, or more is known since.
        self.listed: Mapping[str, str] = {}
        self._judges_again = False
        self._served: dict[str, str] = {}
        self._transfer = Transfer(git, url, self._tips)
        self._sizes = HistorySizeChecker(git, self.commits)
        self._prefixes = pattern_prefixes(patterns)
        # The size of the next batch of suspects.
        self._batch = 1
        self._listing_s = 0.0
        self._polls = 0
        self._has_served_first = False
        # Whether the bus failed to send a commit that was requested alone in this poll.
        self._is_broken = False
        # Branches that took too long to be fetched alone, and when each may be tried again. Not in a commit's record:
        # any commit of the branch may take as long.
        self._late: dict[str, float] = {}
        self._is_behind = True

    def close(self) -> None:
        """End the running processes."""
        self._sizes.close()
        self._transfer.close()

    def fetch(self) -> dict[str, str]:
        """Fetch new branches and return ``{branch: commit id}`` of all request branches.

        A branch that git refuses, that is beyond the limits, or that the bus cannot send, is left out, and the
        others are fetched. While nothing changes, the same dictionary object is returned.

        Raises:
            InfrastructureError: the bus cannot be reached.
        """
        began = time.monotonic()
        is_new = self.listing.read()
        self._listing_s = time.monotonic() - began
        if is_new or self._is_behind or self._judges_again or self.commits.missing_count:
            self._catch_up()
        return self._served

    @property
    def unfetched(self) -> list[str]:
        """The branches that are not fetched yet because other branches of the same batch take long."""
        suspects = {*self._suspects}
        return [branch for branch, oid in self.listing.tips.items() if oid in suspects] if suspects else []

    @property
    def _suspects(self) -> list[str]:
        return self.commits.at_stage(Stage.SUSPECT)

    def _catch_up(self) -> None:
        listed = self.listed = self.sightings.judge(self.listing.tips, lambda _: not self.listing.too_many)
        self.commits.see(listed)
        self._tips.set(dict.fromkeys(self._tips.at.keys() - listed.keys()))
        new = {b: oid for b, oid in listed.items() if self._tips.at.get(b) != oid}
        self._is_behind = True
        self._bring(new)
        self._judges_again = listed != self.listing.tips
        at, has_refused_objects = self._tips.at, self.commits.has_refused_objects
        overtaken = {branch for branch in listed if self.sightings.is_overtaken(branch)}
        self._served = {b: oid for b, oid in listed.items() if at.get(b) == oid and b not in overtaken}
        self._is_behind = any(at.get(b) != oid and not has_refused_objects(b) for b, oid in new.items())
        self._is_behind |= bool(overtaken)

    def _bring(self, new: Mapping[str, str]) -> None:
        """Fetch the commits of these branches into the store, as far as possible within a poll.

        New commits are fetched together, and those of a batch that failed in smaller batches. Those that failed alone
        are retried now and then, each alone. Those that are too slow for a poll are fetched beside the polls.
        """
        ask = {oid for oid in new.values() if not self.commits.holds(oid)} - self._sizes.undecided
        self._look_after_slow(ask)
        self._polls += 1
        retries = {oid for oid in ask if self.commits.failures(oid)}
        self.commits.set_stage([oid for oid in self._suspects if oid not in ask], None)
        fresh = self._in_turn(ask - retries - {*self._suspects}, new)
        got = set(fresh)
        self._is_broken = False
        if not self._fetch(fresh, limits.FETCH_S):
            got.clear()
            self._batch = max(1, len(fresh) // _PART)
        # Branches of a successful batch are served before the search for bad ones goes on, but not twice in a row.
        self._has_served_first = bool(got) and not self._has_served_first
        if not self._has_served_first:
            is_turn_of_retries = self._polls % RETRY_TURN == 0 or not self._suspects
            got |= self._retry(retries) if retries and is_turn_of_retries else self._search()
        self._arrived(new, got)
        # One successful fetch shows that the bus can send: then no number of bad branches may stop the polls.
        # A fetch that still runs may show that too.
        is_waiting = bool(self._suspects) or self._transfer.slow_commit is not None
        nothing_came = self._is_broken and not self._tips.at and not is_waiting
        if nothing_came and self.commits.missing_count >= _MOST_UNREADABLE:
            message = f"cannot fetch from the bus: {self.commits.missing_count} branches cannot be read"
            raise InfrastructureError(message, code="unreachable")

    def _search(self) -> set[str]:
        """Continue the search for bad or slow branches, and return the fetched ones."""
        got: set[str] = set()
        until = time.monotonic() + limits.SEARCH_S
        while batch := self._suspects[: self._batch]:
            alone_s = max(ALONE_S, LISTINGS * self._listing_s)
            came = self._fetch(batch, limits.FETCH_S if len(batch) > 1 else min(limits.FETCH_S, alone_s))
            self._batch = 2 * len(batch) if came else max(1, len(batch) // _PART)
            got.update(batch if came else ())
            if time.monotonic() >= until:
                break
        return got

    def _retry(self, commits: set[str]) -> set[str]:
        """Retry commits that failed alone, and return the fetched ones."""
        until = time.monotonic() + limits.SEARCH_S
        got: set[str] = set()
        for oid in random.sample(sorted(commits), len(commits)):
            if self._fetch([oid], limits.FETCH_S):
                got.add(oid)
            if time.monotonic() >= until:
                break
        return got

    def _in_turn(self, commits: set[str], new: Mapping[str, str]) -> list[str]:
        """Order commits by chance, but so that groups which share the runner's turns alternate."""
        places = {oid: unsigned_requester(branch, "", self._prefixes)[:2] for branch, oid in new.items()}
        groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for oid in random.sample(sorted(commits), len(commits)):
            groups[places[oid]].append(oid)
        return [oid for row in zip_longest(*groups.values()) for oid in row if oid]

    def _fetch(self, commits: list[str], time_s: float) -> bool:
        """Fetch commits together and return whether they arrived. If not, several are suspects, one is left out."""
        if not commits:
            return True
        try:
            self._transfer.fetch(commits, time_s, stays=True)
        except InfrastructureError as error:
            if len(commits) > 1:
                self.commits.set_stage(commits, Stage.SUSPECT)
            else:
                self.commits.set_stage(commits, None)
                self.commits.leave_out(commits[0], error)
                self._is_broken |= error.code == "unreachable"
            return False
        self.commits.set_stage(commits, None)
        return True

    def _look_after_slow(self, ask: set[str]) -> None:
        """Check whether the slow commit has arrived; until then, leave it out of fetches."""
        commit = self._transfer.slow_commit
        if commit is None:
            return
        is_here = False
        try:
            is_here = self._transfer.finish_slow()
        except InfrastructureError as error:
            self.commits.leave_out(commit, error)
        if not is_here:
            ask.discard(commit)
            return
        self.commits.release({commit})
        if not self._tips.at:
            # Until now each fetch had to bring all history, because the store was empty. Further fetches are short.
            self.commits.retry_missing()

    def _arrived(self, new: Mapping[str, str], got: set[str]) -> None:
        """Record the fetched commits; leave out those beyond the limits."""
        excluded = {oid for oid in new.values() if self.commits.holds(oid)}
        # A history that is being read has to be checked in each poll, even while its branch is left out.
        unchecked = ({*new.values()} - excluded) | self._sizes.undecided.intersection(new.values())
        verdicts = self._sizes.check(unchecked, limits.FETCH_S)
        for oid, reason in verdicts.items():
            if reason:
                self.commits.leave_out(oid, InfrastructureError(reason, code=HOSTILE))
        undecided = self._sizes.undecided & unchecked
        long = InfrastructureError("its history is long and is still being read", code="slow")
        for oid in undecided - excluded:
            self.commits.leave_out(oid, long)
        moved = InfrastructureError("cannot fetch from the bus: it moved meanwhile", code="unreachable")
        for oid in got - verdicts.keys() - undecided:
            self.commits.leave_out(oid, moved)
        here = {oid for oid, reason in verdicts.items() if reason is None}
        self.commits.release(here)
        self._see({branch: oid for branch, oid in new.items() if oid in here})

    def tip(self, branch: str, timeout: float | None = None) -> str | None:
        """Fetch one branch and return its commit id, or None if it does not exist.

        If the bus shows an older commit than the known one, the known one is returned. Without a ``timeout``, it may
        take ``limits.TIP_S`` seconds: somebody may have pushed gigabytes to it.

        Raises:
            InfrastructureError: the bus cannot be reached, or what it sends takes too long.
        """
        whole = NETWORK_TIMEOUT if timeout is None and not self._tips.at else timeout or limits.TIP_S
        if timeout is None and time.monotonic() < self._late.get(branch, 0.0):
            raise SlowError
        began = time.monotonic()
        try:
            listed = exact_refs.find_branch(self.git, self.url, branch, timeout=whole)
        except ProcessError as error:
            raise explain_failure(error) from error
        tip = self.sightings.judge_one(branch, listed)
        if tip is None or tip != listed or self._tips.at.get(branch) == tip:
            self._tips.set({branch: tip})
            return tip
        try:
            self._transfer.fetch([tip], max(0.0, whole - (time.monotonic() - began)), at=LOOK)
        except SlowError:
            now = time.monotonic()
            self._late = {name: until for name, until in self._late.items() if now < until}
            self._late[branch] = now + PAUSES * limits.TIP_S
            raise
        if reason := check_size(self.git, tip, limits.FETCH_S if self._tips.at else NETWORK_TIMEOUT):
            self.git("update-ref", "-d", LOOK)
            raise InfrastructureError(reason, code=HOSTILE)
        self._see({branch: tip})
        return tip

    def has_moved(self, branch: str, tip: str) -> bool:
        """Return whether the bus shows a branch elsewhere than at ``tip``. If it does not answer, False."""
        try:
            reading = exact_refs.find_branch(self.git, self.url, branch, timeout=limits.TIP_S)
        except ProcessError:
            return False
        return self.sightings.judge_one(branch, reading) != tip

    def tip_with(self, branch: str, commit: str) -> str | None:
        """Fetch a branch until it has a commit, and return its tip. If the bus lags, retry for a while.

        Raises:
            InfrastructureError: as ``tip`` does.
        """
        until = time.monotonic() + self.sightings.grace_s
        while True:
            tip = self.tip(branch, NETWORK_TIMEOUT)
            has_it = tip is not None and history.is_ancestor(self.git, commit, tip)
            if has_it or time.monotonic() >= until:
                return tip
            pause(AGAIN_S)

    def _see(self, tips: Mapping[str, str], *, own: bool = False) -> None:
        """Record tips that are in the store now. ``own`` means that this process pushed them."""
        self._tips.set(tips)
        self.sightings.record(tips, own=own)
        self._judges_again = True

    def is_behind(self, branch: str) -> bool:
        """Return whether the branch's commit in the last listing has not been fetched yet."""
        tip = self.listing.tips.get(branch)
        return (
            tip is not None and not self.commits.has_refused_objects(branch) and not is_commit(self.git, tip)
        )
