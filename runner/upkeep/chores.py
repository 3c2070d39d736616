"""Maintenance that a serving runner does now and then: retention, a tidy store, a check for branches in the way."""

import time
from collections.abc import Callable

from runner.faults import explain
from runner.policy import Retention
from runner.upkeep.answer_notes import AnswerNotes
from runner.upkeep.name_conflicts import find_conflicts
from runner.upkeep.retention import Sweeper
from runner.upkeep.tidy import StoreTidier

_EVERY_S = 3600.0
# Retention delays requests, so a backlog is removed in portions, with time for requests in between.
BATCH_SIZE = 500
_NEXT_PORTION_S = 10.0


class Chores:
    """Runs the chores at the start and then every hour. A failed chore is reported and never ends the runner."""

    def __init__(
        self, sweeper: Sweeper, rule: Retention | None, notes: AnswerNotes, tell: Callable[[str], None]
    ) -> None:
        self._sweeper, self._rule = sweeper, rule
        self._bus, self._tell = sweeper.bus, tell
        self._last: float | None = None
        self._is_due = False
        self._tidier = StoreTidier(sweeper.bus.git, sweeper.ledger)
        self._notes = notes

    def run_if_due(self) -> None:
        """Run the chores if they are due. Retention waits for a clock that is not in doubt, and for the push budget."""
        now = time.monotonic()
        if self._last is None or now - self._last >= _EVERY_S:
            self._last, self._is_due = now, self._rule is not None
            self._do(self._look_for_squatters)
        if self._is_due and not self._sweeper.clock.is_doubtful() and self._bus.budget.has_spare():
            self._is_due = False
            self._do(self._apply_retention)
        self._do(self._tidier.run_if_due)
        self._do(self._notes.push_if_due)

    def _do(self, chore: Callable[[], None]) -> None:
        try:
            chore()
        except Exception as error:  # noqa: BLE001 - no chore is worth the service
            self._tell(f"{explain(error)}; trying again in an hour")

    def _look_for_squatters(self) -> None:
        conflicts = find_conflicts(self._bus)
        if conflicts.message:
            self._tell(f"{conflicts.message}. {conflicts.fix}")

    def _apply_retention(self) -> None:
        if self._rule is None:
            return
        swept = self._sweeper.sweep(self._rule, most=BATCH_SIZE)
        there_is_more = len(swept.deleted) + len(swept.stayed) == BATCH_SIZE
        if there_is_more and swept.deleted and self._last is not None:
            self._last -= _EVERY_S - _NEXT_PORTION_S
        if swept.deleted or swept.stayed:
            reason = f" ({self._bus.deletion_fault})" if self._bus.deletion_fault else ""
            stayed = f", {len(swept.stayed)} could not be deleted{reason}" if swept.stayed else ""
            self._tell(f"retention: {len(swept.deleted)} answers are in {swept.archive}{stayed}")
