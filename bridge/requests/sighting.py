"""Judges a runner's presence record now: whether the runner is there, and whether the record's promises still hold.

All commands, the MCP tools and the web page say what ``RunnerSighting.availability`` returns. A runner renews its
record every few minutes only, so an old record shows that the runner was there, not that it still is.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from bridge.bus.presence import Presence, RunnerState
from bridge.bus.times import TOLERANCE_S

# The longest duration of two polls, in average pauses between polls: pauses vary by 30 %.
TWO_POLLS = 2 * 1.3
# Two polls of a runner with default settings that does not say how often it polls.
_UNKNOWN_S = 60.0
# A record's time is in whole seconds, and reading it takes a moment.
_LEAST_S = 2.0
# A runner that has just stopped is often back soon: it was updated, or its machine was restarted.
_RESTART_S = 15.0
# A clock may be a day off. A runner whose record is older than that by this machine's clock is gone.
_SKEW_S = 25 * 3600.0


class Availability(StrEnum):
    """The current knowledge about a runner, as the word that people read."""

    STOPPED = "stopped"
    GONE = "not seen"
    MAINTENANCE = "maintenance"
    DRAINING = "draining"
    FAULT = "fault"
    BUSY = "busy"
    FREE = "free"
    # The runner was free longer ago than two of its polls, or its lease on a request has run out.
    QUIET = "silent"


_PAUSED = {RunnerState.MAINTENANCE: Availability.MAINTENANCE, RunnerState.DRAINING: Availability.DRAINING}


@dataclass(frozen=True)
class RunnerSighting:
    """A runner's presence record, and what this clone has observed about it."""

    record: Presence
    # For how many seconds this clone has seen the same record, by this machine's clocks only.
    unchanged_s: float = 0.0
    # Whether a pinned key signed the record. None: no key is pinned here, so anyone who may push could have written it.
    signed: bool | None = None
    # The longest pause between the runner's polls; None if the record does not say.
    poll_s: float | None = None
    # When the runner's lease on ``busy_with`` runs out, by the runner's clock; None if it holds no lease.
    lease_ends_at: float | None = None
    # Whether the runner gives some presets priority over others.
    has_priorities: bool = False
    # Whether its machine runs the jobs of other buses too, one job at a time.
    has_other_buses: bool = False

    @property
    def promise_s(self) -> float:
        """For how many seconds the promise to take a request at the next poll holds: two polls."""
        return _UNKNOWN_S if self.poll_s is None else max(_LEAST_S, TWO_POLLS * self.poll_s)

    def availability(self, now: float) -> Availability:
        """Return how far the record can be relied on now. ``now`` is this machine's clock, in Unix seconds."""
        record = self.record
        if record.state is RunnerState.STOPPED:
            return Availability.STOPPED
        if not self.is_alive(now):
            return Availability.GONE
        if record.state in _PAUSED:
            return _PAUSED[record.state]
        if record.reason:
            return Availability.FAULT
        if record.busy_with:
            has_lapsed = self.lease_ends_at is not None and now > self.lease_ends_at
            return Availability.QUIET if has_lapsed else Availability.BUSY
        # If the clocks differ, a record's time says nothing about its age.
        is_fresh = max(self.unchanged_s, abs(now - record.at_s)) <= self.promise_s
        return Availability.FREE if is_fresh else Availability.QUIET

    @property
    def _is_over(self) -> bool:
        return self.record.state is RunnerState.STOPPED or self.unchanged_s >= self.record.valid_s

    def is_alive(self, now: float) -> bool:
        """Return whether the runner is alive. A record from the future counts until it has not changed for too long."""
        valid_s = self.record.valid_s
        return not self._is_over and now - self.record.at_s <= valid_s + min(TOLERANCE_S, valid_s)

    def is_doubtful(self, now: float) -> bool:
        """Return whether ``is_alive`` depends on two clocks that may disagree."""
        return not self._is_over and (not self.is_alive(now) or self.record.at_s > now + TOLERANCE_S)

    def may_come_back(self, now: float) -> bool:
        """Return whether others should leave requests to this runner, because it is there or may be back soon.

        What this process has seen itself decides, as clocks may be wrong. Being wrong here only delays a refusal.
        """
        ends = self.record.state in (RunnerState.STOPPED, RunnerState.DRAINING)
        lasts_s = _RESTART_S if ends else self.record.valid_s
        return self.unchanged_s < lasts_s and now - self.record.at_s < lasts_s + _SKEW_S

    def lacks(self, labels: Iterable[str]) -> tuple[str, ...]:
        """Return the labels that the runner lacks, in alphabetical order."""
        return tuple(sorted({*labels} - {*self.record.labels}))

    def runs(self, preset: str | None) -> bool:
        """Return whether the runner runs a preset, as far as that is known."""
        return preset is None or self.record.presets is None or preset in self.record.presets

    def last_seen(self, now: float) -> str:
        """Return as text when the runner was last seen."""
        age = now - self.record.at_s
        if age < -TOLERANCE_S:
            return f"last seen at {self.record.at} by its clock, which is ahead of the one here"
        text = f"last seen {span(max(0.0, age))} ago by its clock"
        return f"{text}; it was stopped" if self.record.state is RunnerState.STOPPED else text


def span(seconds: float) -> str:
    """Return a readable time span."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
