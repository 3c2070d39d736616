"""Runs one accepted request from claim to answer."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

from bridge.bus import wire
from bridge.bus.wire import CommandResult, LogDigest, State
from bridge.errors import InfrastructureError, one_line
from bridge.gate import RunBinding, run_id
from bridge.manifest import Request
from bridge.presets.params import Value
from bridge.reports.digests import VARIABLE as RUN_ID
from bridge.verify.public_keys import VARIABLE as PINNED
from runner import lfs
from runner.admit import trust
from runner.admit.admission import Admitted
from runner.admit.approvals import Approvals
from runner.bus.bus import Pushed
from runner.context import RunnerContext
from runner.job.bounds import bounds, explain
from runner.job.collect import MAX_SKIPPED, collect
from runner.job.command import NO_CORE, Command, Ended, Ready, job_environment
from runner.job.logs import LogSink
from runner.job.redact import Redactor
from runner.job.workspace import Workspace, check_paths, export_inputs, export_tree, workspace
from runner.refusal import Refusal, Unable, with_place
from runner.serve.answer import Outcome, answer, deliver
from runner.serve.gate import judge_reports
from runner.serve.lease import Lease, hand_on, with_reason
from runner.serve.watch_job import Halt, Halted, Heartbeat, attend, attendant
from runner.state import signing_key

# The code of the error if this host could not begin a step of a job.
NOT_BEGUN = "not_begun"
_CANCELLED = {
    Halt.CANCELLED: "the requester cancelled it",
    Halt.SUPERSEDED: "the branch was pushed to again",
}


def execute(context: RunnerContext, admitted: Admitted) -> State | None:
    """Claim a request, run it, and answer. Returns the published state, or None if nothing was published.

    Nothing is published if another runner was faster, if this runner stops and hands the request back, or if the bus
    cannot be reached. In the last case the answer is kept and pushed later.
    """
    with closing(Ready()) as ready:
        return _execute(context, admitted, ready)


def _execute(context: RunnerContext, admitted: Admitted, ready: Ready) -> State | None:
    """Do it. While the claim is pushed, the supervisor starts, which gets the job only once the claim is on the bus."""
    lease = Lease(context, admitted.view)
    request = admitted.request
    context.ledger.begin(lease.request, branch=lease.branch, nonce=request.nonce, preset=request.preset)
    claimed = lease.advance(State.CLAIMED)
    if claimed is not Pushed.DONE:
        failed = f"the claim could not be pushed: {context.bus.push_fault}"
        reason = "another runner was faster" if claimed is Pushed.STALE else failed
        context.tell(f"{lease.branch}: {reason}")
        return None
    description = describe(request, admitted.params)
    context.tell(f"{lease.branch}: claimed; {description}")
    context.status_file.began(lease.branch, description)
    context.holds(lease.branch)
    try:
        return _run(context, lease, admitted, ready)
    finally:
        context.status_file.ended()
        context.holds(None)


def _run(context: RunnerContext, lease: Lease, admitted: Admitted, ready: Ready) -> State | None:
    """Run a claimed request and answer it."""
    request = admitted.request
    outcome = Outcome(
        State.SUCCEEDED, wire.Reason(code="ok", message="every step ended with 0"), request, admitted
    )
    try:
        with workspace(context.policy.state, request.preset) as space:
            halt = _work(context, lease, admitted, space, outcome, ready)
    except (InfrastructureError, OSError):
        if not outcome.commands:
            _hand_back(context, lease)
        raise
    if halt is Halt.HANDED_ON:
        return None
    if halt in (Halt.FENCED, Halt.STOPPING):
        _let_go(context, lease, halt)
        return None
    # This runner's presence record is pushed together with the answer.
    context.holds(None)
    published = deliver(context, lease, outcome)
    if (admitted.trusted_by or "").startswith(trust.APPROVAL):
        # An approval is for one run. Withdraw it now: the ledger, which prevents replays, may be lost later.
        Approvals(context.policy.state).withdraw(lease.branch, lease.request)
    _tell_end(context, lease, outcome, published)
    return published


def _work(
    context: RunnerContext,
    lease: Lease,
    admitted: Admitted,
    space: Workspace,
    outcome: Outcome,
    ready: Ready,
) -> Halt | None:
    """Run the steps and collect the reports into the outcome. Returns why it was stopped from outside, or None."""
    request = admitted.request
    try:
        missing = _prepare(context, lease, admitted, space)
        if missing and hand_on(context, lease, request, lfs.message(missing)):
            return Halt.HANDED_ON
        if missing:
            outcome.end(State.FAILED, "lfs_pointers", lfs.message(missing))
        halt = None if missing else _run_steps(context, lease, admitted, space, outcome, ready)
        if halt is None:
            _gather(context, lease, admitted, space, outcome)
    except Refusal as refusal:
        if isinstance(refusal, Unable) and hand_on(context, lease, request, refusal.message):
            return Halt.HANDED_ON
        message = with_place(refusal.code, refusal.message, context.identity.id)
        outcome.end(State.REFUSED, refusal.code, message)
        return None
    except Halted as ended:
        if ended.halt in _CANCELLED:
            outcome.end(State.CANCELLED, ended.halt.value, _why_cancelled(lease, ended.halt))
        return ended.halt
    else:
        return halt


def _why_cancelled(lease: Lease, halt: Halt) -> str:
    if halt is Halt.CANCELLED and lease.view.cancel:
        return with_reason(_CANCELLED[halt], lease.view.cancel)
    return _CANCELLED[halt]


def _hand_back(context: RunnerContext, lease: Lease) -> None:
    """Hand back a request that this host could not begin: no step of it ran."""
    with suppress(InfrastructureError, OSError):
        lease.advance(State.REQUESTED, detail="handed back: its runner could not begin it")
        context.ledger.settled(branch=lease.branch, state="handed_back")


def _prepare(context: RunnerContext, lease: Lease, admitted: Admitted, space: Workspace) -> lfs.Unfilled:
    """Write the job's part of the request's tree into the workspace. Returns the files that remained LFS pointers."""
    git, preset, policy = context.bus.git, admitted.preset, context.policy
    if preset.code == "installed":
        if preset.inputs:
            export_inputs(git, lease.request, preset.inputs, space.tree)
        return {}
    # Check the trust again: a key may have been taken off the list since the request was admitted.
    trust.why_trusted(git, admitted.view, preset, policy)
    keep_claim = attendant(context, lease, "the request's files are being written")
    pointers = export_tree(git, lease.request, space.tree, policy.limits, keep_claim)
    check_paths(preset, admitted.params, space.tree)
    secret = next(iter(context.bus.secrets), None)
    keep_claim = attendant(context, lease)
    return lfs.fill(pointers, space.tree, policy.bus, secret, policy.lfs, keep_claim)


def answer_without_running(
    context: RunnerContext, lease: Lease, request: Request | None, outcome: Outcome
) -> State | None:
    """Refuse or close a request without running it: one commit, which may lose against another runner's push."""
    outcome.request = request
    if request:
        record = context.ledger.entry(lease.branch)
        if record is None or (record.request == lease.request and record.state not in set(wire.EXIT_CODES)):
            context.ledger.begin(
                lease.request, branch=lease.branch, nonce=request.nonce, preset=request.preset
            )
    published = answer(context, lease, outcome)
    _tell_end(context, lease, outcome, published)
    return published


def describe(request: Request, params: Mapping[str, Value]) -> str:
    """Return one line with the preset, its parameters and the requester."""
    words = " ".join([request.preset, *(f"{name}={value}" for name, value in params.items())])
    return one_line(f"{words}, asked by {request.requested_by}")


def _tell_end(context: RunnerContext, lease: Lease, outcome: Outcome, published: State | None) -> None:
    """Tell the operator how a request ended. For a dropped answer, tell no outcome: the bus does not show it either."""
    seconds = time.monotonic() - outcome.began
    unpublished = published is None and any(
        pending.request == lease.request for pending in context.ledger.pending()
    )
    if published is None and not unpublished:
        context.tell(f"{lease.branch}: nothing is published ({outcome.reason.message})")
        return
    remark = (
        describe(outcome.request, outcome.admitted.params if outcome.admitted else {})
        if outcome.request
        else ""
    )
    sentence = f"{lease.branch}: {outcome.state} ({outcome.reason.message}) after {seconds:.1f} s"
    sentence += f"; {remark}" if remark else ""
    unsent = f"; the answer is kept until the bus takes it ({context.bus.push_fault})"
    context.tell(sentence + (unsent if unpublished else ""))
    reason, state = outcome.reason.message, str(outcome.state)
    context.status_file.answered(lease.branch, remark, state, reason, seconds, published=not unpublished)


def _let_go(context: RunnerContext, lease: Lease, halt: Halt) -> None:
    if halt is Halt.STOPPING:
        lease.advance(State.REQUESTED, detail="handed back: the runner was stopped")
        context.tell(f"{lease.branch}: handed back")
    else:
        context.tell(f"{lease.branch}: another runner has taken it over; nothing is published here")
    context.ledger.settled(branch=lease.branch, state=str(halt.value))


def _run_steps(
    context: RunnerContext,
    lease: Lease,
    admitted: Admitted,
    space: Workspace,
    outcome: Outcome,
    ready: Ready,
) -> Halt | None:
    """Run the steps in order until one fails. Returns why the job was stopped from outside, or None."""
    limits = context.policy.limits
    preset = admitted.preset
    deadline = time.monotonic() + admitted.timeout_s
    passed = {name: context.policy.env[name] for name in preset.pass_env if name in context.policy.env}
    environment = {RUN_ID: run_id(lease.branch, lease.request, lease.token)}
    if PINNED in preset.pass_env and PINNED not in passed and context.signer:
        environment[PINNED] = signing_key.public_key(
            context.policy.state
        ).text  # what this runner signed counts here
    env = job_environment(
        space.home, interpreter=context.policy.interpreter, extra={**passed, **preset.env, **environment}
    )
    heartbeat = Heartbeat(context, lease)
    for i, argv in enumerate(admitted.commands):
        sink = LogSink(int(limits.log_mb * (1 << 20)), context.bus.secrets, lease.log)
        command = Command(
            argv,
            env=env,
            cwd=space.tree,
            timeout_s=max(0.1, deadline - time.monotonic()),
            grace_s=limits.grace_s,
            sink=sink,
            inside=context.sandbox.around(argv, space, preset),
            limits={
                "RLIMIT_CORE": NO_CORE,
                "RLIMIT_FSIZE": preset.limits.file_mb << 20,
                "RLIMIT_NOFILE": preset.limits.open_files,
            },
            bounds=bounds(preset.limits, limits),
            watched=space.tree.parent,
            ready=ready,
        )
        try:
            halt = attend(context, lease, command, heartbeat, i)
        finally:
            ended = command.stop()
        if halt in (Halt.FENCED, Halt.STOPPING):
            return halt
        if not ended.began and (fault := _host_fault(context, admitted, command.inside, ended)):
            raise InfrastructureError(f"nothing of the job ran: {fault}", code=NOT_BEGUN)
        _note(outcome, preset.name, i, argv, ended, sink)
        if halt:
            outcome.end(State.CANCELLED, halt.value, _why_cancelled(lease, halt))
            return halt
        if _failed(outcome, ended, i, admitted.timeout_s):
            reason = outcome.reason
            outcome.end(
                outcome.state, reason.code, with_place(reason.code, reason.message, context.identity.id)
            )
            return None
    return None


def _host_fault(
    context: RunnerContext, admitted: Admitted, inside: Sequence[str], ended: Ended
) -> str | None:
    """Return which fault of this host kept a step from beginning; None if the step's own program cannot be run."""
    if ended.exit_code is None:
        return ended.error
    if inside and not os.access(inside[0], os.X_OK):
        return f"cannot run {inside[0]}"
    problem = context.fitness.problem_for(admitted.preset)
    return problem[1].message if problem else None


def _note(outcome: Outcome, preset: str, i: int, argv: list[str], ended: Ended, sink: LogSink) -> None:
    path = f"{wire.LOGS}/{preset}-{i}.log"
    if ended.error:
        sink.write(f"{ended.error}\n".encode())
        sink.close()
    sink.seal()
    output = sink.kept
    outcome.files[path] = output
    outcome.logs.append(
        LogDigest(
            path=path,
            stream_sha256=sink.sha256,
            stream_bytes=sink.total,
            kept_bytes=len(output),
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
    """Record the outcome if a step failed. Returns whether it did."""
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


def _gather(
    context: RunnerContext, lease: Lease, admitted: Admitted, space: Workspace, outcome: Outcome
) -> None:
    """Collect the reports, even if the job failed. Run the gate on them if the job succeeded.

    Raises:
        Halted: the request was cancelled or taken over, or the runner stops.
    """
    keep_claim = attendant(context, lease, "the reports are being collected and judged")
    collected = collect(admitted.preset, Path(space.tree), Redactor(context.bus.secrets), keep_claim)
    logs = tuple(outcome.files.values())
    outcome.files |= collected.files
    nothing = [f"{pattern}: no such file was left" for pattern in collected.unmatched[:MAX_SKIPPED]]
    outcome.skipped += [*collected.skipped, *nothing]
    if outcome.state is not State.SUCCEEDED:
        return
    outcome.gate = judge_reports(
        admitted.preset,
        collected.files,
        _binding(context, lease, admitted, outcome, logs),
        keep_claim,
        collected.skipped,
    )
    if outcome.gate and not outcome.gate.accepted:
        first = outcome.gate.violations[0]
        message = f"the reports do not hold: {first.code}: {first.message}"
        outcome.end(State.GATE_REJECTED, outcome.gate.verdict.lower(), message)


def _binding(
    context: RunnerContext, lease: Lease, admitted: Admitted, outcome: Outcome, logs: tuple[bytes, ...]
) -> RunBinding:
    """Return the description of this run that the reports must match."""
    return RunBinding(
        run_id(lease.branch, lease.request, lease.token),
        outcome.started,
        outcome.started + timedelta(seconds=time.monotonic() - outcome.began),
        context.host,
        context.versions,
        logs,
        requester_measured=admitted.preset.code == "request",
        argvs=tuple(map(tuple, admitted.commands)),
    )
