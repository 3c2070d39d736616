"""The bus as the runner sees it: its own bare store, isolated git, prefix-limited fetches, compare-and-swap pushes."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from bridge import history, objects
from bridge.errors import GitError, InfrastructureError
from bridge.git import NETWORK_TIMEOUT
from bridge.process import Completed
from runner import policy
from runner.budget import Budget
from runner.quarantine import HOSTILE, Quarantine
from runner.store import check_whole, fetch_flags, open_store, token_of

HEADS = "refs/bus/"
KEPT = "refs/kept/"

_MANY_REFS = 500
_PORCELAIN_FIELDS = 3
# So many branches that cannot be sent are no damage to some of them: it is the way to the bus that fails.
_MOST_UNREADABLE = 20
_SEARCH_S = 20.0
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

    def is_over(self) -> bool:
        return (self.settled and time.monotonic() >= self.until) or self.unreadable >= _MOST_UNREADABLE


class Bus:
    """A remote repository, and the store in which its request branches are mirrored."""

    def __init__(self, settings: policy.Bus, state: Path) -> None:
        self.url = settings.url
        self.patterns = tuple(settings.patterns)
        self.quarantine = Quarantine()
        self.budget = Budget(settings.budget)
        self._secret = token_of(settings)
        self._tips: dict[str, str] = {}
        self._loose = 0
        self.git = open_store(settings, state / "store.git", self._secret)

    @property
    def secrets(self) -> list[str]:
        """What must never stand in a log."""
        return [self._secret] if self._secret else []

    def fetch(self) -> dict[str, str]:
        """Fetch all request branches and return `{branch: commit id}`. Raises InfrastructureError.

        A branch that git refuses, or that the bus cannot send, is put into quarantine, and the others are fetched.
        """
        try:
            self._fetch_all()
        except InfrastructureError as error:
            if self._find_bad(error):
                self._fetch_all()
        tips = self.tips()
        self._pack(tips)
        # Of a branch that was left out the store holds where it was before, which is no ground to act upon.
        return {branch: tip for branch, tip in tips.items() if branch not in self.quarantine.why}

    def _fetch_all(self) -> None:
        wanted = [f"+refs/heads/{pattern}:{HEADS}{pattern}" for pattern in self.patterns]
        left_out = self.quarantine.left_out()
        self._fetch(*wanted, *(f"^refs/heads/{branch}" for branch in left_out), prune=True)
        self.quarantine.release(self.quarantine.why.keys() - set(left_out))

    def _find_bad(self, error: InfrastructureError) -> bool:
        """Find out which branches made a fetch fail, and fetch the others. Raises `error` where it was the bus itself.

        Says whether all were looked at: a flood of bad ones is worked off over several polls.
        """
        heads = [f"refs/heads/{pattern}" for pattern in self.patterns]
        try:
            listed = self.git.text("ls-remote", "--", self.url, *heads, timeout=NETWORK_TIMEOUT)
        except GitError:
            raise error from error.__cause__
        there = {ref.removeprefix("refs/heads/"): oid for oid, ref in map(str.split, listed.splitlines())}
        self.quarantine.release(self.quarantine.why.keys() - there.keys())
        known, left_out = self.tips(), set(self.quarantine.left_out())
        new = [branch for branch, oid in there.items() if known.get(branch) != oid and branch not in left_out]
        search = _Search(time.monotonic() + _SEARCH_S)
        self._search(new, search)
        if search.unreadable >= _MOST_UNREADABLE:
            raise error
        return not search.is_over()

    def _search(self, branches: list[str], search: _Search) -> None:
        """Fetch branches together; where that fails, by halves, down to those that cannot be fetched alone."""
        if not branches or search.is_over():
            return
        try:
            self._fetch(*(f"+refs/heads/{branch}:{HEADS}{branch}" for branch in branches))
        except InfrastructureError as error:
            if len(branches) > 1:
                middle = len(branches) // 2
                self._search(branches[:middle], search)
                self._search(branches[middle:], search)
                return
            self.quarantine.put(branches[0], error)
            search.unreadable += error.code != HOSTILE
        search.settled = True

    def tips(self) -> dict[str, str]:
        """Return where the request branches were when they were last fetched."""
        listed = self.git.text("for-each-ref", "--format=%(objectname) %(refname)", HEADS)
        pairs = (line.split(" ", 1) for line in listed.splitlines())
        return {ref.removeprefix(HEADS): oid for oid, ref in pairs}

    def tip(self, branch: str) -> str | None:
        """Fetch one branch and return its commit id, or None where it does not exist. Raises InfrastructureError."""
        try:
            self._fetch(f"+refs/heads/{branch}:{HEADS}{branch}")
        except InfrastructureError as error:
            cause = error.__cause__
            if isinstance(cause, GitError) and b"couldn't find remote ref" in cause.stderr.lower():
                self.git("update-ref", "-d", HEADS + branch)
                return None
            raise
        return objects.resolve(self.git, HEADS + branch)

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
        self.git("update-ref", HEADS + branch, commit)
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
                gone = "".join(f"delete {HEADS}{branch}\n" for branch in allowed)
                self.git("update-ref", "--no-deref", "--stdin", stdin=gone, ok=(0, 128))
                return
            kept = {branch for branch, why in _rejected(done.stdout) if not _COLLATERAL.search(why)}
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

    def _pack(self, tips: dict[str, str]) -> None:
        """Put many new refs into one file: with ten thousand loose ones a poll takes four times as long."""
        self._loose += sum(1 for branch, tip in tips.items() if self._tips.get(branch) != tip)
        self._tips = tips
        if self._loose >= _MANY_REFS:
            self.git("pack-refs", "--all", "--prune")
            self._loose = 0

    def _fetch(self, *specs: str, prune: bool = False) -> None:
        flags = [
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--refmap=",
            "--stdin",
        ]
        flags += [*fetch_flags(self.url), *(["--prune"] if prune else [])]
        lines = "".join(f"{spec}\n" for spec in specs)
        try:
            self.git("fetch", *flags, "--", self.url, stdin=lines, timeout=NETWORK_TIMEOUT)
        except GitError as error:
            if b"fsck error" in error.stderr:
                # What came is refused, which no retry changes. Git's first error names the object.
                found = re.search(r"^error: (.*)", error.stderr.decode("utf-8", "replace"), re.MULTILINE)
                message = f"git refuses what the bus sent: {found[1] if found else error.last_line()}"
                raise InfrastructureError(message, code=HOSTILE) from error
            message = f"cannot fetch from the bus: {error.last_line()}"
            raise InfrastructureError(message, code="unreachable") from error
        check_whole(self.git)


def _rejected(porcelain: bytes) -> list[tuple[str, str]]:
    """Return the branches that a push did not move, each with the reason that git gives."""
    lines = (line.split("\t") for line in porcelain.decode("utf-8", "replace").splitlines())
    return [
        (line[1].partition(":")[2].removeprefix("refs/heads/"), line[2])
        for line in lines
        if line[0] == "!" and len(line) == _PORCELAIN_FIELDS
    ]
