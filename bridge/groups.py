"""Sweeps: one request for each point of a preset's parameters, sent, followed and cancelled as one group."""

import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from bridge.bus import objects, wire
from bridge.bus.remote import Remote
from bridge.buses import Bus, Buses
from bridge.common import sanitize, strict_json
from bridge.common.advice import REMOTE, Advice, command, step
from bridge.errors import ExitCode, InfrastructureError, KakeyaError, ManifestError, UsageError, WaitTimeout
from bridge.manifest import Request, parse_manifest
from bridge.presets import Checked
from bridge.presets.points import Points, differing, point_name, read_points
from bridge.requests import idempotency, request_commit
from bridge.requests.follow import CONFIRM_S
from bridge.requests.groups.names import GROUP, members, place_of
from bridge.requests.groups.plan import Plan, Plans, digest_of
from bridge.requests.on_branch import carry
from bridge.requests.request_commit import Draft
from bridge.requests.send import send
from bridge.requests.status import Event, Status, status_of

if TYPE_CHECKING:
    from bridge.client import Client, Run
    from bridge.requests.answered.reuse import Reused

# Of these exit codes of points, the first one that occurs is that of the whole group.
WORST_FIRST = (
    ExitCode.BUG, ExitCode.FAILED, ExitCode.TIMED_OUT, ExitCode.GATE_REJECTED, ExitCode.GATE_INCOMPLETE,
    ExitCode.REFUSED, ExitCode.USAGE, ExitCode.INFRASTRUCTURE, ExitCode.CANCELLED,
)  # fmt: skip
# How long the name of a point may be, which anyone may have written.
_NAME_CHARS = 120


def worst(codes: Sequence[int]) -> int:
    """Return the exit code of a group from those of its points: 0 if all are 0."""
    return int(next((code for code in WORST_FIRST if code in codes), max(codes, default=0)))


@dataclass(frozen=True)
class Ask:
    """The common settings of a sweep's requests, besides preset and parameters."""

    ref: str = "HEAD"
    snapshot: bool = False
    lifetime: timedelta = request_commit.DEFAULT_LIFETIME
    labels: Sequence[str] = ()
    requested_by: str | None = None
    sign: bool = False
    idempotency_key: str | None = None
    against: str | None = None
    on_branch: str | None = None
    # Whether earlier answers to the same questions stand for requests.
    reuse: bool = False


@dataclass(frozen=True)
class Point:
    """One request of a group."""

    # The point's place in the group, from 0, and the parameters that differ, as text: ``block_size=4``.
    index: int
    name: str
    params: Mapping[str, object]
    # The request's branch; None if it was not sent.
    branch: str | None
    # The earlier answer that stands for a request.
    reused: "Reused | None" = None

    def as_dict(self) -> dict[str, object]:
        """Return the object that ``--json`` prints."""
        shown: dict[str, object] = {"point": self.name, "params": dict(self.params), "branch": self.branch}
        return shown | ({"answered_at": self.reused.ended_at} if self.reused else {})


@dataclass
class Group:
    """A group of requests. With a ``plan``, this clone sent it."""

    bus: Bus
    id: str
    points: list[Point]
    plan: Plan | None = None
    # Whether an earlier call began to send the group.
    existing: bool = False
    # How many points have no branch, as far as the names of the others say.
    absent: int = 0

    @property
    def client(self) -> "Client":
        """The client for the group's bus."""
        return self.bus.client

    @property
    def label(self) -> str | None:
        """The label of the group's bus, if there are several buses."""
        return None if self.bus.place is None else self.bus.label

    @property
    def unsent(self) -> list[Point]:
        """The points that were not sent."""
        return [point for point in self.points if point.branch is None]

    @property
    def absence(self) -> str:
        """A sentence about points that have no branch, of a group that another clone sent; empty if there are none."""
        return (
            f"points without a branch: {self.absent} (not sent yet, or answered before)"
            if self.absent
            else ""
        )

    @property
    def is_cancelled(self) -> bool:
        """Whether the group is cancelled: its missing requests will not be sent."""
        return self.plan is not None and self.plan.is_cancelled

    def is_no_request(self) -> UsageError:
        """Return the error for a command or tool that takes only a single request."""
        group = self.id
        fix = Advice(command("list", f"--group={group}"), " shows them.")
        return UsageError(f"{self.id} is a group of {len(self.points)} points: name one of them", fix=fix)

    @property
    def is_recorded(self) -> bool:
        """Whether this clone can continue the group."""
        return Plans(self.client.git).read(self.id) is not None

    @property
    def unsent_codes(self) -> list[int]:
        """The exit codes of the points that were not sent: they were cancelled before."""
        return [int(ExitCode.CANCELLED)] * len(self.unsent)

    def send(self, on_sent: Callable[[Point, str | None], None], *, waits: bool) -> None:
        """Send the missing requests. ``on_sent`` gets each point, and its session's branch, if it has one.

        If ``waits`` is False, the same command will send new requests.
        """
        plans = Plans(self.client.git)
        while (plan := self.plan) and not plan.is_cancelled and plan.unsent:
            point, session = self._send_point(plan, plan.unsent[0])
            # Another process may have cancelled the group, or sent some of it too.
            latest = plans.read(self.id) or plan
            self.plan = latest.model_copy(update={"sent": {**latest.sent, str(point.index): point.branch}})
            plans.write(self.plan)
            self.points[point.index] = point
            on_sent(point, session)
        if self.plan and not waits:
            self.close()

    def _send_point(self, plan: Plan, index: int) -> tuple[Point, str | None]:
        client = self.client
        is_first = not (self.existing or plan.sent)
        try:
            delivery = send(
                client.git, client.remote, client.sent, _draft(client, plan, index), namespace=client.namespace,
                patterns=client.patterns, sign=plan.sign, idempotency_key=f"{self.id}.{index}",
                on_branch=plan.on_branch, place=plan.place(index).digits, is_new=not (self.existing or plan.is_keyed),
            )  # fmt: skip
        except InfrastructureError:
            raise
        except KakeyaError:
            if is_first:
                # Nothing was sent, so there is nothing to continue.
                Plans(client.git).remove(self.id)
            raise
        return replace(self.points[index], branch=delivery.branch), delivery.session

    def close(self) -> None:
        """Record that the same command shall begin a new sweep."""
        if self.plan:
            Plans(self.client.git).change(self.id, is_open=False)

    def cancel(self, reason: str) -> list[tuple[Point, Status | KakeyaError]]:
        """Cancel all requests that have not ended; missing ones are not sent any more. Returns each point's new status.

        Earlier answers that stand for requests are left out. An error is that of one point: the others are cancelled.
        """
        if self.plan:
            Plans(self.client.git).change(self.id, is_open=False, is_cancelled=True)
            self.plan = self.plan.model_copy(update={"is_cancelled": True})
        own = [(point, run) for point, run in self.runs() if not point.reused]
        return [(point, _or_error(run.cancel, reason)) for point, run in own]

    def runs(self) -> Iterator[tuple[Point, "Run"]]:
        """Yield the points that were sent or have an earlier answer, with their requests."""
        for point in self.points:
            if point.branch:
                yield point, self.bus.run(point.branch)

    def follow(
        self, timeout: float | None, show: Callable[[Point, Event], None]
    ) -> Iterator[tuple[Point, "Run", Status | KakeyaError]]:
        """Wait for each sent point, and yield its last status, or why it has no status.

        The points are followed one after another, so all events of a point come before those of the next one.

        Raises:
            WaitTimeout: not all have ended after ``timeout`` seconds.
            InfrastructureError: the remote does not answer.
        """
        began = time.monotonic()
        ends = math.inf if timeout is None else began + timeout
        for ended, (point, run) in enumerate(self.runs()):
            if time.monotonic() - began >= CONFIRM_S and (status := self._withdrawn(run)):
                # A runner had time enough to confirm the cancellation while earlier points were followed.
                yield point, run, status
                continue
            left = None if timeout is None else round(max(0.0, ends - time.monotonic()), 1)
            last: Status | KakeyaError | None = None
            try:
                for event in run.follow(left):
                    show(point, event)
                    last = event.status
            except WaitTimeout as error:
                if error.code != "expired":
                    ended_of = f"only {ended} of {len(self.points)} points of {self.id} ended"
                    message = f"{ended_of}: {error.own_message}"
                    group = self.id
                    fix = step("To keep waiting", "wait", group)
                    raise WaitTimeout(message, fix=fix, code=error.code, quoting=error.quoting) from error
                last = error
            except InfrastructureError:
                raise
            except KakeyaError as error:
                last = error
            assert last is not None  # noqa: S101 - a request has at least one state
            yield point, run, last

    def _withdrawn(self, run: "Run") -> Status | None:
        """Return the status of a request that was cancelled before a runner took it; None for any other request."""
        with suppress(KakeyaError):
            branch = self.client.view(run.branch)
            return status_of(branch) if branch.is_withdrawn else None
        return None

    def statuses(self) -> list[tuple[Point, Status | KakeyaError]]:
        """Return the status of each sent point, or why it has no status. Answers are verified."""
        listed = {status.branch: status for status in self.client.list(group=self.id)}

        def look(branch: str) -> Status:
            status = listed.get(branch) or self.client.status(branch)
            if not status.answered or status.conclusion:
                return status
            return status.concluded(self.client.verify(branch).conclusion)

        return [(point, _or_error(look, run.branch)) for point, run in self.runs()]


def _or_error(action: Callable[[str], Status], argument: str) -> Status | KakeyaError:
    """Return an action's result, or its error. An error about the whole remote is raised."""
    try:
        return action(argument)
    except InfrastructureError:
        raise
    except KakeyaError as error:
        return error


@dataclass(frozen=True)
class _Sweep:
    """The full content of a sweep, known before anything is sent."""

    draft: Draft
    values: Sequence[Checked]
    who: str
    # The branch of the session that carries the requests; None: each has its own.
    session: str | None
    digest: str
    # The group's id if it follows from an idempotency key.
    group: str | None

    @classmethod
    def of(cls, client: "Client", preset: str, points: Points, ask: Ask) -> "_Sweep":
        """Return the content of a sweep; UsageError if a value does not fit."""
        git = client.git
        known = client.preset(preset)
        values = [known.check_params(params) for params in points.params]
        who, key = ask.requested_by or request_commit.identity(git).email, ask.idempotency_key
        draft = Draft(known, values[0], ask.ref, ask.snapshot, ask.lifetime, ask.labels, who, ask.against)
        request_commit.check_lifetime(draft.lifetime)
        draft = replace(draft, resolved=request_commit.resolve(git, draft))
        trees = [git.text("rev-parse", f"{commit}^{{tree}}") for commit in draft.resolved or () if commit]
        on_branch = ask.on_branch
        session = None if on_branch is None else carry.session_branch(git, client.remote, on_branch)
        digest = digest_of({
            "key": key, "trees": None if key else trees, "preset": [known.name, known.digest], "points": values,
            "swept": [*points.swept], "ref": ask.ref, "snapshot": ask.snapshot, "against": ask.against,
            "labels": [*ask.labels], "who": who, "sign": ask.sign, "remote": client.remote.url, "session": session,
            "lifetime": None if key else ask.lifetime.total_seconds(),
        })  # fmt: skip
        return cls(draft, values, who, session, digest, key and _keyed_group(client, who, key))

    def find_earlier(self, plans: Plans) -> Plan | None:
        """Return the record of the sweep that this one continues, if there is one."""
        return plans.read(self.group) if self.group else plans.find_open(self.digest)


def choose(buses: Buses, preset: str, texts: Sequence[str], ask: Ask) -> tuple[Bus, Points]:
    """Return a sweep's bus and its points. The bus is the one where the sweep began, or is chosen as for one request.

    Raises:
        UsageError: a value does not fit.
    """
    for bus in buses.buses if buses.several else ():
        with suppress(KakeyaError):
            points = read_points(bus.client.preset(preset), texts)
            sweep = _Sweep.of(bus.client, preset, points, ask)
            if (earlier := sweep.find_earlier(Plans(bus.client.git))) and earlier.digest == sweep.digest:
                return bus, points
    bus = buses.choose(preset, ask.labels, None, ask.requested_by)
    return bus, read_points(bus.client.preset(preset), texts)


def start(bus: Bus, preset: str, points: Points, ask: Ask) -> Group:
    """Return the group of a sweep. No request is sent.

    The same sweep that was interrupted before is continued, and with an idempotency key any earlier one.

    Raises:
        UsageError: the preset is unknown, or something does not fit. Nothing was sent.
    """
    client, plans = bus.client, Plans(bus.client.git)
    sweep = _Sweep.of(client, preset, points, ask)
    earlier = sweep.find_earlier(plans)
    if earlier and earlier.digest != sweep.digest:
        message = f"the idempotency key {ask.idempotency_key!r} was used for another sweep: {earlier.group}"
        fix = "Use a new key, or repeat the first call with the same preset, parameters and ref."
        raise UsageError(message, fix=fix, code="idempotency_conflict")
    if earlier:
        return _of_plan(bus, earlier)
    drafts = [replace(sweep.draft, params=each) for each in sweep.values]
    answers = client.find_answers(drafts) if ask.reuse else [None] * len(drafts)
    workload, baseline = sweep.draft.resolved or ("", None)
    plan = Plan(
        group=sweep.group or secrets.token_hex(6), is_keyed=sweep.group is not None, remote=bus.remote,
        digest=sweep.digest, made_at=time.time(), preset=preset, points=[dict(each) for each in sweep.values],
        swept=[*points.swept], ref=ask.ref, snapshot=ask.snapshot, against=ask.against, workload=workload,
        baseline=baseline, lifetime_s=ask.lifetime.total_seconds(), labels=[*ask.labels], requested_by=sweep.who,
        sign=ask.sign, on_branch=sweep.session,
        taken={str(index): answer for index, answer in enumerate(answers) if answer},
    )  # fmt: skip
    plans.write(plan)
    return replace(_of_plan(bus, plan), existing=False)


def _keyed_group(client: "Client", who: str, key: str) -> str:
    secret = idempotency.read_secret(client.git)
    idempotency.Key.of(key, who, {}, secret)
    text = strict_json.dumps(["group", who, key]).encode()
    return hmac.new(secret, text, hashlib.sha256).hexdigest()[:12]


def _draft(client: "Client", plan: Plan, index: int) -> Draft:
    """Return a point's draft. Raises UsageError if this clone no longer knows the preset, or has its commits."""
    known = client.preset(plan.preset)
    for commit in (plan.workload, plan.baseline):
        if commit and objects.resolve(client.git, commit) is None:
            group = plan.group
            fix = step("Give up what was not sent", "cancel", group)
            raise UsageError(
                f"the commit {commit[:12]} of the group {plan.group} is not here any more", fix=fix
            )
    return Draft(
        known, known.check_params(plan.points[index]), plan.ref, plan.snapshot, timedelta(seconds=plan.lifetime_s),
        plan.labels, plan.requested_by, plan.against, (plan.workload, plan.baseline),
    )  # fmt: skip


def find_group(buses: Buses, name: str) -> Group | None:
    """Return the group with an id: from this clone's record, or else from the names of branches on a bus.

    None if ``name`` is no group's id.

    Raises:
        UsageError: this clone sent it to another bus.
    """
    if not GROUP.fullmatch(name):
        return None
    first = buses.first
    if plan := Plans(first.client.git).read(name):
        return _of_plan(_bus_of(buses, plan), plan)
    sent = first.client.sent.branches()
    # An ordinary nonce has 12 digits too. One of a request that was sent from here is known without the remote.
    if any(name in branch for branch in sent) and not members(sent, name):
        return None
    for answer in buses.ask(lambda client: client.list(verified=False, group=name)):
        if answer.value:
            return _of_claims(answer.bus, name, answer.value)
    return None


def _bus_of(buses: Buses, plan: Plan) -> Bus:
    """Return the bus that a group was sent to, so that its missing requests go there too."""
    for bus in buses.buses:
        if bus.remote == plan.remote:
            return bus
    try:
        url = Remote.of(buses.first.client.git, plan.remote).url
    except UsageError:
        if not buses.several:
            # The remote was renamed or removed, and there is no choice.
            return buses.first
        url = None
    for bus in buses.buses:
        with suppress(KakeyaError):
            if bus.client.remote.url == url:
                return bus
    fix = Advice("Choose that bus with ", REMOTE, ".")
    message = f"the group {plan.group} was sent to another bus: {plan.remote}"
    raise UsageError(message, fix=fix, code="other_bus")


def _of_claims(bus: Bus, name: str, statuses: Sequence[Status]) -> Group:
    """Return the group that the names of branches show."""
    params = {status.branch: _params(bus.client, status.request) for status in statuses}
    swept = differing(list(params.values()))
    points = []
    absent: set[int] = set()
    for branch, own in params.items():
        if place := place_of(branch):
            points.append(Point(place.index, shown_name(own, swept), own, branch))
            absent |= {*range(place.count)}
    absent -= {point.index for point in points}
    return Group(bus, name, points, existing=True, absent=len(absent))


def _of_plan(bus: Bus, plan: Plan) -> Group:
    points = [
        Point(index, shown_name(params, plan.swept), params, plan.branch(index), plan.taken.get(str(index)))
        for index, params in enumerate(plan.points)
    ]
    return Group(bus, plan.group, points, plan, existing=True)


def _params(client: "Client", commit: str) -> Mapping[str, object]:
    return request.params if (request := _request(client, commit)) else {}


def _request(client: "Client", commit: str) -> Request | None:
    data = objects.read_blob(client.git, commit, wire.REQUEST, max_bytes=strict_json.MAX_BYTES)
    try:
        return parse_manifest(data or b"")
    except ManifestError:
        return None


def shown_name(params: Mapping[str, object], swept: Sequence[str]) -> str:
    """Return the name of a point as one short, printable line."""
    line = sanitize.line(point_name(params, swept)) or "no parameters"
    return line if len(line) <= _NAME_CHARS else f"{line[: _NAME_CHARS - 3]}..."


def quota_note(client: "Client", count: int, plan: Plan | None) -> str:
    """Return a sentence if the runners' quotas make a sweep wait for hours; otherwise an empty text."""
    try:
        alive = [each.record for each in client.runners() if each.is_alive(time.time())]
    except KakeyaError:
        return ""
    able = [record for record in alive if not plan or record.presets is None or plan.preset in record.presets]
    rates = [record.quota.per_hour if record.quota else None for record in able]
    known = [rate for rate in rates if rate is not None]
    if not known or len(known) < len(rates) or count <= sum(known):
        return ""
    hours = (count - 1) // sum(known)
    rate = f"the runners start {sum(known)} requests of each requester in an hour"
    text = f"{rate}, so the last of {count} waits {hours} h"
    expires_h = plan.lifetime_s / 3600 if plan else math.inf
    if hours >= expires_h:
        text += f"; those that wait longer than {expires_h:g} h expire, so use a longer --expires"
    return text
