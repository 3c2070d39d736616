"""Runs the steps of a claimed request, and records how each ended."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bridge import gate
from bridge.bus import wire
from bridge.bus.wire import CommandResult, LogDigest, State
from bridge.errors import InfrastructureError
from bridge.reports.digests import VARIABLE as RUN_ID
from bridge.verify.public_keys import VARIABLE as PINNED
from runner.admit.admission import Admitted
from runner.job import leaves
from runner.job.command import NO_CORE, Command, Ended, Ready, Sink, job_environment
from runner.job.logs import LogSink
from runner.job.observer import Observer
from runner.job.usage import BOUNDS, job_limits
from runner.job.workspace import Workspace
from runner.parts import Keys, Machine
from runner.policy import Policy
from runner.refusal import with_place
from runner.serve.answer import Outcome
from runner.serve.lease import Lease
from runner.serve.watch_job import Keepalive, RunStopped, StopReason, wait_for_end
from runner.state.activity import StatusFile
from runner.state.turn import Turn

# The code of the error if this host could not start a step of a job.
NOT_BEGUN = "not_begun"
# The state, the reason's code and the message.
Failure = tuple[State, str, str]
# A message names at most this many of the files that a job should have left.
_NAMED = 3


@dataclass(frozen=True)
class JobHost:
    """What the steps of a job may use of this host."""

    policy: Policy
    machine: Machine
    keys: Keys
    # The runner's name.
    name: str
    # Returns the texts that no log may show.
    secrets: Callable[[], Sequence[str]]
    # The job's turn on a machine that several runners share.
    turn: Turn
    observer: Observer
    status_file: StatusFile
    # Looks for the operator's orders.
    obey: Callable[[], object]


class StepRunner:
    """Runs steps in one workspace, in one environment and within one time limit."""

    def __init__(
        self, host: JobHost, keepalive: Keepalive, lease: Lease, admitted: Admitted, outcome: Outcome,
        space: Workspace, ready: Ready,
    ) -> None:  # fmt: skip
        self._host = host
        self._lease = lease
        self._admitted = admitted
        self._outcome = outcome
        self._space = space
        self._ready = ready
        self._deadline = time.monotonic() + admitted.timeout_s
        self._keepalive = keepalive
        self._env: dict[str, str] = {}

    def set_up_home(self) -> None:
        """Create the job's environment, and the folders that it names in the job's home. Call this once per home."""
        policy, lease, preset = self._host.policy, self._lease, self._admitted.preset
        extra = {name: policy.env[name] for name in preset.pass_env if name in policy.env}
        pins = PINNED in preset.pass_env and PINNED not in extra
        extra |= {**preset.env, RUN_ID: gate.run_id(lease.branch, lease.request, lease.token)}
        if pins and self._host.keys.signer:  # the job accepts signatures of this runner
            extra[PINNED] = "".join(key.text for key in self._host.keys.public)
        extra = self._host.machine.sandbox.variables(extra, self._space, preset)
        self._env = job_environment(self._space.home, interpreter=policy.interpreter, extra=extra)

    def run(self) -> None:
        """Run the steps in order until one fails."""
        self.set_up_home()
        before = self.find_left_files()
        for i, argv in enumerate(self._admitted.commands):
            sink = self.open_log()
            ended, stopped = self.run_step(i, argv, sink)
            self.note(i, argv, ended, sink)
            if stopped:
                raise stopped
            if failure := self.failure(ended, i):
                self.end(failure)
                return
        if lack := self.lack_of_files(before):
            self.end(lack)

    def find_left_files(self) -> leaves.Matches:
        """Return the files that the preset's ``leaves`` match now."""
        return leaves.find_files(self._admitted.preset.leaves, self._space.tree)

    def lack_of_files(self, before: leaves.Matches) -> Failure | None:
        """Return why the last step failed although it ended with 0: it left no new file for some of ``leaves``."""
        absent = leaves.missing(self._admitted.preset.leaves, self._space.tree, before)
        if not absent:
            return None
        more = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
        shown = ", ".join(absent[:_NAMED]) + more
        message = f"step {len(self._admitted.commands) - 1} ended with 0, but left no new file {shown}"
        return State.FAILED, "no_file_left", message

    def open_log(self) -> LogSink:
        """Return the log of a step."""
        most = int(self._host.policy.limits.log_mb * (1 << 20))
        return LogSink(most, self._host.secrets(), self._lease.log)

    def run_step(
        self, i: int, argv: list[str], sink: Sink, quiet_s: float = 0.0
    ) -> tuple[Ended, RunStopped | None]:
        """Run one step once. Returns how the step ended, and why it was stopped from outside, if it was.

        In its first ``quiet_s`` seconds, the runner does nothing else.

        Raises:
            RunStopped: this runner has to let go of the request.
            InfrastructureError: this host could not begin the step.
        """
        host, preset, limits = self._host, self._admitted.preset, self._host.policy.limits
        host.observer.begins(i, argv, self._env)
        command = Command(
            argv,
            env=self._env,
            cwd=self._space.tree,
            timeout_s=max(0.1, self._deadline - time.monotonic()),
            grace_s=limits.grace_s,
            sink=sink,
            inside=host.machine.sandbox.around(argv, self._space, preset),
            limits={
                "RLIMIT_CORE": NO_CORE,
                "RLIMIT_FSIZE": preset.limits.file_mb << 20,
                "RLIMIT_NOFILE": preset.limits.open_files,
            },
            bounds=job_limits(preset.limits, limits),
            watched=self._space.tree.parent,
            ready=self._ready,
            kept=host.turn.kept,
        )
        stopped = None
        try:
            wait_for_end(command, self._keepalive, host.status_file, host.obey, i, quiet_s)
        except RunStopped as error:
            stopped = error
        finally:
            ended = command.stop()
        if stopped and stopped.reason in (StopReason.FENCED, StopReason.STOPPING):
            raise stopped
        if not ended.began and (fault := self._host_fault(command.inside, ended)):
            raise InfrastructureError(f"nothing of the job ran: {fault}", code=NOT_BEGUN)
        return ended, stopped

    def note(self, i: int, argv: list[str], ended: Ended, sink: LogSink) -> None:
        """Record how a step ended, and its log."""
        path = f"{wire.LOGS}/{self._admitted.request.preset}-{i}.log"
        if ended.error:
            sink.write(f"{ended.error}\n".encode())
            sink.close()
        sink.seal()
        output = sink.kept
        self._outcome.files[path] = output
        self._outcome.logs.append(
            LogDigest(
                path=path,
                stream_sha256=sink.sha256,
                stream_bytes=sink.total,
                kept_bytes=len(output),
                truncated=sink.truncated,
            )
        )
        code = ended.exit_code
        self._outcome.commands.append(
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

    def end(self, failure: Failure) -> None:
        """End the request with a failure."""
        state, code, message = failure
        self._outcome.end(state, code, with_place(code, message, self._host.name))

    def failure(self, ended: Ended, step: int) -> Failure | None:  # noqa: PLR0911 - one return a row
        """Return the state, the reason's code and the message if a step failed; None if it did not."""
        code = ended.exit_code
        if ended.exceeded:
            return State.FAILED, ended.exceeded, f"step {step} was ended: {BOUNDS[ended.exceeded]}"
        if ended.timed_out:
            return State.TIMED_OUT, "timeout", f"step {step} was ended after {self._admitted.timeout_s} s"
        if code is None:
            return State.FAILED, "supervisor_lost", ended.error or f"step {step} ended in an unknown way"
        if ended.error:
            return State.FAILED, "not_started", ended.error
        if ended.survivors:
            return State.FAILED, "survivors", f"step {step} left processes that could not be ended"
        if code < 0:
            return State.FAILED, "killed", f"step {step} was ended by signal {-code}"
        return (State.FAILED, "exit_code", f"step {step} ended with {code}") if code else None

    def _host_fault(self, inside: Sequence[str], ended: Ended) -> str | None:
        """Return which fault of this host kept a step from beginning; None if the step's program cannot be run."""
        if ended.exit_code is None:
            return ended.error
        if inside and not os.access(inside[0], os.X_OK):
            return f"cannot run {inside[0]}"
        problem = self._host.machine.fitness.problem_for(self._admitted.preset)
        return problem[1].message if problem else None
