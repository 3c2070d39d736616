"""Runs one accepted request from claim to answer."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from datetime import timedelta

from bridge import gate
from bridge.bus import wire
from bridge.bus.wire import CommandResult, LogDigest, State
from bridge.errors import InfrastructureError
from bridge.reports.digests import VARIABLE as RUN_ID
from bridge.reports.own import dump_kinds
from bridge.verify.public_keys import VARIABLE as PINNED
from runner import lfs
from runner.admit import trust
from runner.admit.admission import Admitted
from runner.admit.approvals import Approvals
from runner.bus.bus import Pushed
from runner.context import RunnerContext
from runner.host.facts import describe_versions
from runner.host.interpreter import is_used_by
from runner.job import leaves
from runner.job.collect import MAX_SKIPPED, collect
from runner.job.command import NO_CORE, Command, Ended, Ready, job_environment
from runner.job.logs import LogSink
from runner.job.redact import Redactor
from runner.job.usage import BOUNDS, job_limits
from runner.job.workspace import Workspace, check_paths, export_inputs, export_tree, workspace
from runner.refusal import Refusal, Unable, with_place
from runner.serve.answer import Outcome, deliver, describe, tell_end
from runner.serve.lease import Lease, with_reason
from runner.serve.watch_job import Keepalive, RunStopped, StopReason, wait_for_end

# The code of the error if this host could not begin a step of a job.
NOT_BEGUN = "not_begun"
_NOT_ACCEPTED = {"REJECTED": "the reports do not hold", "INCOMPLETE": "the reports are incomplete"}
# How many of the files that a job did not leave are named.
_NAMED = 3
_CANCELLED = {
    StopReason.CANCELLED: "the requester cancelled it",
    StopReason.SUPERSEDED: "the branch was pushed to again",
}


def execute(context: RunnerContext, admitted: Admitted) -> State | None:
    """Claim a request, run it, and answer. Returns the published state, or None if nothing was published.

    Nothing is published if another runner was faster, if this runner stops and hands the request back, or if the bus
    cannot be reached. In the last case the answer is kept and pushed later.
    """
    # The supervisor starts while the claim is pushed, and gets the job only once the claim is on the bus.
    with closing(Ready()) as ready:
        lease, request = Lease(context, admitted.branch), admitted.request
        context.ledger.begin(lease.request, branch=lease.branch)
        claimed = lease.advance(State.CLAIMED)
        if claimed is not Pushed.DONE:
            failed = f"the claim could not be pushed: {context.bus.push_fault}"
            reason = "another runner was faster" if claimed is Pushed.STALE else failed
            context.tell(f"{lease.branch}: {reason}")
            return None
        description = describe(request, admitted.params)
        context.tell(f"{lease.branch}: claimed; {description}")
        context.status_file.record_job_start(lease.branch, description)
        context.announcer.set_branch(lease.branch)
        try:
            return _ClaimedRun(context, lease, admitted, ready).run()
        finally:
            context.status_file.record_job_end()
            context.announcer.set_branch(None)


class _ClaimedRun:
    """The run of one claimed request, and its outcome so far."""

    def __init__(self, context: RunnerContext, lease: Lease, admitted: Admitted, ready: Ready) -> None:
        self._context = context
        self._lease = lease
        self._admitted = admitted
        self._ready = ready
        ok = wire.Reason(code="ok", message="every step ended with 0")
        self._outcome = Outcome(State.SUCCEEDED, ok, admitted.request, admitted)
        if is_used_by(admitted.preset):  # its packages may have been upgraded since the runner started
            self._outcome.versions = describe_versions(context.interpreter)

    def run(self) -> State | None:
        """Run the request and answer it. Returns the published state, if any."""
        context, lease, admitted, outcome = self._context, self._lease, self._admitted, self._outcome
        try:
            with workspace(context.policy.state, admitted.request.preset) as space:
                stop_reason = self._work(space)
        except (InfrastructureError, OSError):
            if not outcome.commands:  # no step of it ran
                with suppress(InfrastructureError, OSError):
                    lease.hand_back("handed back: its runner could not begin it", "handed_back")
            raise
        if stop_reason is StopReason.HANDED_ON:
            return None
        if stop_reason in (StopReason.FENCED, StopReason.STOPPING):
            self._let_go(stop_reason)
            return None
        # This runner's presence record is pushed together with the answer.
        context.announcer.set_branch(None)
        published = deliver(context, lease, outcome)
        if (admitted.trusted_by or "").startswith(trust.APPROVAL):
            # An approval is for one run. Withdraw it now: the ledger, which prevents replays, may be lost later.
            Approvals(context.policy.state).withdraw(lease.branch, lease.request)
        tell_end(context, lease, outcome, published)
        return published

    def _work(self, space: Workspace) -> StopReason | None:
        """Run the steps and collect the reports into the outcome. Returns why it was stopped from outside, or None."""
        outcome = self._outcome
        try:
            missing = self._prepare(space)
            if missing and self._lease.hand_on(self._admitted.request, lfs.message(missing)):
                return StopReason.HANDED_ON
            if missing:
                outcome.end(State.FAILED, "lfs_pointers", lfs.message(missing))
            else:
                self._run_steps(space)
            self._gather(space)
        except Refusal as refusal:
            if isinstance(refusal, Unable) and self._lease.hand_on(self._admitted.request, refusal.message):
                return StopReason.HANDED_ON
            placed = with_place(refusal.code, refusal.message, self._context.identity.id)
            outcome.end(State.REFUSED, refusal.code, placed)
        except RunStopped as stopped:
            if message := _CANCELLED.get(stopped.reason):
                cancel = self._lease.request_branch.cancel if stopped.reason is StopReason.CANCELLED else None
                outcome.end(State.CANCELLED, stopped.reason.value, with_reason(message, cancel))
            return stopped.reason
        return None

    def _let_go(self, stop_reason: StopReason) -> None:
        lease, context = self._lease, self._context
        if stop_reason is StopReason.FENCED:
            context.tell(f"{lease.branch}: another runner has taken it over; nothing is published here")
            context.ledger.mark_settled(branch=lease.branch, state=stop_reason.value)
        elif lease.hand_back("handed back: the runner was stopped", stop_reason.value):
            context.tell(f"{lease.branch}: handed back")
        else:
            later = "this runner resumes it once it is started again"
            context.tell(f"{lease.branch}: could not be handed back; {later}")

    def _prepare(self, space: Workspace) -> lfs.Unfilled:
        """Write the job's part of the request's tree into the workspace. Returns the files that remain LFS pointers."""
        context, lease, preset = self._context, self._lease, self._admitted.preset
        git, policy = context.bus.git, context.policy
        if preset.code == "installed":
            if preset.inputs:
                export_inputs(git, lease.request, preset.inputs, space.tree)
            return {}
        # Check the trust again: a key may have been taken off the list since the request was admitted.
        trust.why_trusted(git, self._admitted.branch, preset, policy)
        writing = Keepalive(context, lease, "the request's files are being written")
        pointers = export_tree(git, lease.request, space.tree, policy.limits, writing.check)
        check_paths(preset, self._admitted.params, space.tree)
        secret = next(iter(context.bus.secrets), None)
        fetching = Keepalive(context, lease, "files of Git LFS are being fetched")
        return lfs.fill(pointers, space.tree, policy.bus, secret, policy.lfs, fetching.check)

    def _run_steps(self, space: Workspace) -> None:
        """Run the steps in order until one fails."""
        context, admitted, outcome = self._context, self._admitted, self._outcome
        deadline = time.monotonic() + admitted.timeout_s
        env = self._environment(space)
        keepalive = Keepalive(context, self._lease)
        most, secrets = int(context.policy.limits.log_mb * (1 << 20)), context.secrets
        demanded = admitted.preset.leaves
        before = leaves.find_files(demanded, space.tree)
        for i, argv in enumerate(admitted.commands):
            sink = LogSink(most, secrets, self._lease.log)
            context.observer.begins(i, argv, env)
            command = self._command(argv, env, space, sink, deadline)
            stopped = None
            try:
                wait_for_end(context, command, keepalive, i)
            except RunStopped as error:
                stopped = error
            finally:
                ended = command.stop()
            if stopped and stopped.reason in (StopReason.FENCED, StopReason.STOPPING):
                raise stopped
            if not ended.began and (fault := self._host_fault(command.inside, ended)):
                raise InfrastructureError(f"nothing of the job ran: {fault}", code=NOT_BEGUN)
            _note(outcome, admitted.request.preset, i, argv, ended, sink)
            if stopped:
                raise stopped
            if failure := _failure(ended, i, admitted.timeout_s):
                state, code, message = failure
                outcome.end(state, code, with_place(code, message, context.identity.id))
                return
        if absent := leaves.missing(demanded, space.tree, before):
            shown = ", ".join(absent[:_NAMED]) + (
                f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
            )
            message = f"step {len(admitted.commands) - 1} ended with 0, but left no new file {shown}"
            outcome.end(State.FAILED, "no_file_left", message)

    def _environment(self, space: Workspace) -> dict[str, str]:
        policy, lease, preset = self._context.policy, self._lease, self._admitted.preset
        extra = {name: policy.env[name] for name in preset.pass_env if name in policy.env}
        pins = PINNED in preset.pass_env and PINNED not in extra
        extra |= {**preset.env, RUN_ID: gate.run_id(lease.branch, lease.request, lease.token)}
        if pins and self._context.signer:  # the job accepts signatures of this runner
            extra[PINNED] = "".join(key.text for key in self._context.public_keys)
        extra = self._context.sandbox.variables(extra, space, preset)
        return job_environment(space.home, interpreter=policy.interpreter, extra=extra)

    def _command(
        self, argv: list[str], env: Mapping[str, str], space: Workspace, sink: LogSink, deadline: float
    ) -> Command:
        preset, limits = self._admitted.preset, self._context.policy.limits
        return Command(
            argv,
            env=env,
            cwd=space.tree,
            timeout_s=max(0.1, deadline - time.monotonic()),
            grace_s=limits.grace_s,
            sink=sink,
            inside=self._context.sandbox.around(argv, space, preset),
            limits={
                "RLIMIT_CORE": NO_CORE,
                "RLIMIT_FSIZE": preset.limits.file_mb << 20,
                "RLIMIT_NOFILE": preset.limits.open_files,
            },
            bounds=job_limits(preset.limits, limits),
            watched=space.tree.parent,
            ready=self._ready,
        )

    def _host_fault(self, inside: Sequence[str], ended: Ended) -> str | None:
        """Return which fault of this host kept a step from beginning; None if the step's program cannot be run."""
        if ended.exit_code is None:
            return ended.error
        if inside and not os.access(inside[0], os.X_OK):
            return f"cannot run {inside[0]}"
        problem = self._context.fitness.problem_for(self._admitted.preset)
        return problem[1].message if problem else None

    def _gather(self, space: Workspace) -> None:
        """Collect the reports, even if the job failed. Run the gate on them if the job succeeded."""
        context, outcome, preset = self._context, self._outcome, self._admitted.preset
        keep_claim = Keepalive(context, self._lease, "the reports are being collected and judged").check
        collected = collect(preset, space.tree, Redactor(context.secrets), keep_claim)
        logs = tuple(outcome.files.values())
        outcome.files |= collected.files
        nothing = [f"{pattern}: no such file was left" for pattern in collected.unmatched[:MAX_SKIPPED]]
        outcome.skipped += [*collected.skipped, *nothing]
        if outcome.state is not State.SUCCEEDED or not preset.gated:
            return
        if preset.reports:
            outcome.files[wire.KINDS] = dump_kinds(preset.reports)
        judged = gate.judge(collected.files, preset.kinds, self._binding(logs), keep_claim)
        if left_out := [gate.violation("LEFT_OUT", each) for each in collected.skipped]:
            violations = [*judged.violations, *left_out][: gate.MAX_VIOLATIONS]
            judged = judged.model_copy(update={"violations": violations, "verdict": gate.verdict(violations)})
        outcome.gate = judged
        if not judged.accepted:
            # Name a violation that decided the verdict.
            first = next(each for each in judged.violations if gate.verdict([each]) == judged.verdict)
            message = f"{_NOT_ACCEPTED[judged.verdict]}: {first.code}: {first.message}"
            outcome.end(State.GATE_REJECTED, judged.verdict.lower(), message)

    def _binding(self, logs: tuple[bytes, ...]) -> gate.RunBinding:
        context, lease, outcome, admitted = self._context, self._lease, self._outcome, self._admitted
        return gate.RunBinding(
            gate.run_id(lease.branch, lease.request, lease.token),
            outcome.started,
            outcome.started + timedelta(seconds=time.monotonic() - outcome.began),
            context.host,
            outcome.versions or context.versions,
            logs,
            requester_measured=admitted.preset.code == "request",
            argvs=tuple(map(tuple, admitted.commands)),
            kinds=admitted.preset.reports,
        )


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


def _failure(ended: Ended, step: int, timeout_s: int) -> tuple[State, str, str] | None:  # noqa: PLR0911 - one return a row
    """Return the state, the reason's code and the message if a step failed; None if it did not."""
    code = ended.exit_code
    if ended.exceeded:
        return State.FAILED, ended.exceeded, f"step {step} was ended: {BOUNDS[ended.exceeded]}"
    if ended.timed_out:
        return State.TIMED_OUT, "timeout", f"step {step} was ended after {timeout_s} s"
    if code is None:
        return State.FAILED, "supervisor_lost", ended.error or f"step {step} ended in an unknown way"
    if ended.error:
        return State.FAILED, "not_started", ended.error
    if ended.survivors:
        return State.FAILED, "survivors", f"step {step} left processes that could not be ended"
    if code < 0:
        return State.FAILED, "killed", f"step {step} was ended by signal {-code}"
    return (State.FAILED, "exit_code", f"step {step} ended with {code}") if code else None
