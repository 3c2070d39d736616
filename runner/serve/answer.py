"""Builds an answer (the result, and a summary for older clients) and pushes it, again after failures and crashes."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.bus import history, objects, wire
from bridge.bus.history import RequestBranch
from bridge.bus.wire import EXIT_CODES, CommandResult, FileDigest, Gate, LogDigest, Reason, Result, State
from bridge.errors import InfrastructureError, one_line
from bridge.manifest import Request, format_time
from bridge.presets.params import Value
from bridge.system.git import Git
from bridge.system.signals import StopRequest
from bridge.verify import attestation
from bridge.verify.state_signature import signed_message
from runner.admit.admission import Admitted
from runner.bus.bus import Bus, Pushed
from runner.faults import why_not_writable
from runner.parts import Author, Machine, Operator
from runner.serve.lease import Lease
from runner.state.identity import WHO
from runner.state.ledger import FENCED, Pending

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

_FIRST_S = 0.5
_LONGEST_S = 30.0
# How often delivery is tried if the cause of the failure is not the disk.
_ATTEMPTS = 3


@dataclass
class Outcome:
    """How a request ended, gathered while it runs."""

    state: State
    reason: Reason
    request: Request | None = None
    admitted: Admitted | None = None
    commands: list[CommandResult] = field(default_factory=list)
    logs: list[LogDigest] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    gate: Gate | None = None
    # Installed versions when the job began.
    versions: dict[str, str | None] | None = None
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    began: float = field(default_factory=time.monotonic)

    @property
    def shown_state(self) -> State:
        """The state as people read it."""
        return wire.shown_state(self.state, self.gate)

    def end(self, state: State, code: str, message: str) -> None:
        """Record how the request ended."""
        self.state = state
        self.reason = Reason(code=code, message=message)


class Answers:
    """Answers requests: commits answers, pushes them, and tells the operator."""

    def __init__(
        self, author: Author, machine: Machine, operator: Operator, stop: StopRequest, state_folder: Path
    ) -> None:
        self._author = author
        self._machine = machine
        self._operator = operator
        self._stop = stop
        self._state_folder = state_folder

    def deliver(self, lease: Lease, outcome: Outcome) -> State | None:
        """Answer a request; retry while the disk is full. Other errors are raised, and any if the runner stops."""
        pause, attempts, warned = _FIRST_S, 0, False
        while True:
            try:
                return self.answer(lease, outcome)
            except (OSError, InfrastructureError):
                reason = why_not_writable(self._state_folder)
                attempts += reason is None
                if attempts >= _ATTEMPTS or self._stop.is_set():
                    raise
                if reason and not warned:
                    warned = True
                    self._operator.tell(
                        f"{lease.branch}: the job has ended and its answer cannot be written to {self._state_folder}: "
                        f"{reason}. The answer is kept in memory until there is room: free some on this disk"
                    )
            self._stop.wait(pause)
            pause = min(pause * 2, _LONGEST_S)

    def answer_without_running(self, lease: Lease, request: Request | None, outcome: Outcome) -> State | None:
        """Refuse or close a request without running it, by one commit. Another runner's push may come first."""
        outcome.request = request
        record = self._author.ledger.entry(lease.branch)
        is_open = record is None or (
            record.request == lease.request and record.state not in set(wire.EXIT_CODES)
        )
        if request and is_open:
            self._author.ledger.begin(lease.request, branch=lease.branch)
        published = self.answer(lease, outcome)
        self.tell_end(lease, outcome, published)
        return published

    def publish(self, pending: Pending, *, is_new: bool = True) -> State | None:
        """Push a recorded answer, on top of the requester's later commits; drop it if another runner has the request.

        An answer that is not new was published before, and does not count again for retention.
        """
        bus, ledger = self._author.bus, self._author.ledger
        ours = wire.parse_state(
            objects.read_blob(bus.git, pending.answer, wire.STATE, max_bytes=wire.MAX_STATE)
        )
        if ours is None:
            self._drop(pending, "the answer that was kept cannot be read again")
            return None
        commit, expect = pending.answer, pending.expect
        for _ in range(10):
            pushed = bus.push(pending.branch, commit, expect=expect)
            if pushed is Pushed.FAILED and bus.commits.has_refused_objects(pending.branch):
                self._drop(pending, "git refuses what was pushed to it")
            elif pushed is Pushed.FAILED and bus.is_damaged(pending.branch, commit):
                self._drop(pending, "the answer that was kept is damaged")
            if pushed is Pushed.STALE and bus.sightings.is_overtaken(pending.branch):
                # The answer waits in the ledger until the bus shows what else is on the branch.
                bus.push_fault = "the branch has moved, and the bus does not show yet where to"
                pushed = Pushed.FAILED
            if pushed is Pushed.FAILED:
                return None
            if pushed is Pushed.DONE:
                self._note_given(pending, is_new=is_new)
                ledger.mark_settled(branch=pending.branch, published=commit)
                bus.unprotect(pending.answer)
                return ours.state
            tip = bus.tip(pending.branch)
            branch = self._author.keys.reader.read_branch(bus.git, pending.branch, tip) if tip else None
            if (
                branch
                and branch.state
                and branch.current_state.is_final
                and ledger.has_written(branch.state.salt)
            ):
                # An earlier push succeeded, but the disk was too full to record that.
                self._note_given(pending, is_new=is_new)
                ledger.mark_settled(
                    branch=pending.branch, state=str(branch.current_state), published=branch.tip
                )
                bus.unprotect(pending.answer)
                return branch.current_state
            if branch is None or not is_still_ours(self._author, branch, expect, ours.token):
                self._drop(pending, "the branch is gone or another runner has it")
                return None
            expect = branch.tip
            commit = _upon(bus, self._author.keys.signer, pending, expect)
            bus.protect(commit)
            ledger.record_answer(branch=pending.branch, state=ours.state, answer=commit, expect=expect)
        return None

    def tell_end(self, lease: Lease, outcome: Outcome, published: State | None) -> None:
        """Tell the operator how a request ended; but not for a dropped answer, whose outcome the bus does not show."""
        seconds = time.monotonic() - outcome.began
        pending = (
            {answer.request for answer in self._author.ledger.unsent_answers()}
            if published is None
            else set[str]()
        )
        if published is None and lease.request not in pending:
            self._operator.tell(f"{lease.branch}: nothing is published ({outcome.reason.message})")
            return
        params = outcome.admitted.params if outcome.admitted else {}
        remark = describe(outcome.request, params) if outcome.request else ""
        sentence = f"{lease.branch}: {outcome.shown_state} ({outcome.reason.message}) after {seconds:.1f} s"
        sentence += f"; {remark}" if remark else ""
        unsent = f"; the answer is kept until the bus takes it ({self._author.bus.push_fault})"
        self._operator.tell(sentence if published else sentence + unsent)
        reason, state, is_signed = (
            outcome.reason.message,
            str(outcome.shown_state),
            self._author.keys.signer is not None,
        )
        self._operator.status_file.record_answer(
            lease.branch, remark, state, reason, seconds, published=bool(published), signed=is_signed
        )

    def answer(self, lease: Lease, outcome: Outcome) -> State | None:
        """Commit the answer, record it in the ledger, and push it.

        Returns the published state. Returns None if nothing was published: another runner answered first, or the bus
        cannot be reached and the answer stays in the ledger until a later push.
        """
        parent = lease.tip
        piece = lease.log.next_piece()
        writer = lease.writer(durable=True)
        if piece.data:
            # Add one more state, pushed together with the answer, so that followers see the end of the log.
            parent = lease.running_commit(piece, parent, writer=writer)
        files = {
            **outcome.files,
            wire.SUMMARY: _summary(outcome, is_signed=self._author.keys.signer is not None),
        }
        result = self._result(lease, outcome, files)
        whole = {**files, wire.RESULT: result.to_bytes()}
        if self._author.keys.signer:
            signed = _what_is_signed(self._author.bus.git, lease, whole)
            statement = attestation.make_statement(result, attestation.digests(signed), upon=lease.tip)
            whole[wire.EVIDENCE] = attestation.sign(statement, self._author.keys.signer)
        detail, title = outcome.reason.message, f"mac-bridge results: {lease.branch}"
        commit = lease.commit(outcome.state, whole, parent, detail=detail, title=title, writer=writer)
        writer.store()
        self._author.bus.protect(commit)
        noted = self._author.ledger.record_answer(
            branch=lease.branch, state=outcome.state, answer=commit, expect=lease.tip
        )
        state = self.publish(Pending(lease.request, lease.branch, commit, lease.tip))
        if state is None and not noted:
            # A refusal that is not in the ledger is repeated at the request's next turn.
            self._author.bus.unprotect(commit)
        return state

    def _result(self, lease: Lease, outcome: Outcome, files: Mapping[str, bytes]) -> Result:
        admitted, request = outcome.admitted, outcome.request
        # Use the monotonic clock: the wall clock may be set while a job runs.
        seconds = time.monotonic() - outcome.began
        return Result(
            schema_version=2,
            state=outcome.state,
            reason=outcome.reason,
            branch=lease.branch,
            nonce=request.nonce if request else None,
            request=lease.request,
            workload=admitted.workload if admitted else (request.workload if request else None),
            requested_by=request.requested_by if request else None,
            trusted_by=admitted.trusted_by if admitted else None,
            preset=request.preset if request else None,
            preset_digest=admitted.preset.digest if admitted else None,
            code=admitted.preset.code if admitted else None,
            params=dict(admitted.params) if admitted else {},
            commands=outcome.commands,
            exit_code=int(EXIT_CODES[outcome.state]),
            token=lease.token,
            runner=self._author.identity,
            host=self._machine.facts,
            versions=outcome.versions or self._machine.versions,
            started_at=format_time(outcome.started),
            finished_at=format_time(outcome.started + timedelta(seconds=seconds)),
            seconds=round(seconds, 3),
            logs=outcome.logs,
            files=[
                FileDigest(path=path, sha256=hashlib.sha256(data).hexdigest(), size=len(data))
                for path, data in sorted(files.items())
            ],
            skipped=outcome.skipped,
            gate=outcome.gate,
            sandbox=self._machine.sandbox.kind,
        )

    def _note_given(self, pending: Pending, *, is_new: bool) -> None:
        """Record for retention that this runner gave an answer, and whether anything of a job ran for it."""
        if is_new:
            blob = objects.read_blob(
                self._author.bus.git, pending.answer, wire.RESULT, max_bytes=wire.MAX_RESULT
            )
            ran = bool(wire.parse_result(blob).commands)
            self._author.ledger.note_given(pending.branch, ran=ran, at=time.time())

    def _drop(self, pending: Pending, reason: str) -> None:
        """Drop an answer that can no longer be published."""
        self._operator.tell(f"{pending.branch}: {reason}; this answer is dropped")
        self._author.ledger.mark_settled(branch=pending.branch, state=FENCED)
        self._author.bus.unprotect(pending.answer)


def is_still_ours(author: Author, branch: RequestBranch, expect: str, token: int) -> bool:
    """Return whether the last state is still the one that this runner wrote under its claim ``token``."""
    git = author.bus.git
    if not history.is_ancestor(git, expect, branch.tip):
        return False
    if branch.state and branch.token == token and author.ledger.has_written(branch.state.salt):
        # A heartbeat arrived although the reply to its push was lost.
        return True
    if author.keys.reader.has_keys:
        return branch.state_commit is None or history.is_ancestor(git, branch.state_commit, expect)
    names = [f"{commit}:{wire.STATE}" for commit in (expect, branch.tip)]
    before, now = objects.read_many(git, names, max_bytes=wire.MAX_STATE)
    return before == now


def _upon(bus: Bus, signer: "Signer | None", pending: Pending, parent: str) -> str:
    """Rebuild the answer's commit on another parent, and sign it again: a signature covers one place in the history."""
    git = bus.git
    tree = git.text("rev-parse", "--verify", f"{pending.answer}^{{tree}}")
    message = git.text("log", "-1", "--format=%B", pending.answer) + "\n"
    message = signed_message(message, signer, branch=pending.branch, parent=parent, tree=tree)
    return objects.commit(bus.durable_git, tree, [parent], message, WHO)


def _what_is_signed(git: Git, lease: Lease, answer: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return the answer's files, and the manifest of the request."""
    if lease.manifest is None or not lease.manifest.is_file:
        return answer
    (manifest,) = objects.read_many(git, [lease.manifest.oid], max_bytes=wire.MAX_FILE)
    return answer if manifest is None else {**answer, wire.REQUEST: manifest}


def _summary(outcome: Outcome, *, is_signed: bool) -> bytes:
    """Return ``summary.json`` in the form that older clients read."""
    request = outcome.request
    summary = {
        "preset": request.preset if request else None,
        "params": {k: str(v) for k, v in outcome.admitted.params.items()} if outcome.admitted else {},
        "nonce": request.nonce if request else None,
        "commands": [
            {"argv": c.argv, "exit_code": c.exit_code, "seconds": c.seconds, "log": c.log}
            for c in outcome.commands
        ],
        "exit_code": _older_exit_code(outcome),
        "signed": is_signed,
    }
    if outcome.gate:
        summary["evidence_gate_exit_code"] = int(not outcome.gate.accepted)
    return (json.dumps(summary, indent=2) + "\n").encode()


def _older_exit_code(outcome: Outcome) -> int:
    """Return the exit code that the older executor would have had: the code of the command that failed."""
    last = outcome.commands[-1].exit_code if outcome.commands else None
    return last if outcome.state is State.FAILED and last else int(EXIT_CODES[outcome.state])


def describe(request: Request, params: Mapping[str, Value]) -> str:
    """Return one line with the preset, its parameters and the requester."""
    words = " ".join([request.preset, *(f"{name}={value}" for name, value in params.items())])
    return one_line(f"{words}, asked by {request.requested_by}")
