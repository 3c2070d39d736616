"""Implements the tools, one function per tool, with the same client as the command line."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath

from bridge.bus.branch_names import requested_at
from bridge.bus.times import commit_times
from bridge.buses import Bus, Buses, read_values, silent, silent_error
from bridge.client import Client, Run
from bridge.common.advice import Door, printed
from bridge.doctor import examine
from bridge.errors import UsageError
from bridge.groups import Group, find_group
from bridge.mcp import groups, models
from bridge.mcp.bounds import MOST_BYTES, cut, log_text, page, short, size
from bridge.presets import Preset, Presets, find_preset
from bridge.presets.announced import runners_of
from bridge.presets.load import INSTALLED
from bridge.requests.status import Status, status_of
from bridge.verify.answer_checks import gaps
from bridge.verify.verdict import failed_check, verdict

# One answer contains at most this many of the gate's fixes.
_MEND = 3
# Size limit of all parameters of one preset.
_PARAMS_BYTES = 1400


@dataclass(frozen=True)
class BusClient:
    """The repository and the remote that the server uses."""

    repo: str
    # None: the buses that git's settings list.
    remote: str | None = None
    public_key: str | None = None

    def buses(self) -> Buses:
        """Return the buses with new clients for each call: calls run concurrently, and caches must not become stale.

        Their git processes run in their own session. Ending an agent usually ends the server's process group, and a git
        process that dies while it writes a reference leaves a stale lock file.
        """
        return Buses.of(self.repo, self.remote, public_key=self.public_key, own_session=True)

    def find(self, request: str) -> Run:
        """Return the named request; by default, the last one sent from here, which may be a point of a sweep."""
        if request and (group := self.group(request)):
            raise group.is_no_request()
        return self.buses().find(request or None)

    def group(self, request: str) -> Group | None:
        """Return the sweep with this id, or, without a name, the one sent last; None if that is a request."""
        buses = self.buses()
        group_id = buses.group_id(request or None)
        return find_group(buses, group_id) if group_id else None


def doctor(bus: BusClient, args: models.Page) -> models.Answer:
    """Check what is needed to send requests from here."""
    checks = []
    for check in examine(bus.repo, bus.remote, bus.public_key):
        own = check.message if check.own_message is None else check.own_message
        quoting = short(check.message) if own != check.message else None
        fix = short(printed(check.fix, Door.MCP) or "") or None
        checks.append(
            models.Check(name=check.name, ok=check.ok, message=short(own), untrusted_message=quoting, fix=fix)
        )
    ready = all(check.ok is not False for check in checks)
    return page(
        checks, args.offset, lambda some, more: models.Doctor(ready=ready, checks=some, next_offset=more)
    )


def presets(bus: BusClient, args: models.Presets) -> models.Answer:
    """List the presets, or show one in full."""
    known = bus.buses().all_presets()
    if args.name:
        jobs = [_job(find_preset(known, args.name), known, full=True)]
    else:
        jobs = [_job(preset, known, full=False) for preset in known.values()]
    return page(jobs, args.offset, lambda some, more: models.Jobs(presets=some, next_offset=more))


def _job(preset: Preset, known: Presets, *, full: bool) -> models.Job:
    params = []
    room = _PARAMS_BYTES // max(1, len(preset.params))
    for name, param in preset.params.items():
        default = "required" if param.required else f"default {param.default}"
        about = f": {param.allowed}; {default}" + (f"; {param.help}" if param.help else "")
        params.append(short(name + about, room) if full else f"{name}=" if param.required else name)
    about, name = short(preset.description), preset.name
    source = known.sources[name]
    runners = short(runners_of(known, name)) if full else ""
    if name in known.announced:
        # Unless a pinned key signed the answer, anyone who may push could have written it.
        return models.Job(
            name=name, description="", params=[], source=source, runners=runners or None, untrusted_description=about,
            untrusted_params=params,
        )  # fmt: skip
    shown = source if full or source != INSTALLED else None
    return models.Job(name=name, description=about, params=params, source=shown, runners=runners or None)


def run(bus: BusClient, args: models.Ask) -> models.Sent:
    """Request a job."""
    buses, key = bus.buses(), args.idempotency_key or None
    if any("," in text or ";" in text for text in args.params) and (sent := groups.run(buses, args)):
        return sent

    content = {"ref": args.ref, "snapshot": args.snapshot, "against": args.against or None}
    if args.reuse and (earlier := buses.find_answer(args.preset, args.params, **content)):
        return models.Sent(branch=earlier[0].branch, existing=True, bus=earlier[0].bus)
    chosen = buses.choose(args.preset, args.labels, key)
    run = chosen.sent(chosen.client.run(
        args.preset, read_values(chosen.client, args.preset, args.params), ref=args.ref,
        snapshot=args.snapshot, lifetime=timedelta(seconds=args.expires_s), labels=args.labels,
        idempotency_key=key, against=args.against or None,
    ))  # fmt: skip
    return models.Sent(branch=run.branch, existing=run.existing, bus=run.bus)


def status(bus: BusClient, args: models.About) -> models.Standing:
    """Return the status of a request, or of all points of a sweep."""
    group = bus.group(args.request)
    return groups.standing(group) if group else standing(bus.find(args.request))


def cancel(bus: BusClient, args: models.Cancel) -> models.Standing:
    """Ask the runner to stop."""
    if group := bus.group(args.request):
        group.cancel(args.reason)
        return groups.standing(group)
    run = bus.find(args.request)
    run.cancel(args.reason)
    return standing(run)


def standing(run: Run) -> models.Standing:
    """Return the status of a request. An answer is verified, as by ``kakeya wait``."""
    now = run.status()
    answer = models.Standing(
        branch=now.branch,
        state=str(now.state),
        done=now.state.is_final,
        exit_code=now.exit_code,
        elapsed_s=None if now.state.is_final else _ages(run.client, [now])[0],
        untrusted_detail=short(now.detail) or None,
        position=now.queue.before + 1 if now.queue else None,
        waits_for=str(now.reason.code) if now.reason else None,
        outlook=short(now.outlook_for_agents) or None,
        untrusted_last_line=short(now.last_line) or None,
    )
    return _conclude(run, answer) if now.answered else answer


def _ages(client: Client, statuses: Sequence[Status]) -> list[float]:
    """Return the age of each request in seconds, from when it was made."""
    times = commit_times(client.git, [status.request for status in statuses])
    now = time.time()
    return [
        round(max(0.0, now - (at or requested_at(status.branch))), 1)
        for status, at in zip(statuses, times, strict=True)
    ]


def _conclude(run: Run, answer: models.Standing) -> models.Standing:
    report = run.verify()
    shown = report.conclusion
    gate = report.result.gate if report.result and report.holds else None
    answer = answer.model_copy(update={
        "state": str(shown.state),
        "exit_code": shown.exit_code,
        "verified": short(verdict(report)),
        "voucher": None if shown.is_refused else shown.voucher,
        "untrusted_check": short(failed_check(report)) or None,
        "untrusted_gap": short("; ".join(gaps(report.result))) or None if report.result else None,
        "gate": gate.verdict if gate else None,
    })  # fmt: skip
    if not gate or not gate.violations:
        return answer
    firsts = {fault.code: fault for fault in reversed(gate.violations)}
    mend = [short(f"{fault.code}: {fault.message}; fix: {fault.mend}") for fault in firsts.values()][::-1]
    for most in range(min(_MEND, len(mend)), 0, -1):
        fuller = answer.model_copy(update={"untrusted_mend": mend[:most]})
        if size(fuller) <= MOST_BYTES:
            return fuller
    return answer


def logs(bus: BusClient, args: models.Logs) -> models.Log:
    """Return a piece of a job's log."""
    run = bus.find(args.request)
    state = status_of(run.client.view(run.branch)).state
    text = log_text(run.logs(), whole=state.is_final)
    start = max(0, len(text) + args.offset) if args.offset < 0 else min(args.offset, len(text))
    empty = models.Log(
        branch=run.branch, done=state.is_final, offset=start, untrusted_log="", next_offset=len(text)
    )
    piece = cut(text[start:], args.limit, MOST_BYTES - size(empty))
    end = start + len(piece)
    more = end if end < len(text) or not state.is_final else None
    return empty.model_copy(update={"untrusted_log": piece, "next_offset": more})


def fetch(bus: BusClient, args: models.Fetch) -> models.Answer:
    """Verify an answer and write its files into a folder below the repository."""
    fetched = bus.find(args.request).fetch(_below(bus.repo, args.out) if args.out else None)
    files = [str(path.relative_to(fetched.folder)) for path in fetched.files]
    shown = fetched.report.conclusion
    return page(
        [short(name) for name in files],
        args.offset,
        lambda some, more: models.Fetched(
            folder=str(fetched.folder),
            untrusted_files=some,
            state=str(shown.state),
            exit_code=int(shown.exit_code or 0),
            verified=short(verdict(fetched.report)),
            voucher=None if shown.is_refused else shown.voucher,
            gate=shown.verdict if shown.judged else None,
            next_offset=more,
        ),
    )


def _below(repo: str, out: str) -> str:
    """Return the folder that an agent named; UsageError if it is not below the server's repository."""
    path, root = PurePosixPath(out), Path(repo).resolve()
    is_unsafe = path.is_absolute() or any(part.startswith(".") for part in path.parts) or not path.parts
    if is_unsafe or not (root / path).resolve().is_relative_to(root):
        fix = "Name a folder such as results/first, or leave `out` away."
        raise UsageError(f"{out!r} is not a folder below the server's own", fix=fix, code="usage")
    return out


def recent(bus: BusClient, args: models.Recent) -> models.Answer:
    """List the newest requests."""
    # Read one request more than needed, to learn whether there are more.
    buses, most = bus.buses(), args.offset + args.limit
    statuses, answers = buses.newest(most + 1, group=args.group or None)
    if all(answer.error for answer in answers):
        raise silent_error(answers)
    rows = list(_rows(buses, statuses[:most], args.group))
    last = len(statuses) <= most
    # They are foreign words: a server writes its own messages.
    left_out = short("; ".join(f"{label}: {reason}" for label, reason in silent(answers))) or None

    def make(some: list[models.Row], more: int | None) -> models.Rows:
        end = args.offset + len(some)
        return models.Rows(
            requests=some,
            next_offset=more or (None if last or not some else end),
            untrusted_left_out=left_out,
        )

    return page(rows, args.offset, make)


def _rows(buses: Buses, rows: Sequence[tuple[Bus, Status]], group: str) -> Iterator[models.Row]:
    ages = _ages(buses.first.client, [status for _, status in rows])
    for (bus, status), age in zip(rows, ages, strict=True):
        stuck = status.reason is not None and status.reason.is_stuck
        detail = status.reason.text(known=False) if status.reason and stuck else status.detail
        yield models.Row(
            branch=status.branch,
            bus=bus.label if buses.several else None,
            state=str(status.state),
            verified=_outcome(status),
            age_s=int(age),
            waits_for=str(status.reason.code) if status.reason else None,
            group=None if group else status.group,
            untrusted_detail=short(detail, 200 if stuck else 120) or None,
        )


def _outcome(status: Status) -> str | None:
    """Return the verdict on an answer with its voucher, or the voucher alone; None without an answer."""
    return (status.shown.judged or status.shown.voucher) if status.answered else None
