"""Running one admitted request from claim to answer."""

from __future__ import annotations

import time
from enum import Enum
from pathlib import Path

from bridge import wire
from bridge.errors import InfrastructureError
from bridge.manifest import Request
from bridge.wire import CommandResult, LogDigest, State
from runner import trust
from runner.answer import Outcome, answer
from runner.approvals import Approvals
from runner.bounds import bounds, explain
from runner.bus import Pushed
from runner.collect import collect
from runner.gate import judge
from runner.intake import Admitted
from runner.lease import Lease
from runner.logs import LogSink
from runner.process import Command, Ended, job_environment
from runner.redact import Redactor
from runner.refusal import Refusal
from runner.session import Session
from runner.workspace import Workspace, check_paths, export_tree, workspace

_TICK_S = 0.1


class Halt(Enum):
    """Why a running job was ended from outside."""

    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    FENCED = "fenced"
    STOPPING = "stopping"


def execute(session: Session, admitted: Admitted) -> State | None:
    """Claim a request, run it, and answer. Returns the state that was published, None where nothing was.

    Nothing is published where another runner was faster, where the request was handed back because this runner stops,
    or where the bus cannot be reached (the answer is then kept and pushed later).
    """
    lease = Lease(session, admitted.view)
    request = admitted.request
    session.ledger.begin(lease.request, branch=lease.branch, nonce=request.nonce, preset=request.preset)
    claimed = lease.advance(State.CLAIMED)
    if claimed is not Pushed.DONE:
        why = "another runner was faster" if claimed is Pushed.STALE else "the claim could not be pushed"
        session.tell(f"{lease.branch}: {why}")
        return None
    session.tell(f"{lease.branch}: claimed")
    outcome = Outcome(
        State.SUCCEEDED, wire.Reason(code="ok", message="every step ended with 0"), request, admitted
    )
    with workspace(session.policy.state, request.preset) as place:
        try:
            if admitted.preset.code == "request":
                # Once more: a key may have been taken off the list since the request was admitted.
                trust.judge(session.bus.git, admitted.view, admitted.preset, session.policy)
                export_tree(session.bus.git, f"{lease.request}", place.tree, session.policy.limits)
                check_paths(admitted.preset, admitted.params, place.tree)
            halt = _run_steps(session, lease, admitted, place, outcome)
        except Refusal as refusal:
            outcome.end(State.REFUSED, refusal.code, refusal.message)
            halt = None
        if halt in (Halt.FENCED, Halt.STOPPING):
            _let_go(session, lease, halt)
            return None
        if halt is None:
            _gather(admitted, place, outcome, session.bus.secrets)
    published = answer(session, lease, outcome)
    if (admitted.trusted_by or "").startswith(trust.APPROVAL):
        # It was for this once, whatever becomes of the ledger that knows of the answer.
        Approvals(session.policy.state).withdraw(lease.request)
    session.tell(f"{lease.branch}: {outcome.state} ({outcome.reason.message})")
    return published


def answer_without_running(
    session: Session, lease: Lease, request: Request | None, outcome: Outcome
) -> State | None:
    """Refuse or close a request: one commit, in competition with other runners."""
    outcome.request = request
    if request:
        seen = session.ledger.seen(lease.branch)
        if seen is None or (seen.request == lease.request and seen.state not in set(wire.EXIT_CODES)):
            session.ledger.begin(
                lease.request, branch=lease.branch, nonce=request.nonce, preset=request.preset
            )
    published = answer(session, lease, outcome)
    session.tell(f"{lease.branch}: {outcome.state} ({outcome.reason.message})")
    return published


def _let_go(session: Session, lease: Lease, halt: Halt) -> None:
    if halt is Halt.STOPPING:
        lease.advance(State.REQUESTED, detail="handed back: the runner was stopped")
        session.tell(f"{lease.branch}: handed back")
    else:
        session.tell(f"{lease.branch}: another runner has taken it over; nothing is published here")
    session.ledger.settled(branch=lease.branch, state=str(halt.value))


def _run_steps(
    session: Session, lease: Lease, admitted: Admitted, place: Workspace, outcome: Outcome
) -> Halt | None:
    """Run the steps in order until one fails. Returns why the job was ended from outside, if it was."""
    limits = session.policy.limits
    preset = admitted.preset
    deadline = time.monotonic() + admitted.timeout_s
    passed = {name: session.policy.env[name] for name in preset.pass_env if name in session.policy.env}
    env = job_environment(place.home, interpreter=session.policy.interpreter, extra={**passed, **preset.env})
    for i, argv in enumerate(admitted.commands):
        sink = LogSink(int(limits.log_mb * (1 << 20)), session.bus.secrets)
        command = Command(
            argv,
            env=env,
            cwd=place.tree,
            timeout_s=max(0.1, deadline - time.monotonic()),
            grace_s=limits.grace_s,
            sink=sink,
            inside=session.sandbox.around(argv, place, preset),
            limits={
                "RLIMIT_CORE": 0,
                "RLIMIT_FSIZE": preset.limits.file_mb << 20,
                "RLIMIT_NOFILE": preset.limits.open_files,
            },
            bounds=bounds(preset.limits, limits),
            watched=place.tree.parent,
        )
        try:
            halt = _attend(session, lease, command, sink, i)
        finally:
            ended = command.stop()
        if halt in (Halt.FENCED, Halt.STOPPING):
            return halt
        _note(outcome, preset.name, i, argv, ended, sink)
        if halt:
            words = {
                Halt.CANCELLED: "the requester cancelled it",
                Halt.SUPERSEDED: "the branch was pushed to again",
            }
            outcome.end(State.CANCELLED, halt.value, words[halt])
            return halt
        if _failed(outcome, ended, i, admitted.timeout_s):
            return None
    return None


def _attend(session: Session, lease: Lease, command: Command, sink: LogSink, step: int) -> Halt | None:
    """Wait for a command: send heartbeats with its output, and watch the branch and this runner's own end."""
    shortest, _ = session.policy.bus.poll
    budget = session.bus.budget
    last_look = last_beat = time.monotonic()
    while command.poll(_TICK_S) is None:
        if session.stop.is_set() and session.policy.on_stop == "hand_back":
            return Halt.STOPPING
        now = time.monotonic()
        # Three heartbeats fit into a lease, whatever the budget says.
        due = budget.interval_s if budget.spare() else session.policy.bus.lease_s / 3
        if now - last_beat >= due:
            last_beat = now
            chunk = sink.take_chunk()
            pushed = lease.advance(State.RUNNING, step=step, chunk=chunk)
            if pushed is not Pushed.DONE:
                sink.give_back(chunk)
            if pushed is Pushed.STALE:
                last_look = 0.0
        if now - last_look >= shortest:
            last_look = now
            halt = _look(lease)
            if halt:
                return halt
    return None


def _look(lease: Lease) -> Halt | None:
    """See whether somebody put a commit on the branch, and what it means for the job."""
    try:
        view = lease.moved()
    except InfrastructureError:
        return None
    if view is None:
        return None
    if lease.is_fenced(view):
        return Halt.FENCED
    lease.build_on(view)
    return Halt.CANCELLED if view.cancel and view.cancel.request == lease.request else Halt.SUPERSEDED


def _note(outcome: Outcome, preset: str, i: int, argv: list[str], ended: Ended, sink: LogSink) -> None:
    path = f"{wire.LOGS}/{preset}-{i}.log"
    if ended.error:
        sink.write(f"{ended.error}\n".encode())
        sink.close()
    kept = sink.kept
    outcome.files[path] = kept
    outcome.last_chunk += sink.take_chunk()
    outcome.logs.append(
        LogDigest(
            path=path,
            stream_sha256=sink.sha256,
            stream_bytes=sink.total,
            kept_bytes=len(kept),
            truncated=sink.truncated,
        )
    )
    code = ended.exit_code
    outcome.commands.append(
        CommandResult(
            argv=argv,
            exit_code=code,
            signal=-code if code is not None and code < 0 else None,
            timed_out=ended.timed_out,
            seconds=ended.seconds,
            max_rss_bytes=ended.max_rss_bytes,
            log=path,
            survivors=ended.survivors,
            exceeded=ended.exceeded,
            peaks=dict(ended.peaks),
        )
    )


def _failed(outcome: Outcome, ended: Ended, step: int, timeout_s: int) -> bool:
    """Set the outcome where a step did not end well, and say whether that is so."""
    if ended.exceeded:
        message = f"step {step} was ended: {explain(ended.exceeded)}"
        outcome.end(State.FAILED, ended.exceeded, message)
    elif ended.timed_out:
        outcome.end(State.TIMED_OUT, "timeout", f"step {step} was ended after {timeout_s} s")
    elif ended.exit_code is None:
        message = ended.error or f"step {step} ended in an unknown way"
        outcome.end(State.FAILED, "supervisor_lost", message)
    elif ended.error:
        outcome.end(State.FAILED, "not_started", ended.error)
    elif ended.survivors:
        outcome.end(State.FAILED, "survivors", f"step {step} left processes that could not be ended")
    elif ended.exit_code < 0:
        outcome.end(State.FAILED, "killed", f"step {step} was ended by signal {-ended.exit_code}")
    elif ended.exit_code > 0:
        outcome.end(State.FAILED, "exit_code", f"step {step} ended with {ended.exit_code}")
    else:
        return False
    return True


def _gather(admitted: Admitted, place: Workspace, outcome: Outcome, secrets: list[str]) -> None:
    """Collect the reports, also of a run that failed, and judge those of one that did not."""
    collected = collect(admitted.preset, Path(place.tree), Redactor(secrets))
    outcome.files |= collected.files
    outcome.skipped += collected.skipped
    if outcome.state is not State.SUCCEEDED:
        return
    outcome.gate = judge(admitted.preset, collected.files)
    if outcome.gate and outcome.gate.verdict != "ACCEPTED":
        first = outcome.gate.violations[0]
        message = f"the reports do not hold: {first.code}: {first.message}"
        outcome.end(State.GATE_REJECTED, outcome.gate.verdict.lower(), message)
