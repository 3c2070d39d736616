"""Explains why a request waits, from the request, the runners, the queue and the time. A pure function: no I/O.

Presence records come from the bus, and without a pinned key anyone who may push can forge them. So the explanation is
for people only; no decision depends on it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from bridge.bus import wire
from bridge.bus.presence import Presence, RunnerState
from bridge.common.advice import SEND_AGAIN, Door, printed
from bridge.requests.sighting import Availability, RunnerSighting, span

_SHOWN = 3


class Code(StrEnum):
    """Why a request waits, as a code for programs."""

    CANCELLED = "cancelled"
    EXPIRED = "expired"
    # The branch exists and its manifest is still missing: a host's API needs two calls for them.
    MANIFEST = "manifest"
    APPROVAL = "approval"
    # No runner has announced itself on this bus. Earlier versions and GitHub Actions mode never do.
    UNKNOWN = "unknown"
    NO_RUNNER = "no_runner"
    BRANCH = "branch"
    LABELS = "labels"
    PRESET = "preset"
    # The request is on a session's branch, and no runner has created its request branch yet.
    FORWARD = "forward"
    MAINTENANCE = "maintenance"
    DRAINING = "draining"
    QUOTA = "quota"
    BUSY = "busy"
    TURN = "turn"
    # A runner is free, and no other request is first.
    SOON = "soon"
    # A runner said that it takes requests, but reports a fault, or has been silent for longer than two of its polls, or
    # has not claimed the request in that time.
    DOUBT = "doubt"


# Codes for which waiting does not help: somebody has to act.
STUCK = frozenset((
    Code.EXPIRED, Code.NO_RUNNER, Code.BRANCH, Code.LABELS, Code.PRESET, Code.MAINTENANCE, Code.DRAINING, Code.APPROVAL,
))  # fmt: skip


@dataclass(frozen=True)
class WaitingRequest:
    """A request that no runner has claimed."""

    branch: str
    commit: str
    # The preset's name; None if the manifest cannot be read.
    preset: str | None = None
    # The labels of the manifest and of the preset that is installed here.
    labels: frozenset[str] = frozenset()
    cancelled: bool = False
    # When the request expires, in Unix seconds; None if the manifest does not say.
    expires_at: float | None = None
    # When the request was made, in Unix seconds of the requester's clock; 0 if unknown.
    made_at: float = 0.0
    # Why the request waits for approval, and on which runner; empty if it does not wait for one.
    held: str = ""
    held_by: str = ""
    # The instance ids of runners that leave the request to others.
    declined_by: frozenset[str] = frozenset()
    # Whether the request's commit has a manifest.
    has_manifest: bool = True


@dataclass(frozen=True)
class QueuePosition:
    """A request's place in the queue."""

    # Number of waiting requests, including this one; number of older ones; number of older ones by the same requester.
    waiting: int = 1
    before: int = 0
    mine_before: int = 0
    # At most this many jobs run before the request on any one runner, as requesters take turns.
    ahead: int = 0
    # Number of the same requester's jobs that were started within the last hour.
    started: int = 0


@dataclass(frozen=True)
class Reason:
    """Why a request waits, and what to do about it."""

    code: Code
    # One sentence, without a full stop.
    message: str
    # What to do and on which machine; empty if the requester only has to wait.
    fix: str = ""
    # The runner that could take the request, or the best match.
    runner: str | None = None
    # The requested labels that this runner lacks.
    missing: tuple[str, ...] = ()
    # False if the reason depends on the clocks of two machines, which may disagree.
    sure: bool = True
    # The operator's reason, as free text from the bus: shown to people, never to agents.
    said: str = ""

    @property
    def is_stuck(self) -> bool:
        """Return whether somebody has to act because waiting alone does not help."""
        return self.code in STUCK

    def text(self, door: Door = Door.TERMINAL, *, known: bool = True) -> str:
        """Return one or two sentences; without ``known``, leave out the operator's free text."""
        message = f"{self.message} ({self.said})" if known and self.said else self.message
        return f"{message}. {printed(self.fix, door)}" if self.fix else message

    def as_dict(self) -> dict[str, object]:
        """Return the object that ``--json`` prints."""
        plain = {"code": str(self.code), "missing": list(self.missing), "stuck": self.is_stuck}
        return asdict(self) | plain


def explain_wait(
    request: WaitingRequest, runners: Sequence[RunnerSighting], position: QueuePosition, now: float
) -> Reason:
    """Return why a request waits. ``now`` is this machine's clock, in Unix seconds."""
    if reason := _without_records(request, runners, now):
        return reason
    alive = [sighting for sighting in runners if sighting.is_alive(now)]
    if not alive:
        return _gone(Code.NO_RUNNER, "no runner is alive: the last one was", "", runners, now)
    alive = [sighting for sighting in alive if sighting.record.instance not in request.declined_by] or alive
    labelled = [sighting for sighting in alive if not sighting.lacks(request.labels)]
    if not labelled:
        return _unlabelled(request, alive, runners, now)
    serving = [sighting for sighting in labelled if sighting.record.serves(request.branch)]
    if not serving:
        name = labelled[0].record.id
        message = f"no runner that is alive serves branches like {request.branch}"
        fix = f"On the machine of {name}, add a pattern for it to bus.patterns in the policy."
        return Reason(Code.BRANCH, message, fix, name)
    able = [sighting for sighting in serving if sighting.runs(request.preset)]
    if not able:
        name = serving[0].record.id
        first = "the first to take the request will refuse it"
        message = f"no runner that is alive runs the preset {request.preset}; {first}"
        fix = f"On the machine of {name}, allow it under `presets` in the policy, or install the version that has it."
        return Reason(Code.PRESET, message, fix, name)
    ready = [sighting for sighting in able if sighting.record.state is RunnerState.SERVING]
    return _queued(request, ready, position, now) if ready else _paused(able)


def _without_records(request: WaitingRequest, runners: Sequence[RunnerSighting], now: float) -> Reason | None:
    """Return why a request waits if the reason does not depend on the runners' records."""
    if request.cancelled:
        by = "a runner confirms it, or does so once one serves this bus"
        return Reason(Code.CANCELLED, f"the requester cancelled it; {by}")
    if request.expires_at is not None and request.expires_at < now:
        message = f"it expired {span(now - request.expires_at)} ago, before a runner took it, and none will"
        return Reason(Code.EXPIRED, message, SEND_AGAIN)
    if not request.has_manifest:
        message = (
            f"its file {wire.REQUEST} is not there, and a runner refuses it after ten minutes without one"
        )
        return Reason(Code.MANIFEST, message, "Put the file on the branch.")
    if request.held:
        fix = f"On the machine of {request.held_by or 'the runner'}: kakeya-runner approve {request.commit}"
        return Reason(Code.APPROVAL, request.held, fix, request.held_by or None)
    if not runners:
        fix = "Start one on the machine that should run the jobs: kakeya-runner serve"
        return Reason(Code.UNKNOWN, "no runner has announced itself on this bus", fix, sure=False)
    return None


def _gone(
    code: Code, lead: str, verb: str, gone: Sequence[RunnerSighting], now: float, lacks: tuple[str, ...] = ()
) -> Reason:
    """Return the reason that the request needs a runner that is gone. The text names the newest of these runners."""
    last = max(gone, key=lambda sighting: sighting.record.at_s)
    name = last.record.id
    fix = f"On the machine of {name}: kakeya-runner serve"
    message = f"{lead} {name}{verb}, {last.last_seen(now)}"
    return Reason(code, message, fix, name, lacks, sure=not last.is_doubtful(now), said=last.record.reason)


def _unlabelled(
    request: WaitingRequest, alive: Sequence[RunnerSighting], runners: Sequence[RunnerSighting], now: float
) -> Reason:
    near = min(alive, key=lambda sighting: (len(sighting.lacks(request.labels)), sighting.record.id))
    name, missing = near.record.id, near.lacks(request.labels)
    away = [sighting for sighting in runners if sighting not in alive and not sighting.lacks(request.labels)]
    if away:
        lead = f"no runner that is alive has {_some(missing)};"
        return _gone(Code.LABELS, lead, " has", away, now, missing)
    fix = (
        f"On the machine of {name}, add the label to `labels` in the policy if it fits, and restart the runner; "
        "or cancel the request and ask for other labels."
    )
    has = f"{name} comes nearest and lacks {_some(missing)}"
    message = f"no runner that is alive has all of the labels {_some(sorted(request.labels))}; {has}"
    return Reason(Code.LABELS, message, fix, name, missing)


def _paused(able: Sequence[RunnerSighting]) -> Reason:
    """Return why the matching runners take no requests now."""
    paused = [sighting.record for sighting in able if sighting.record.state is RunnerState.MAINTENANCE]
    if not paused:
        name = able[0].record.id
        message = f"{name} finishes its job and then ends (drain); no other runner can take the request"
        return Reason(Code.DRAINING, message, f"On the machine of {name}, later: kakeya-runner serve", name)
    first = paused[0]
    fix = f"On the machine of {first.id}: kakeya-runner maintenance off"
    return Reason(Code.MAINTENANCE, f"{first.id} is in maintenance", fix, first.id, said=first.reason)


def _queued(
    request: WaitingRequest, able: Sequence[RunnerSighting], position: QueuePosition, now: float
) -> Reason:
    sure = not all(sighting.is_doubtful(now) for sighting in able)
    over = [quota for sighting in able if (quota := _over_quota(sighting.record, position))]
    if len(over) == len(able):
        return Reason(Code.QUOTA, over[0], "", able[0].record.id, sure=sure)
    free = [sighting.record for sighting in able if sighting.record.busy_with in (None, request.branch)]
    jobs = "1 job comes" if position.ahead == 1 else f"{position.ahead} jobs come"
    where = f"at most {jobs} before it (requesters take turns)" if position.ahead else ""
    if position.waiting > 1 and any(sighting.has_priorities for sighting in able):
        where = "requests for presets of a higher priority may come before it"
    if not free:
        first = min(able, key=lambda one: one.availability(now) is Availability.QUIET)
        busy = first.record
        if first.availability(now) is Availability.QUIET:
            message = f"{busy.id} held {busy.busy_with}, and its lease has run out, so it may be gone"
            return Reason(
                Code.DOUBT, message, f"On the machine of {busy.id}: kakeya-runner status", busy.id, sure=False
            )
        more = len(able) - 1
        others = f", and {more} more {'runner is' if more == 1 else 'runners are'} busy" if more else ""
        message = f"{busy.id} runs {busy.busy_with}{others}" + (f"; {where}" if where else "; it is next")
        return Reason(Code.BUSY, message, "", busy.id, sure=sure)
    if where:
        names = _some([sighting.record.id for sighting in able])
        return Reason(Code.TURN, f"{where} on {names}", "", free[0].id, sure=sure)
    by_record = {sighting.record.instance: sighting for sighting in able}
    chosen = min(
        (by_record[record.instance] for record in free),
        key=lambda one: one.availability(now) is not Availability.FREE,
    )
    return _promise(request, chosen, now, sure=sure)


def _promise(request: WaitingRequest, sighting: RunnerSighting, now: float, *, sure: bool) -> Reason:
    """Return the reason that a runner takes the request at its next poll or, if that is in doubt, the doubt."""
    record, availability = sighting.record, sighting.availability(now)
    waited_s = now - request.made_at if request.made_at else 0.0
    is_late = waited_s > sighting.promise_s
    if availability is Availability.FREE and not is_late:
        return Reason(
            Code.SOON, f"{record.id} is free and takes it at its next poll", "", record.id, sure=sure
        )
    fix = f"On the machine of {record.id}: kakeya-runner status"
    if availability is Availability.FAULT:
        message = f"{record.id} reports a fault, and may not take it"
    elif is_late and sighting.has_other_buses:
        message = f"{record.id} may be running a job of another bus: its machine runs one job at a time"
        return Reason(Code.TURN, message, "", record.id, sure=False)
    elif is_late:
        message = f"{record.id} announced itself, but has not taken the request for {span(waited_s)}"
    else:
        message = f"{record.id} takes it if it still runs; {sighting.last_seen(now)}"
        fix = ""
    return Reason(Code.DOUBT, message, fix, record.id, sure=False, said=record.reason)


def _over_quota(record: Presence, position: QueuePosition) -> str:
    """Return the quota that the requester has used up on a runner; empty if none."""
    quota = record.quota
    if quota and position.mine_before >= quota.waiting:
        return (
            f"{position.mine_before} requests of the same requester wait before it, and {record.id} looks at "
            f"{quota.waiting} of each at a time (limits.per_requester)"
        )
    if quota and quota.per_hour is not None and position.started >= quota.per_hour:
        return (
            f"{position.started} requests of the same requester were started within the hour, and {record.id} starts "
            f"{quota.per_hour} of each (limits.per_requester)"
        )
    return ""


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
