"""``kakeya status``, ``wait``, ``logs``, ``cancel``, ``fetch``, ``verify`` and ``report`` of a group."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bridge.bus.wire import EXIT_CODES
from bridge.cli.common import follow, slowdown_code, state_text, verdict_text, with_bus
from bridge.cli.groups.following import wait_for
from bridge.cli.groups.sending import send_rest
from bridge.client import Run
from bridge.common.advice import step
from bridge.common.cli.output import put, put_block, put_json, say
from bridge.common.cli.screen import Grid, console
from bridge.errors import ExitCode, InfrastructureError, KakeyaError
from bridge.groups import Group, worst
from bridge.reports.readable import readable
from bridge.show.source import Source, from_branch, in_order_of_points
from bridge.verify.verdict import verified

_WIDTH = 250


@dataclass(frozen=True)
class GroupCommands:
    """The commands about requests, for a whole group."""

    group: Group

    def status(self, *, as_json: bool) -> None:
        """Show the state of each point."""
        statuses = self.group.statuses()
        if self.group.absence:
            say(f"note: {self.group.absence}")
        if as_json:
            sent = [{**point.as_dict(), **status.as_dict()} for point, status in statuses]
            points = sent + [point.as_dict() for point in self.group.unsent]
            put_json(with_bus(self.group.label, {"group": self.group.id, "points": points}))
            return
        table = Grid("point", "state", "verdict", "branch")
        for point, status in statuses:
            if isinstance(status, KakeyaError):
                table.add_row(point.name, status.code, "", point.branch or "")
                continue
            verdict = verdict_text(status.shown) if status.answered else ""
            table.add_row(point.name, state_text(status.shown), verdict, status.branch)
        for point in self.group.unsent:
            table.add_row(point.name, "not sent", "", "")
        out = console()
        out.width = _WIDTH
        out.print(table)

    def wait(self, limit: timedelta | None, slower: float | None, *, as_json: bool) -> int:
        """Send the missing requests, wait for all points, and return the exit code of the worst point."""
        if self.group.unsent and not self.group.is_cancelled:
            send_rest(self.group, waits=True)
        return wait_for(self.group, limit, slower, as_json=as_json)

    def cancel(self, reason: str, *, as_json: bool) -> None:
        """Ask the runners to stop all points that have not ended."""
        statuses = self.group.cancel(reason)
        if as_json:
            points = [{**point.as_dict(), **status.as_dict()} for point, status in statuses]
            put_json(with_bus(self.group.label, {"group": self.group.id, "points": points}))
            return
        faults = [(point, status) for point, status in statuses if isinstance(status, KakeyaError)]
        before = sum(not isinstance(status, KakeyaError) and status.answered for _, status in statuses)
        cancelled = len(statuses) - len(faults) - before
        say(
            f"cancelled {cancelled} of {len(self.group.points)} points of {self.group.id}; {before} had ended before"
        )
        for point, fault in faults:
            say(f"{point.name}: {fault.message}")
        if self.group.unsent:
            say(f"{len(self.group.unsent)} were not sent, and will not be")
        if cancelled:
            say(f"next: kakeya wait {self.group.id}")

    def logs(self, limit: timedelta | None, *, following: bool, raw: bool, as_json: bool) -> int:
        """Print the log of each point, one after another; with ``following``, return the exit code of the worst."""
        codes: list[int] = []
        ends = None if limit is None else time.monotonic() + limit.total_seconds()
        for point, run in self.group.runs():
            say(f"{point.name}: {run.branch}")
            if following:
                remaining = None if ends is None else timedelta(seconds=max(0.0, ends - time.monotonic()))
                codes.append(int(EXIT_CODES[follow(run, remaining, as_json=as_json, raw=raw).state]))
            elif as_json:
                put_json({**point.as_dict(), "log": run.logs()})
            else:
                put_block(run.logs() if raw else readable(run.logs()))
        return worst(codes)

    def fetch(self, out: str | None, note: Callable[[Run], str | None] | None, *, as_json: bool) -> int:
        """Write the answer of each point into a folder of its own, and return the exit code of the worst point."""
        codes: list[int] = []
        points: list[dict[str, object]] = []
        for point, run in self.group.runs():
            try:
                folder = Path(out) / Path(run.branch).name if out else None
                fetched = run.fetch(folder)
                noted = note(run) if note else None
            except KakeyaError as error:
                codes.append(int(error.exit_code))
                points.append({**point.as_dict(), **error.as_dict()})
                say(f"{point.name}: {error.message}")
                continue
            shown = fetched.report.conclusion
            codes.append(int(shown.exit_code or 0))
            files = [str(path) for path in fetched.files]
            points.append({
                **point.as_dict(), "folder": str(fetched.folder), "files": files, "conclusion": shown.as_dict(),
                **({"noted": noted} if note else {}),
            })  # fmt: skip
            if not as_json:
                put(fetched.folder)
            say(f"{point.name}: {shown.text}")
        code = worst([*codes, *self.group.unsent_codes])
        if as_json:
            folders = {"folder": out} if out and any("folder" in point for point in points) else {}
            document = {"group": self.group.id, **folders, "exit_code": code, "points": points}
            put_json(with_bus(self.group.label, document))
        return code

    def verify(self, slower: float | None, *, as_json: bool) -> int:
        """Verify the answer of each point. Returns 0 if all are valid, whatever the outcomes.

        With ``slower``, candidates that are worse by more than that share end with the code of rejected reports.
        """
        codes: list[int] = []
        points: list[dict[str, object]] = []
        is_valid = not self.group.unsent
        for point, run in self.group.runs():
            try:
                report = run.verify()
            except KakeyaError as error:
                is_valid = False
                points.append({**point.as_dict(), **error.as_dict()})
                say(f"{point.name}: {error.message}")
                continue
            is_valid &= report.holds
            if report.holds and slower is not None:
                codes.append(slowdown_code(run.client.comparison(run.branch), slower, run.branch))
            points.append({**point.as_dict(), **report.as_dict()})
            if not as_json:
                put(f"{point.name}: {verified(report)}")
        if as_json:
            put_json(with_bus(self.group.label, {"group": self.group.id, "points": points}))
        return worst(codes) if is_valid else ExitCode.FAILED

    def sources(self) -> list[Source]:
        """Return the answers of a group, sorted by the swept parameters, each named by its point.

        Points without an answer are left out, and named on standard error.

        Raises:
            InfrastructureError: no point has an answer.
        """
        sources: list[Source] = []
        for point, run in self.group.runs():
            try:
                sources.append(from_branch(self.group.client, run.branch))
            except KakeyaError as error:
                say(f"note: left out {point.name}: {error.message}")
        for point in self.group.unsent:
            say(f"note: left out {point.name}: it was not sent")
        if self.group.absence:
            say(f"note: {self.group.absence}")
        if not sources:
            group = self.group.id
            message = f"no point of {self.group.id} has an answer that can be read"
            raise InfrastructureError(message, fix=step("Wait for them", "wait", group), code="no_answer_yet")
        return in_order_of_points(sources, self.group.plan.swept if self.group.plan else None)
