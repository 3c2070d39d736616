"""Finds commits on the bus that are too large to read, and objects that are not commits."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection
from itertools import zip_longest

from bridge.bus import lookup
from bridge.bus.ancestry import with_heavy_history
from bridge.common import limits
from bridge.errors import KakeyaError, ProcessError
from bridge.system.deadline import stopped_by
from bridge.system.git import NETWORK_TIMEOUT, Git

# References to the commits under examination, which may be dropped again.
LOOKS = "refs/look/"

# How long the history of one branch may take to read while others wait.
_ONE_S = 0.5
_ABOVE = f"its commit has an ancestor beyond the limit: {limits.COMMIT_BYTES} bytes are the most"


def weigh(git: Git, commits: Collection[str], time_s: float) -> dict[str, str | None]:
    """Return for each commit in the store why it cannot be read, or None if it can.

    Reading histories may take ``time_s`` seconds together; those that take longer count as too large.
    """
    reasons = _weigh_tips(git, commits)
    for oid in _light(reasons):
        try:
            reasons[oid] = _judge(git, oid, time_s)
        except ProcessError:
            reasons[oid] = f"its history takes longer than {time_s:g} s to read"
    return reasons


class Weigher:
    """Weighs the commits of one poll after the other. A long history is read in a thread beside the polls.

    So neither does a long history keep others waiting, nor is it left out for its length alone.
    """

    def __init__(self, git: Git) -> None:
        self._git = git
        # Commits that were not weighed in the time of a poll; those with a long history, and what is known of it.
        self._late: dict[str, None] = {}
        self._long: dict[str, str | None] = {}
        self._reading: tuple[threading.Thread, str, list[str | None]] | None = None
        self._closing = threading.Event()

    @property
    def undecided(self) -> set[str]:
        """The commits of which the last call could not say anything yet."""
        return {*self._late} | {oid for oid, reason in self._long.items() if reason == _UNKNOWN}

    @property
    def remembered(self) -> set[str]:
        """The commits that must be asked about in each poll, because what is known of the others is forgotten."""
        return {*self._late} | {*self._long}

    def close(self) -> None:
        """End what still runs."""
        self._closing.set()

    def weigh(self, commits: Collection[str], time_s: float) -> dict[str, str | None]:
        """Say of each commit what ``weigh`` says. Left out are those that are undecided.

        This takes little more than ``time_s`` seconds. What comes for the first time is looked at together; what is not
        read in time has turns with what waits from before, the oldest first.
        """
        self._read_on()
        reasons = _weigh_tips(self._git, commits)
        light = _light(reasons)
        self._long = {oid: reason for oid, reason in self._long.items() if oid in light}
        here = set(light)
        alone = late = [oid for oid in self._late if oid in here]
        fresh = [oid for oid in light if oid not in self._long and oid not in self._late]
        until = time.monotonic() + time_s
        try:
            heavy = with_heavy_history(self._git, fresh, but=f"{LOOKS}*", timeout=time_s / 2)
            reasons |= dict.fromkeys(heavy, _ABOVE)
        except ProcessError:
            fresh = random.sample(fresh, len(fresh))
            alone = [oid for row in zip_longest(fresh, late) for oid in row if oid]
            late = late + fresh
        self._late = dict.fromkeys(late)
        for oid in alone:
            if time.monotonic() >= until:
                break
            del self._late[oid]
            try:
                reasons[oid] = _judge(self._git, oid, _ONE_S)
            except ProcessError:
                self._long[oid] = _UNKNOWN
        self._read_on()
        reasons |= self._long
        undecided = self.undecided
        return {oid: reason for oid, reason in reasons.items() if oid not in undecided}

    def _read_on(self) -> None:
        """Take note of the history that was read, and begin to read the next one."""
        if self._reading:
            thread, oid, reading = self._reading
            if thread.is_alive():
                return
            self._long[oid] = reading[0] if reading else "its history cannot be read"
            self._reading = None
        waiting = [oid for oid, reason in self._long.items() if reason == _UNKNOWN]
        if waiting:
            result: list[str | None] = []
            oid = random.choice(waiting)  # noqa: S311 - an order, no secret
            thread = threading.Thread(target=self._read, args=(oid, result), daemon=True)
            self._reading = thread, oid, result
            thread.start()

    def _read(self, oid: str, result: list[str | None]) -> None:
        try:
            with stopped_by(self._closing):
                result.append(_judge(self._git, oid, NETWORK_TIMEOUT))
        except KakeyaError as error:
            result.append(f"its history cannot be read: {error.message}")


_UNKNOWN = "its history is being read"


def _weigh_tips(git: Git, commits: Collection[str]) -> dict[str, str | None]:
    reasons: dict[str, str | None] = {}
    for oid, entry in lookup.locate(git, commits).items():
        too_large = entry.size > limits.COMMIT_BYTES
        reasons[oid] = (
            f"its commit has {entry.size} bytes; {limits.COMMIT_BYTES} are the most" if too_large else None
        )
        if entry.kind != "commit":
            reasons[oid] = "it is no commit"
    return reasons


def _light(reasons: dict[str, str | None]) -> list[str]:
    return [oid for oid, reason in reasons.items() if reason is None]


def _judge(git: Git, oid: str, time_s: float) -> str | None:
    """Say of one commit what is wrong with its history.

    Raises:
        ProcessError: reading it takes longer.
    """
    return _ABOVE if with_heavy_history(git, [oid], but=f"{LOOKS}*", timeout=time_s) else None
