"""Removes old requests: the records in this clone and, on demand, answered branches on the remote."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bridge.bus import times
from bridge.bus.branch_names import requested_at
from bridge.bus.remote import Remote
from bridge.requests.liveness import is_expired
from bridge.requests.on_branch.carry import Carriers
from bridge.requests.outbox import Sent
from bridge.system.git import Git
from bridge.verify.signed_history import Reader


@dataclass(frozen=True)
class Swept:
    """What ``gc`` removed, and how many requests it kept for which reason."""

    gone: list[str]
    young: int
    unanswered: int
    # Number of old, finished requests that stay on the remote because --remote-branches was not given.
    only_remote: int
    # Number of finished requests of other clones, which only `everybody` deletes.
    others: int = 0

    def explain_unswept(self, older_than: str) -> Iterator[str]:
        """Yield a message for each reason."""
        if self.young:
            yield f"{self.young} are younger than {older_than}: --older-than DUR takes younger ones too"
        if self.unanswered:
            yield f"{self.unanswered} have no answer yet, and stay on the remote until they have, or expire"
        if self.others:
            yield f"{self.others} were not sent from here: --everybody deletes them too"
        if self.only_remote:
            yield f"{self.only_remote} finished ones stay on the remote: --remote-branches deletes them there"


def sweep(
    git: Git,
    remote: Remote,
    sent: Sent,
    patterns: Sequence[str],
    older_than: timedelta,
    *,
    on_remote: bool,
    everybody: bool,
    dry_run: bool,
    reader: Reader,
) -> Swept:
    """Remove older requests that no runner may still answer, here and, with ``on_remote``, on the remote.

    On the remote, only requests that were sent from here are deleted, unless ``everybody`` is set.
    """
    listed = remote.list_branches(*patterns)
    # Do not rely on this machine's clock alone: the newest request's time is an upper bound of the current time.
    ages = [float(at) for name in listed if (at := requested_at(name)) > 0]
    now = times.confirmed_time(datetime.now(UTC).timestamp(), ages)
    before = now - older_than.total_seconds()
    old = {name: tip for name, tip in listed.items() if 0 < requested_at(name) < before}
    old = remote.fetch_listed(old)
    # If keys are pinned, a forged answer does not count as an answer.
    branches = reader.read_branches(git, old)
    # Finished means: answered, or no runner will take the request.
    finished = [
        name
        for name, branch in branches.items()
        if branch.current_state.is_final or branch.is_withdrawn or is_expired(git, branch, now)
    ]
    unanswered = len(branches) - len(finished)
    known = sent.branches_of_bus()
    deletable = [name for name in finished if everybody or name in known]
    others = len(finished) - len(deletable)
    mine = [name for name in known if requested_at(name) < before]
    if not dry_run:
        for name in mine:
            sent.forget(name)
            Carriers(git).forget(name)
        if on_remote:
            deletable = [b for b in deletable if remote.delete(b, expect=old[b])]
    young = {name for name in (*known, *(listed if on_remote else ())) if requested_at(name) >= before}
    return Swept(
        gone=sorted({*mine, *(deletable if on_remote else ())}),
        young=len(young),
        unanswered=unanswered if on_remote else 0,
        only_remote=0 if on_remote else len(deletable),
        others=others if on_remote else 0,
    )
