"""A group: the requests of one sweep, which are sent, followed and cancelled together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from bridge.bus import objects
from bridge.buses import Bus
from bridge.common.advice import Advice, command, step
from bridge.errors import ExitCode, InfrastructureError, KakeyaError, UsageError, WaitTimeout
from bridge.presets.points import point_name
from bridge.requests.groups.plan import Plan, Plans
from bridge.requests.request_commit import Draft
from bridge.requests.send import send
from bridge.requests.status import Event, Status

if TYPE_CHECKING:
    from bridge.client import Client, Run
    from bridge.requests.answered.reuse import Reused

# Of these exit codes of points, the first one that occurs is that of the whole group.
WORST_FIRST = (
    ExitCode.BUG, ExitCode.FAILED, ExitCode.TIMED_OUT, ExitCode.GATE_REJECTED, ExitCode.GATE_INCOMPLETE,
    ExitCode.REFUSED, ExitCode.USAGE, ExitCode.INFRASTRUCTURE, ExitCode.CANCELLED,
)  # fmt: skip


def worst(codes: Sequence[int]) -> int:
    """Return the exit code of a group: the worst exit code of its points."""
    return int(next((code for code in WORST_FIRST if code in codes), max(codes, default=0)))


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

    @classmethod
    def of(cls, bus: Bus, plan: Plan) -> "Group":
        """Return the group that this clone's record shows."""
        points = [
            Point(
                index, point_name(params, plan.swept), params, plan.branch(index), plan.taken.get(str(index))
            )
            for index, params in enumerate(plan.points)
        ]
        return cls(bus, plan.group, points, plan, existing=True)

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
        """Wait for all sent points at once, and yield each when it ends: its last status, or why it has none.

        Raises:
            WaitTimeout: not all have ended after ``timeout`` seconds.
            InfrastructureError: the remote does not answer.
        """
        runs = {run.branch: (point, run) for point, run in self.runs()}
        last: dict[str, Status] = {}
        ended = 0
        try:
            for branch, news in self.client.follow_all([*runs], timeout):
                point, run = runs[branch]
                if isinstance(news, Event):
                    last[branch] = news.status
                    show(point, news)
                    continue
                ended += 1
                yield point, run, news or last[branch]
        except WaitTimeout as error:
            group = self.id
            message = f"only {ended} of {len(self.points)} points of {self.id} ended: {error.own_message}"
            fix = step("To keep waiting", "wait", group)
            raise WaitTimeout(message, fix=fix, code=error.code, quoting=error.quoting) from error

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
