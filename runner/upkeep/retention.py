"""Retention: removes answered requests from the bus by age and number, after archiving each one.

Whoever may push can write any time, id and state, so nothing on the bus decides which answers are old or too many. Only
this runner's own ledger and clock do: when it gave an answer, or when it first saw an answer that somebody else gave.

The archive is a bare repository that contains the branches under their own names. A client reads it like the bus:
``kakeya verify --remote ARCHIVE BRANCH``.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bridge.bus import times
from bridge.bus.branch_names import requested_at
from bridge.verify.signed_history import Reader
from runner.admit.admission import keeps_unsigned_answer
from runner.bus.bus import Bus
from runner.bus.packed_refs import HEADS
from runner.host.clock import Clock
from runner.policy import Retention
from runner.state.archive import store
from runner.state.ledger import FOREIGN, AnswerOnBus, Ledger
from runner.upkeep.tidy import tidy

# An answer stays at least this long: a waiting client polls every few seconds and may have to fetch a large answer.
_AT_LEAST_S = 3600.0
_DAY_S = 86_400.0
# How many branches are archived, and then deleted, in one transaction.
BATCH_SIZE = 1000


@dataclass(frozen=True)
class Swept:
    """The result of one run, or what it would do, as ``--json`` prints it."""

    answered: int
    unanswered: int
    deleted: list[str]
    # Branches that are archived but still on the bus: they moved meanwhile, or the server refused to delete
    # them.
    stayed: list[str]
    archive: str


@dataclass(frozen=True)
class Sweeper:
    """Applies a rule of retention, with what that may take of this runner."""

    bus: Bus
    ledger: Ledger
    reader: Reader
    clock: Clock
    archive: Path
    # Requests that are older are never run.
    max_age_s: float
    tell: Callable[[str], None]

    def sweep(self, rule: Retention, *, dry_run: bool = False, most: int | None = None) -> Swept:
        """Archive and delete the answered requests that the rule selects: the oldest first, at most ``most``.

        Requests without an answer are never deleted, however old they are: ``serve`` refuses them first.

        Raises:
            InfrastructureError: the bus cannot be reached.
        """
        git, tips = self.bus.git, self.bus.fetch()

        def failed(name: str, error: Exception) -> None:
            self.tell(f"{name} cannot be read: {error}")

        branches = self.reader.read_each(git, tips, failed)
        answered = {
            name
            for name, branch in branches.items()
            if branch.current_state.is_final
            or keeps_unsigned_answer(self.ledger, self.clock, self.max_age_s, branch)
        }
        # The times on the bus can only delay a deletion: this machine's clock may be ahead.
        now = times.confirmed_time(time.time(), times.request_times(git, HEADS))
        known = self.ledger.answers_on_bus(answered, tips, time.time())
        chosen = {name: tips[name] for name in choose(known, rule, now)[:most]}
        deleted: list[str] = []
        pairs = list(chosen.items()) if not dry_run else []
        for i in range(0, len(pairs), BATCH_SIZE):
            portion = dict(pairs[i : i + BATCH_SIZE])
            # Each branch is archived before it is deleted, so a runner that is killed here continues later.
            store(git, self.archive, portion, self.tell)
            deleted += self.bus.delete(portion)
        if pairs and len(pairs) != most:
            tidy(git, self.ledger)
        gone = dict.fromkeys(chosen if dry_run else deleted)
        stayed = [name for name in chosen if name not in gone]
        return Swept(len(answered), len(tips) - len(answered), list(gone), stayed, str(self.archive))


def choose(answers: Sequence[AnswerOnBus], rule: Retention, now: float) -> list[str]:
    """Return the branches to delete, of the answers in the order in which this runner gave or saw them.

    ``keep`` counts the answers of each kind apart. Refusals cost a stranger nothing, so they displace no job's answer.
    Foreign answers may be forged in any number, so they leave by age alone, and displace nothing.
    """
    oldest = now - rule.days * _DAY_S if rule.days else float("-inf")
    latest = now - _AT_LEAST_S
    total, counted = Counter(answer.kind for answer in answers), Counter[str]()
    chosen = []
    for answer in answers:
        remaining = total[answer.kind] - counted[answer.kind]
        counted[answer.kind] += 1
        is_too_many = rule.keep is not None and answer.kind != FOREIGN and remaining > rule.keep
        # If this machine's clock was behind, use the request's own time, which can only make its answer
        # younger.
        asked_at = requested_at(answer.branch)
        at = max(answer.at, asked_at) if asked_at <= now else answer.at
        if (is_too_many or at < oldest) and at <= latest:
            chosen.append(answer.branch)
    return chosen
