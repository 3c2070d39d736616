"""Announces this runner on the bus: a small signed record on its own git reference, within the push budget.

The record is added to pushes that happen anyway. It is pushed alone only at the start, at the end, after an operator's
order, when the list of presets changes, and when nothing else was pushed for an interval. A record that takes back a
promise (stopped, draining, maintenance, a fault, fewer presets) needs no budget: requesters would wait for nothing.
"""

import math
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from bridge.bus import presence, wire
from bridge.bus.presence import Presence, Quota, RunnerState
from bridge.bus.writer import Writer
from bridge.common import limits
from bridge.errors import InfrastructureError, one_line
from bridge.manifest import format_time
from bridge.presets.announced import pack
from bridge.system.deadline import within
from bridge.verify.state_signature import signed_presence
from runner.bus.backoff import Retry
from runner.bus.bus import Bus
from runner.host.fitness import Fitness
from runner.policy import Policy
from runner.state.identity import WHO
from runner.state.orders import OperatorMode

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

# A record younger than this share of an interval is not renewed when something else is pushed.
_FRESH = 1 / 4
# Shorter jobs are not announced: readers see them on their branches.
_BUSY_S = 5.0
# How long to wait after the bus refused the reference; some servers refuse all references outside refs/heads/.
_REFUSED_S = 3600.0
_LAST_S = 5.0
# First delay before a failed push of the record alone is retried. It doubles, up to one interval.
_AGAIN_S = 10.0
# Requests come first after the start: the host is checked only after this many seconds.
_CHECK_S = 1.0


# On a full disk no record can be made, so a spare record with this reason is made beside each record.
_NO_ROOM = "it cannot write to its disk"


class _StoredRecord(NamedTuple):
    """A record, the ids of its git objects, and the id of its commit among them."""

    record: Presence
    objects: tuple[str, ...]
    commit: str


class Announcer:
    """Announces one runner. Announces nothing before ``begin``, or if the policy sets no interval."""

    def __init__(
        self, bus: Bus, policy: Policy, fitness: Fitness, identity: wire.Runner, signer: "Signer | None",
        *, is_shared: bool = False,
    ) -> None:  # fmt: skip
        self._bus = bus
        self._is_shared = is_shared
        self._policy = policy
        self._identity = identity
        self._signer = signer
        self._fitness = fitness
        self._checked_at = math.inf
        self._every_s = policy.bus.presence_s or 0.0
        self._retry = Retry()
        self._serves = False
        self._order = OperatorMode()
        self._fault = ""
        self._job: str | None = None
        self._job_since = 0.0
        self._last: _StoredRecord | None = None
        self._for_full_disk: _StoredRecord | None = None
        self._last_at = self._not_before = 0.0
        # The bus's message when it last refused the record, for the operator.
        self.refused = self._news = ""
        self.pushes = 0

    def begin(self) -> None:
        """Start to announce."""
        self._serves = self._policy.bus.presence_s is not None
        if self._serves:
            self._bus.piggyback = self
            self._checked_at = time.monotonic() + _CHECK_S - self._every_s

    def is_listed(self, preset: str) -> bool:
        """Return whether other runners may believe that this runner offers a preset."""
        presets = self._record().presets if self._serves else {}
        return presets is None or preset in presets

    def set_mode(self, order: OperatorMode) -> None:
        """Record the operator's order for the next announcement."""
        self._order = order

    def set_fault(self, fault: str) -> None:
        """Record what keeps the runner from working, if anything. A mere new description is not announced at once."""
        self._fault = one_line(fault)[: limits.PRESENCE_REASON]

    def set_branch(self, branch: str | None) -> None:
        """Record the request that the runner has claimed for the next announcement."""
        self._job, self._job_since = branch, time.monotonic()

    def take(self) -> str | None:
        """Return the record's commit, to add it to another push; None if the last record is recent enough."""
        if not self._is_due(self._every_s * _FRESH):
            return None
        try:
            self._offered = self._make()
        except (InfrastructureError, OSError):
            # The disk may be full, for example. The push to which this record would be added may still
            # succeed.
            if self._for_full_disk is None or not self._takes_back():
                return None
            self._offered = self._for_full_disk
        return self._offered.commit

    @property
    def ref(self) -> str:
        """The git reference of this runner's record."""
        return f"{presence.REFS}{self._identity.instance}"

    def mark_pushed(self) -> None:
        """Record that the commit that ``take`` returned was pushed."""
        if self._last:
            self._forget(self._last, self._offered, self._for_full_disk)
        self._last, self._last_at, self.refused = self._offered, time.monotonic(), ""

    def mark_failed(self, reason: str | None) -> None:
        """Record that the commit was not pushed. ``reason`` is the server's message if it refused the reference."""
        self._forget(self._offered, self._last, self._for_full_disk)
        if reason is not None:
            self.refused, self._not_before = reason, time.monotonic() + _REFUSED_S
            self._news = f"the bus does not take this runner's record, so requesters do not see it: {reason}"

    def news(self) -> str:
        """Return the news for the operator, or an empty string."""
        news, self._news = self._news, ""
        return news

    def announce_if_due(self) -> None:
        """Push the record alone if it is due and the push budget allows it."""
        if time.monotonic() - self._checked_at >= self._every_s:
            self._checked_at = time.monotonic()
            self._fitness.check()
        if not self._retry.is_due or not self._is_due(self._every_s, with_job=False):
            return
        if not self._bus.budget.has_spare() and not self._takes_back():
            return
        if commit := self.take():
            self.pushes += 1
            if self._bus.push_record(commit):
                self._retry.succeeded()
            else:
                self._retry.failed(self._every_s, _AGAIN_S)

    def _takes_back(self) -> bool:
        """Return whether the last record promises something that does not hold any more."""
        now = self._record()
        if self._last is None:
            return now.state is not RunnerState.SERVING or now.reason != ""
        last = self._last.record
        is_new = (now.state, bool(now.reason)) != (last.state, bool(last.reason))
        # None means that there are too many presets to list.
        is_less = now.presets is not None and not (last.presets or {}).keys() <= now.presets.keys()
        return is_less or (is_new and (now.state is not RunnerState.SERVING or now.reason != ""))

    def _is_due(self, age_s: float, *, with_job: bool = True) -> bool:
        """Return whether the last record has this age, or its content (perhaps without the job) is no longer true."""
        now = time.monotonic()
        if not self._serves or now < self._not_before:
            return False
        if self._last is None or now - self._last_at >= age_s:
            return True
        record = self._record()
        ignored = {"at": record.at} if with_job else {"at": record.at, "busy_with": record.busy_with}
        if self._fault and self._last.record.reason and not self._order.reason:
            ignored["reason"] = record.reason
        return self._last.record.model_copy(update=ignored) != record

    def end(self) -> None:
        """Announce that the runner stops, whatever was pushed before. The push may take a few seconds."""
        self._order, self._job, self._fault = OperatorMode(RunnerState.STOPPED), None, ""
        if self._serves:
            self._retry.succeeded()
            with suppress(InfrastructureError, OSError), within(_LAST_S):
                self.announce_if_due()
        self._serves, self._bus.piggyback = False, None

    def _make(self) -> _StoredRecord:
        """Store the current record, and the spare record for a full disk."""
        writer, record = Writer(self._bus.git), self._record()
        stored = self._add(writer, record)
        spare = self._add(writer, record.model_copy(update={"reason": _NO_ROOM}))
        writer.store()
        if self._for_full_disk:
            self._forget(self._for_full_disk, stored, spare, self._last)
        self._for_full_disk = spare
        return stored

    def _add(self, writer: Writer, record: Presence) -> _StoredRecord:
        details = presence.Details(
            poll_s=self._policy.bus.poll[1],
            has_priorities=bool(self._policy.priority),
            has_other_buses=self._is_shared,
        )
        blobs = {
            presence.FILE: writer.blob(record.to_bytes()),
            presence.DETAILS: writer.blob(details.to_bytes()),
        }
        if definitions := pack(self._fitness.own_definitions):
            blobs[presence.PRESETS] = writer.blob(definitions)
        tree = writer.tree({name: ("100644", blob) for name, blob in blobs.items()})
        message = signed_presence("kakeya: runner\n\n[skip ci]\n", self._signer, ref=self.ref, tree=tree)
        commit = writer.commit(tree, [], message, WHO)
        return _StoredRecord(record, (commit, tree, *blobs.values()), commit)

    def _record(self) -> Presence:
        presets = self._fitness.presets
        is_long_job = time.monotonic() - self._job_since >= _BUSY_S
        quota, patterns = self._policy.limits.per_requester, self._policy.bus.patterns
        few = len(patterns) <= limits.PRESENCE_LABELS and max(map(len, patterns)) <= limits.BRANCH_CHARS
        return Presence(
            schema_version=1,
            id=self._identity.id,
            instance=self._identity.instance,
            version=self._identity.version,
            state=self._order.state,
            reason=self._order.reason or self._fault,
            busy_with=self._job if is_long_job else None,
            labels=self._policy.labels,
            presets=presets if len(presets) <= limits.PRESENCE_PRESETS else None,
            patterns=list(patterns) if few else None,
            quota=Quota(waiting=min(quota.waiting, limits.COUNTER), per_hour=quota.per_hour),
            at=format_time(datetime.now(UTC)),
            valid_s=min(self._every_s * presence.VALID_INTERVALS, limits.PRESENCE_VALID_S),
        )

    def _forget(self, record: _StoredRecord, *kept: _StoredRecord | None) -> None:
        """Remove the objects of an outdated record that no other needs. Git would not: nothing refers to them."""
        for oid in set(record.objects).difference(*(other.objects for other in kept if other)):
            with suppress(OSError):
                (self._bus.git.directory / "objects" / oid[:2] / oid[2:]).unlink(missing_ok=True)
