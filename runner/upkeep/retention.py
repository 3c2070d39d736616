"""Retention: removes answered requests from the bus by age and number, after archiving each one.

The archive is a bare repository that contains the branches under their own names. A client reads it like the bus:
``kakeya verify --remote ARCHIVE BRANCH``.
"""

import time
from dataclasses import dataclass

from bridge.bus import times
from bridge.bus.branch_names import requested_at
from bridge.bus.history import RequestBranch
from bridge.manifest import parse_time
from runner.admit.admission import keeps_unsigned_answer
from runner.bus.bus import read_each
from runner.bus.packed_refs import HEADS
from runner.context import RunnerContext
from runner.policy import Retention
from runner.state.archive import store
from runner.upkeep.tidy import tidy

# An answer stays at least this long: a waiting client polls every few seconds and may have to fetch a large answer.
_AT_LEAST_S = 3600.0
_DAY_S = 86_400.0
# How many branches are archived, and then deleted, in one transaction.
BATCH_SIZE = 1000


@dataclass(frozen=True)
class Swept:
    """What one run did, or would do, as ``--json`` prints it."""

    answered: int
    unanswered: int
    deleted: list[str]
    # Archived but still on the bus: they moved meanwhile, or the server refused to delete them.
    stayed: list[str]
    archive: str


def apply_retention(
    context: RunnerContext, rule: Retention, *, dry_run: bool = False, most: int | None = None
) -> Swept:
    """Archive and delete the answered requests that the rule selects: the oldest first, at most ``most``.

    Requests without an answer are never deleted, however old they are: ``serve`` refuses them first. An answer's age
    does not depend on this machine's clock alone: it is bounded by the newest time on the bus.

    Raises:
        InfrastructureError: the bus cannot be reached.
    """
    archive, tips = context.policy.archive, context.bus.fetch()

    def failed(branch: str, error: Exception) -> None:
        context.tell(f"{branch} cannot be read: {error}")

    views = read_each(context.bus.git, tips, failed, context.reader)
    answered = [
        view for view in views.values() if view.current_state.is_final or keeps_unsigned_answer(context, view)
    ]
    now = times.confirmed_time(time.time(), times.request_times(context.bus.git, HEADS))
    chosen = {view.branch: view.tip for view in choose(answered, rule, now)[:most]}
    deleted: list[str] = []
    pairs = list(chosen.items()) if not dry_run else []
    for i in range(0, len(pairs), BATCH_SIZE):
        portion = dict(pairs[i : i + BATCH_SIZE])
        # Each branch is archived before it is deleted, so a runner that is killed here continues later.
        store(context.bus.git, archive, portion, context.tell)
        deleted += context.bus.delete(portion)
    if pairs and len(pairs) != most:
        tidy(context)
    gone = dict.fromkeys(chosen if dry_run else deleted)
    stayed = [branch for branch in chosen if branch not in gone]
    return Swept(len(answered), len(tips) - len(answered), list(gone), stayed, str(archive))


def choose(answered: list[RequestBranch], rule: Retention, now: float) -> list[RequestBranch]:
    """Return the answered requests to delete, the oldest answer first."""
    oldest_first = sorted(answered, key=lambda view: (answered_at(view), view.branch))
    too_many = max(0, len(oldest_first) - rule.keep) if rule.keep else 0
    oldest = now - rule.days * _DAY_S if rule.days else float("-inf")
    return [
        view
        for i, view in enumerate(oldest_first)
        if (i < too_many or answered_at(view) < oldest) and answered_at(view) <= now - _AT_LEAST_S
    ]


def answered_at(view: RequestBranch) -> float:
    """Return when a request was answered, by the answerer's clock; if that time is invalid, when it was created."""
    try:
        return parse_time(view.state.at if view.state else "").timestamp()
    except ValueError:
        return float(requested_at(view.branch))
