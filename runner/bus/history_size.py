"""Checks whether commits from the bus, and the histories below them, are small enough to be read."""

import random
import re
import threading
import time
from collections.abc import Collection

from bridge.bus import objects
from bridge.bus.oversized import oversized_tips
from bridge.common import limits
from bridge.errors import KakeyaError, ProcessError
from bridge.system.deadline import stopped_by
from bridge.system.git import NETWORK_TIMEOUT, Git
from runner.bus.commits import Commits, Stage

# References to the commits under examination, which may be dropped again.
LOOKS = "refs/look/"

# How long the history of one branch may take to read while others wait.
_ALONE_S = 0.5
# A part of the history is not in the store. The commit counts as missing, and is fetched again.
_INCOMPLETE = "a part of its history is missing"
_MISSING = re.compile(rb"^error: Could not read [0-9a-f]+$", re.MULTILINE)
_OVERSIZED = f"its commit has an ancestor beyond the limit: {limits.COMMIT_BYTES} bytes are the most"


def check_size(git: Git, commit: str, time_s: float) -> str | None:
    """Return why a commit in the store cannot be read, or None if it can. A history that takes longer is too large."""
    reason = _check_commits(git, [commit])[commit]
    try:
        return reason or _check_history(git, commit, time_s)
    except ProcessError:
        return f"its history takes longer than {time_s:g} s to read"


class HistorySizeChecker:
    """Checks the commits of each poll. Long histories are read in a thread beside the polls: nobody waits for them."""

    def __init__(self, git: Git, states: Commits) -> None:
        self._git = git
        self._states = states
        # The long history that a thread reads now.
        self._reading: tuple[threading.Thread, str, list[str | None]] | None = None
        self._closing = threading.Event()

    @property
    def undecided(self) -> set[str]:
        """The commits that the last call could not decide about. Ask about them in each poll."""
        return {*self._states.at_stage(Stage.QUEUED, Stage.LONG)}

    def close(self) -> None:
        """End the running processes."""
        self._closing.set()

    def check(self, commits: Collection[str], time_s: float) -> dict[str, str | None]:
        """Return why each commit in the store cannot be read, or None if it can. Undecided commits are left out.

        This takes little more than ``time_s`` seconds. New commits are checked together. If that takes too long, they
        are checked one by one, after the commits that wait already.
        """
        reasons = _check_commits(self._git, commits)
        fit = [oid for oid, reason in reasons.items() if reason is None]
        self._states.set_stage(self.undecided - reasons.keys(), None)
        decided, undecided = self._read_on(), self.undecided
        fresh = [oid for oid in fit if oid not in undecided and oid not in decided]
        until = time.monotonic() + time_s
        try:
            oversized = oversized_tips(self._git, fresh, but=f"{LOOKS}*", timeout=time_s / 2)
            reasons |= dict.fromkeys(oversized, _OVERSIZED)
        except ProcessError:
            self._states.set_stage(random.sample(fresh, len(fresh)), Stage.QUEUED)
        for oid in self._states.at_stage(Stage.QUEUED):
            if time.monotonic() >= until:
                break
            try:
                reasons[oid] = _check_history(self._git, oid, _ALONE_S)
                self._states.set_stage([oid], None)
            except ProcessError:
                self._states.set_stage([oid], Stage.LONG)
        reasons |= decided | self._read_on()
        later = self.undecided
        return {oid: reason for oid, reason in reasons.items() if oid not in later and reason != _INCOMPLETE}

    def _read_on(self) -> dict[str, str | None]:
        """Return the result for the history that was read last, and begin to read the next history."""
        decided: dict[str, str | None] = {}
        if self._reading:
            thread, oid, result = self._reading
            if thread.is_alive():
                return {}
            self._reading = None
            if oid in self._states.at_stage(Stage.LONG):
                self._states.set_stage([oid], None)
                decided[oid] = result[0] if result else "its history cannot be read"
        if long := self._states.at_stage(Stage.LONG):
            # Choose at random: somebody who pushes many must not come before all others.
            oid, result = random.choice(long), []  # noqa: S311 - an order, no secret
            thread = threading.Thread(target=self._read, args=(oid, result), daemon=True)
            self._reading = thread, oid, result
            thread.start()
        return decided

    def _read(self, oid: str, result: list[str | None]) -> None:
        try:
            with stopped_by(self._closing):
                result.append(_check_history(self._git, oid, NETWORK_TIMEOUT))
        except KakeyaError as error:
            result.append(f"its history cannot be read: {error.message}")


def _check_commits(git: Git, commits: Collection[str]) -> dict[str, str | None]:
    """Return for each object in the store why it is not a readable commit, or None. Histories are not checked."""
    there, most = objects.locate(git, commits), limits.COMMIT_BYTES
    reasons: dict[str, str | None] = dict.fromkeys(there)
    for oid, entry in there.items():
        if entry.kind != "commit":
            reasons[oid] = "it is no commit"
        elif entry.size > most:
            reasons[oid] = f"its commit has {entry.size} bytes; {most} are the most"
    return reasons


def _check_history(git: Git, oid: str, time_s: float) -> str | None:
    """Return what is wrong with a commit's history, or None. Raises a ProcessError after ``time_s`` seconds."""
    try:
        return _OVERSIZED if oversized_tips(git, [oid], but=f"{LOOKS}*", timeout=time_s) else None
    except ProcessError as error:
        if _MISSING.search(error.stderr):
            return _INCOMPLETE
        raise
