"""The bus as the runner sees it: its own bare store, isolated git, fetches by name, compare-and-swap pushes."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from bridge import limits
from bridge.bus import history, objects
from bridge.errors import GitError, InfrastructureError, ProcessError
from bridge.system import git_output
from bridge.system.child import Child
from bridge.system.git import FETCH_FLAGS, NETWORK_TIMEOUT
from bridge.system.process import Completed
from runner import policy
from runner.bus.listing import Listing
from runner.bus.litter import unfinished
from runner.bus.push_budget import Budget
from runner.bus.quarantine import HOSTILE, Quarantine
from runner.bus.store import fetch_flags, open_store, take_cut, token_of
from runner.bus.tips import HEADS, Tips

KEPT = "refs/kept/"
# Where a branch that is fetched alone is put, whatever it is called.
_LOOK = "refs/look/tip"

# So many branches that cannot be sent are no damage to some of them: it is the way to the bus that fails.
_MOST_UNREADABLE = 20
_SEARCH_S = limits.SEARCH_S
# What git says of a reference that stays only because another one of the same transaction does.
_COLLATERAL = re.compile("atomic (push|transaction) fail|transaction failed", re.IGNORECASE)


class Pushed(Enum):
    """How a push ended. A push of ours that arrived counts as done even where git could not tell."""

    DONE = "done"
    STALE = "stale"
    FAILED = "failed"


@dataclass
class _Search:
    """A search for bad branches: when it is to end, if it settled anything by then, and what it came to."""

    until: float
    settled: bool = False
    unreadable: int = 0
    got: set[str] = field(default_factory=set)

    def is_over(self) -> bool:
        return (self.settled and time.monotonic() >= self.until) or self.unreadable >= _MOST_UNREADABLE


class _SlowError(InfrastructureError):
    """What was asked for does not come within the time that a poll has for it."""


class Bus:
    """A remote repository, and the store in which its request branches are mirrored."""

    def __init__(self, settings: policy.Bus, state: Path) -> None:
        self.url = settings.url
        self.patterns = tuple(settings.patterns)
        self.quarantine = Quarantine()
        self.budget = Budget(settings.budget)
        self._secret = token_of(settings)
        self.git = open_store(settings, state / "store.git", self._secret)
        self.listing = Listing(self.git, self.url, self.patterns)
        self._tips = Tips(self.git)
        self._served: dict[str, str] = {}
        # Commits that were in a fetch that failed: one of them, or several, made it fail.
        self._suspects: set[str] = set()
        # A commit that takes long to come, and the git that fetches it beside the polls.
        self._slow: tuple[str, Child] | None = None
        self._is_behind = True

    @property
    def secrets(self) -> list[str]:
        """What must never stand in a log."""
        return [self._secret] if self._secret else []

    def close(self) -> None:
        """End what still runs."""
        if self._slow:
            self._slow[1].close()
            self._slow = None

    def fetch(self) -> dict[str, str]:
        """Fetch what is new and return `{branch: commit id}` of all request branches. Raises InfrastructureError.

        A branch that git refuses, that is beyond the limits, or that the bus cannot send, is put into quarantine, and
        the others are fetched. The dictionary is the same one as long as nothing changes.
        """
        if self.listing.read() or self._is_behind or self.quarantine.unreadable:
            self._catch_up()
        return self._served

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

        What was never asked for is asked for at once; what was part of a fetch that failed is searched by halves, for
        a while in each poll.
        """
        ask = {oid for oid in new.values() if not self.quarantine.holds(oid)}
        self._look_after_slow(ask)
        self._suspects &= ask
        fresh = sorted(ask - self._suspects)
        search = _Search(time.monotonic() + _SEARCH_S)
        self._search(fresh, search, halve=False)
        # The search begins when the first fetch has failed, and comes on a little whatever came of that.
        search.until, search.settled = time.monotonic() + _SEARCH_S, False
        suspects = list(self._suspects)
        random.shuffle(suspects)
        self._search(suspects, search)
        self._suspects -= search.got
        self._arrived(new, search.got)
        if search.unreadable and not search.got and self.quarantine.unreadable >= _MOST_UNREADABLE:
            message = f"cannot fetch from the bus: {self.quarantine.unreadable} branches cannot be read"
            raise InfrastructureError(message, code="unreachable")

    def _search(self, commits: list[str], search: _Search, *, halve: bool = True) -> None:
        """Fetch commits together; where that fails, by halves, down to those that cannot be fetched alone."""
        if not commits or search.is_over():
            return
        try:
            self._get(commits)
        except InfrastructureError as error:
            if len(commits) > 1:
                self._suspects.update(commits)
                search.settled |= isinstance(error, _SlowError)
                if halve:
                    middle = len(commits) // 2
                    self._search(commits[:middle], search)
                    self._search(commits[middle:], search)
                return
            self._suspects.discard(commits[0])
            if not isinstance(error, _SlowError):
                self.quarantine.put(commits[0], error)
                search.unreadable += error.code != HOSTILE
        else:
            search.got.update(commits)
        search.settled = True

    def _get(self, commits: list[str]) -> None:
        """Fetch commits by their ids. One that takes too long is left to come beside the polls."""
        child = self._start_fetch(*commits)
        try:
            # Into an empty store everything comes that there is, and there is nothing else to do.
            if child.ended(limits.FETCH_S if self._tips.at else NETWORK_TIMEOUT):
                self._check_whole()
                return
        except ProcessError as error:
            raise _explain(error) from error
        finally:
            if len(commits) == 1 and self._slow is None and child.is_running:
                self._slow = (commits[0], child)
            else:
                child.close()
        self._sweep_up()
        raise _SlowError("cannot fetch from the bus: it takes too long", code="slow")

    def _look_after_slow(self, ask: set[str]) -> None:
        """See whether what comes slowly is there, and leave it out of what is asked for while it is not."""
        if self._slow is None:
            return
        commit, child = self._slow
        try:
            if not child.ended(0.0):
                ask.discard(commit)
                return
            self._check_whole()
        except InfrastructureError as error:
            self.quarantine.put(commit, _explain(error) if isinstance(error, ProcessError) else error)
            ask.discard(commit)
        child.close()
        self._slow = None
        self._sweep_up()

    def _sweep_up(self) -> None:
        """Remove what fetches that were ended left behind, unless one is at work."""
        if self._slow is None:
            for path in unfinished(self.git.directory):
                path.unlink(missing_ok=True)

    def _arrived(self, new: Mapping[str, str], got: set[str]) -> None:
        """Take note of what is in the store now; what is beyond the limits goes into quarantine."""
        heavy = self._weigh({oid for oid in new.values() if not self.quarantine.holds(oid)})
        for oid, why in heavy.items():
            if why:
                self.quarantine.put(oid, InfrastructureError(why, code=HOSTILE))
        for oid in got - heavy.keys():
            moved = InfrastructureError("cannot fetch from the bus: it moved meanwhile", code="unreachable")
            self.quarantine.put(oid, moved)
        here = {oid for oid, why in heavy.items() if why is None}
        self.quarantine.release(here)
        self._tips.set({branch: oid for branch, oid in new.items() if oid in here})

    def _weigh(self, commits: Collection[str]) -> dict[str, str | None]:
        """Say of each commit that is in the store why it cannot be read, None where it can."""
        said: dict[str, str | None] = {}
        for oid, commit in objects.locate(self.git, commits).items():
            is_heavy = commit.size > limits.COMMIT_BYTES
            said[oid] = (
                f"its commit has {commit.size} bytes; {limits.COMMIT_BYTES} are the most"
                if is_heavy
                else None
            )
            if commit.kind != "commit":
                said[oid] = "it is no commit"
        return said

    def tip(self, branch: str) -> str | None:
        """Fetch one branch and return its commit id, or None where it does not exist. Raises InfrastructureError."""
        child = self._start_fetch(f"+refs/heads/{branch}:{_LOOK}")
        try:
            child.ended(NETWORK_TIMEOUT)
            self._check_whole()
        except ProcessError as error:
            if b"couldn't find remote ref" in error.stderr.lower():
                self._tips.set({branch: None})
                return None
            raise _explain(error) from error
        finally:
            child.close()
        tip = self.git.text("rev-parse", "--verify", "--quiet", _LOOK)
        if why := self._weigh([tip])[tip]:
            raise InfrastructureError(why, code=HOSTILE)
        self._tips.set({branch: tip})
        return tip

    def push(self, branch: str, commit: str, *, expect: str) -> Pushed:
        """Move a branch from `expect` to `commit`, which is built upon it, in one compare-and-swap.

        What the server says decides only where it is clear; otherwise the branch is fetched and looked at.
        """
        ref = f"refs/heads/{branch}"
        self.budget.spend()
        try:
            self.git(
                "push", "--quiet", "--porcelain", "--no-verify", "--no-signed", "--recurse-submodules=no",
                f"--force-with-lease={ref}:{expect}", "--", self.url, f"{commit}:{ref}", timeout=NETWORK_TIMEOUT,
            )  # fmt: skip
        except GitError:
            return self._after_failure(branch, commit, expect)
        self._tips.set({branch: commit})
        return Pushed.DONE

    def delete(self, tips: Mapping[str, str]) -> list[str]:
        """Delete branches that still are where they are said to be, and return those that are gone then.

        Raises InfrastructureError where the bus cannot be reached. What may not be deleted stays, without an error.
        They are named on a command line: a thousand at once is well within what systems allow.
        """
        self._delete_at_once(tips)
        left = {*self.fetch(), *self.quarantine.why}
        return [branch for branch in tips if branch not in left]

    def _delete_at_once(self, tips: Mapping[str, str]) -> None:
        """Delete branches in one transaction, without those that the bus keeps; where it knows none, one by one.

        Git writes its file of packed references anew for each deletion that is a transaction of its own, on the bus
        as in the store: of n branches among n that costs n squared.
        """
        allowed = dict(tips)
        while allowed:
            done = self._push_deletions(allowed, "--atomic")
            if done.returncode == 0:
                self._tips.set(dict.fromkeys(allowed))
                return
            kept = {branch for branch, why in git_output.rejected(done.stdout) if not _COLLATERAL.search(why)}
            if kept.isdisjoint(allowed):
                break
            allowed = {branch: tip for branch, tip in allowed.items() if branch not in kept}
        if allowed:
            self._push_deletions(allowed)

    def _push_deletions(self, tips: Mapping[str, str], *flags: str) -> Completed:
        self.budget.spend()
        leases = [f"--force-with-lease=refs/heads/{branch}:{tip}" for branch, tip in tips.items()]
        return self.git(
            "push", "--quiet", "--porcelain", "--no-verify", "--no-signed", "--recurse-submodules=no", *flags,
            *leases, "--", self.url, *(f":refs/heads/{branch}" for branch in tips),
            timeout=NETWORK_TIMEOUT, ok=range(256),
        )  # fmt: skip

    def _after_failure(self, branch: str, commit: str, expect: str) -> Pushed:
        try:
            tip = self.tip(branch)
        except InfrastructureError:
            return Pushed.FAILED
        if tip is not None and (tip == commit or history.is_ancestor(self.git, commit, tip)):
            return Pushed.DONE
        return Pushed.FAILED if tip == expect else Pushed.STALE

    def keep(self, commit: str) -> None:
        """Keep a commit that is on no branch yet from being collected."""
        self.git("update-ref", KEPT + commit, commit)

    def release(self, commit: str) -> None:
        """Let go of a commit that was kept."""
        self.git("update-ref", "-d", KEPT + commit)

    def _start_fetch(self, *specs: str) -> Child:
        flags = (*FETCH_FLAGS, "--stdin", *fetch_flags(self.url))
        child = self.git.start("fetch", *flags, "--", self.url, timeout=NETWORK_TIMEOUT)
        try:
            child.write("".join(f"{spec}\n" for spec in specs))
        except ProcessError as error:
            child.close()
            raise _explain(error) from error
        return child

    def _check_whole(self) -> None:
        """Raise InfrastructureError if a fetch brought a history that the bus cut off, and forget what it brought."""
        cut = take_cut(self.git)
        if cut is None:
            return
        self._tips.set({name.removeprefix(HEADS): None for name in cut if name.startswith(HEADS)})
        self.git("update-ref", "-d", _LOOK)
        raise InfrastructureError("the bus sent a history that is cut off", code="unreachable")


def _explain(error: ProcessError) -> InfrastructureError:
    """Turn git's words about a fetch into what happened."""
    if b"fsck error" in error.stderr:
        # What came is refused, which no retry changes. Git's first error names the object.
        found = re.search(r"^error: (.*)", error.stderr.decode("utf-8", "replace"), re.MULTILINE)
        message = f"git refuses what the bus sent: {found[1] if found else error.words()}"
        return InfrastructureError(message, code=HOSTILE)
    return InfrastructureError(f"cannot fetch from the bus: {error.words()}", code="unreachable")
