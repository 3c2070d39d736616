"""Runs one accepted request from claim to answer."""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from bridge import gate
from bridge.bus import wire
from bridge.bus.wire import State
from bridge.errors import InfrastructureError
from bridge.reports.claims.compare import ARMS, CANDIDATE
from bridge.reports.kinds import COMPARE
from bridge.reports.own import dump_kinds
from runner import lfs
from runner.admit import trust
from runner.admit.admission import Admitted
from runner.admit.approvals import Approvals
from runner.bus.backoff import Spread
from runner.bus.bus import Pushed
from runner.host.facts import describe_versions
from runner.host.interpreter import is_used_by
from runner.job.arms import Arms, open_arms
from runner.job.collect import MAX_SKIPPED, collect
from runner.job.command import Ready
from runner.job.redact import Redactor
from runner.job.workspace import Workspace, check_paths, export_inputs, export_tree, remove, workspace
from runner.parts import Author
from runner.refusal import Refusal, Unable, with_place
from runner.serve.answer import Answers, Outcome, describe
from runner.serve.lease import Lease, Leaving, with_reason
from runner.serve.steps.comparison import Comparison
from runner.serve.steps.step_runner import JobHost, StepRunner
from runner.serve.watch_job import Keepalive, RunStopped, StopReason
from runner.state.announcer import Announcer

_NOT_ACCEPTED = {"REJECTED": "the reports do not hold", "INCOMPLETE": "the reports are incomplete"}
_CANCELLED = {
    StopReason.CANCELLED: "the requester cancelled it",
    StopReason.SUPERSEDED: "the branch was pushed to again",
}


@dataclass(frozen=True)
class Executor:
    """Runs accepted requests, with what that may take of this runner."""

    author: Author
    host: JobHost
    tell: Callable[[str], None]
    announcer: Announcer
    spread: Spread
    answers: Answers
    leaving: Leaving
    # Returns what keeps a claim alive. The text is shown between steps.
    keepalive: Callable[[Lease, str], Keepalive]
    # Branches whose answers are to be noted on the bus.
    to_note: deque[str]

    def execute(self, admitted: Admitted) -> State | None:
        """Claim a request, run it, and answer. Returns the published state, or None if nothing was published.

        Nothing is published if another runner was faster, if this runner stops and hands the request back, or if the
        bus cannot be reached. In the last case the answer is kept and pushed later.
        """
        name, bus, status_file = admitted.branch.name, self.author.bus, self.host.status_file
        if self.spread.has_rivals and bus.has_moved(name, admitted.branch.tip):
            self._lose(name)
            return None
        # The supervisor starts while the claim is pushed, and gets the job only once the claim is on the bus. A claim
        # that may be lost starts none: it would delay the push, and be for nothing.
        with nullcontext() if self.spread.has_rivals else closing(Ready(self.host.turn.kept)) as early:
            lease, request = Lease(self.author, admitted.branch), admitted.request
            self.author.ledger.begin(lease.request, branch=lease.branch)
            claimed = lease.advance(State.CLAIMED)
            if claimed is Pushed.STALE:
                self._lose(name)
                return None
            if claimed is not Pushed.DONE:
                self.tell(f"{name}: the claim could not be pushed: {bus.push_fault}")
                return None
            self.spread.win()
            description = describe(request, admitted.params)
            self.tell(f"{lease.branch}: claimed; {description}")
            status_file.record_job_start(lease.branch, description)
            self.announcer.set_branch(lease.branch)
            try:
                return _ClaimedRun(self, lease, admitted).run(early)
            finally:
                status_file.record_job_end()
                self.announcer.set_branch(None)

    def _lose(self, name: str) -> None:
        self.spread.lose()
        self.tell(f"{name}: another runner was faster")


class _ClaimedRun:
    """The run of one claimed request, and its outcome so far."""

    def __init__(self, executor: Executor, lease: Lease, admitted: Admitted) -> None:
        self._executor, self._host, self._author = executor, executor.host, executor.author
        self._lease = lease
        self._admitted = admitted
        ok = wire.Reason(code="ok", message="every step ended with 0")
        self._outcome = Outcome(State.SUCCEEDED, ok, admitted.request, admitted)
        if is_used_by(admitted.preset):  # its packages may have been upgraded since the runner started
            self._outcome.versions = describe_versions(self._host.machine.interpreter)

    def run(self, early: Ready | None) -> State | None:
        """Run the request and answer it. Returns the published state, if any. ``early`` is its supervisor."""
        executor, policy = self._executor, self._host.policy
        lease, admitted, outcome = self._lease, self._admitted, self._outcome
        try:
            with (
                closing(early or Ready(self._host.turn.kept)) as ready,
                workspace(policy.state, admitted.request.preset) as space,
                nullcontext()
                if admitted.against is None
                else open_arms(policy.state, admitted.request.preset, space, ARMS) as arms,
            ):
                stop_reason = self._work(space, arms, ready)
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
        executor.announcer.set_branch(None)
        published = executor.answers.deliver(lease, outcome)
        if (admitted.trusted_by or "").startswith(trust.APPROVAL):
            # An approval is for one run. Withdraw it now: the ledger, which prevents replays, may be lost later.
            Approvals(policy.state).withdraw(lease.branch, lease.request)
        executor.answers.tell_end(lease, outcome, published)
        if published and policy.bus.notes:
            executor.to_note.append(lease.branch)
        return published

    def _work(self, space: Workspace, arms: Arms | None, ready: Ready) -> StopReason | None:
        """Run the steps and collect the reports into the outcome. Returns why the job was stopped, if it was."""
        executor, outcome = self._executor, self._outcome
        lease, admitted = self._lease, self._admitted
        try:
            missing = self._prepare(space) if arms is None else self._prepare_arms(space, arms)
            if missing and executor.leaving.hand_on(lease, admitted.request, lfs.message(missing)):
                return StopReason.HANDED_ON
            if missing:
                outcome.end(State.FAILED, "lfs_pointers", lfs.message(missing))
            else:
                steps = StepRunner(
                    self._host,
                    executor.keepalive(lease, ""),
                    lease,
                    admitted,
                    outcome,
                    space,
                    ready,
                )
                if arms and admitted.preset.compare:
                    Comparison(
                        self._author.bus.git,
                        self._host.machine,
                        lease,
                        admitted,
                        outcome,
                        steps,
                        arms,
                        admitted.preset.compare,
                    ).run()
                else:
                    steps.run()
            if arms:
                self._judge_comparison()
            else:
                self._gather(space)
        except Refusal as refusal:
            if isinstance(refusal, Unable) and executor.leaving.hand_on(
                lease, admitted.request, refusal.message
            ):
                return StopReason.HANDED_ON
            placed = with_place(refusal.code, refusal.message, self._host.name)
            outcome.end(State.REFUSED, refusal.code, placed)
        except RunStopped as stopped:
            if message := _CANCELLED.get(stopped.reason):
                outcome.end(State.CANCELLED, stopped.reason.value, with_reason(message, stopped.why))
            return stopped.reason
        return None

    def _let_go(self, stop_reason: StopReason) -> None:
        lease, tell = self._lease, self._executor.tell
        if stop_reason is StopReason.FENCED:
            tell(f"{lease.branch}: another runner has taken it over; nothing is published here")
            self._author.ledger.mark_settled(branch=lease.branch, state=stop_reason.value)
        elif lease.hand_back("handed back: the runner was stopped", stop_reason.value):
            tell(f"{lease.branch}: handed back")
        else:
            later = "this runner resumes it once it is started again"
            tell(f"{lease.branch}: could not be handed back; {later}")

    def _prepare(self, space: Workspace) -> lfs.Unfilled:
        """Write the job's part of the request's tree into the workspace. Returns the files that remain LFS pointers."""
        lease, preset = self._lease, self._admitted.preset
        git, policy = self._author.bus.git, self._host.policy
        if preset.code == "installed":
            if preset.inputs:
                export_inputs(git, lease.request, preset.inputs, space.tree)
            return {}
        # Check the trust again: a key may have been taken off the list since the request was admitted.
        trust.why_trusted(git, self._admitted.branch, preset, policy)
        return self._write_tree(space, lease.request)

    def _prepare_arms(self, space: Workspace, arms: Arms) -> lfs.Unfilled:
        """Write the tree of each arm into its folder. Returns the files that remain LFS pointers."""
        admitted, missing = self._admitted, dict[str, Any]()
        trust.why_trusted(self._author.bus.git, admitted.branch, admitted.preset, self._host.policy)
        for arm in ARMS:
            arms.activate(arm)
            try:
                missing |= self._write_tree(
                    space, str(admitted.workload if arm == CANDIDATE else admitted.against)
                )
            except Refusal as refusal:
                if arm != CANDIDATE:
                    refusal.message = f"in the baseline, {refusal.message}"
                raise
            # Remove the files of an earlier answer from both arms, so that they differ only in the
            # requester's files.
            remove(space.tree / wire.FOLDER)
        return missing

    def _write_tree(self, space: Workspace, commit: str) -> lfs.Unfilled:
        """Write a commit's tree into the workspace."""
        lease, preset, keepalive = self._lease, self._admitted.preset, self._executor.keepalive
        bus, policy = self._author.bus, self._host.policy
        writing = keepalive(lease, "the request's files are being written")
        pointers = export_tree(bus.git, commit, space.tree, policy.limits, writing.check)
        check_paths(preset, self._admitted.params, space.tree)
        secret = next(iter(bus.secrets), None)
        fetching = keepalive(lease, "files of Git LFS are being fetched")
        return lfs.fill(pointers, space.tree, policy.bus, secret, policy.lfs, fetching.check)

    def _gather(self, space: Workspace) -> None:
        """Collect the reports, even if the job failed. Run the gate on them if the job succeeded."""
        outcome, preset = self._outcome, self._admitted.preset
        keep_claim = self._executor.keepalive(self._lease, "the reports are being collected and judged").check
        collected = collect(preset, space.tree, Redactor(self._host.secrets()), keep_claim)
        logs = tuple(outcome.files.values())
        outcome.files |= collected.files
        nothing = [f"{pattern}: no such file was left" for pattern in collected.unmatched[:MAX_SKIPPED]]
        outcome.skipped += [*collected.skipped, *nothing]
        if outcome.state is not State.SUCCEEDED or not preset.gated:
            return
        if preset.reports:
            outcome.files[wire.KINDS] = dump_kinds(preset.reports)
        judged = gate.judge(collected.files, preset.kinds, self._binding(logs), keep_claim)
        self._note_verdict(judged, collected.skipped)

    def _judge_comparison(self) -> None:
        """Judge the comparison that this runner wrote."""
        outcome = self._outcome
        if outcome.state is State.SUCCEEDED:
            report = outcome.files[wire.COMPARISON_REPORT]
            run = replace(self._binding(()), comparison=hashlib.sha256(report).hexdigest())
            keep_claim = self._executor.keepalive(self._lease, "the comparison is being judged").check
            self._note_verdict(gate.judge({wire.COMPARISON_REPORT: report}, [COMPARE], run, keep_claim))

    def _note_verdict(self, judged: wire.Gate, skipped: Sequence[str] = ()) -> None:
        outcome = self._outcome
        if left_out := [gate.violation("LEFT_OUT", each) for each in skipped]:
            violations = [*judged.violations, *left_out][: gate.MAX_VIOLATIONS]
            judged = judged.model_copy(update={"violations": violations, "verdict": gate.verdict(violations)})
        outcome.gate = judged
        if not judged.accepted:
            # Name a violation that decided the verdict.
            first = next(each for each in judged.violations if gate.verdict([each]) == judged.verdict)
            message = f"{_NOT_ACCEPTED[judged.verdict]}: {first.code}: {first.message}"
            outcome.end(State.GATE_REJECTED, judged.verdict.lower(), message)

    def _binding(self, logs: tuple[bytes, ...]) -> gate.RunBinding:
        machine = self._host.machine
        lease, outcome, admitted = self._lease, self._outcome, self._admitted
        return gate.RunBinding(
            gate.run_id(lease.branch, lease.request, lease.token),
            outcome.started,
            outcome.started + timedelta(seconds=time.monotonic() - outcome.began),
            machine.facts,
            outcome.versions or machine.versions,
            logs,
            requester_measured=admitted.preset.code == "request",
            argvs=tuple(map(tuple, admitted.commands)),
            kinds=admitted.preset.reports,
            workload=admitted.workload,
        )
