"""Several runners in one service, one process for each policy: each serves its own bus, and they take turns with jobs.

A runner that fails is started again while the others go on. All end together with this process, however it ends: each
watches a pipe from it.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bridge.common import environment
from bridge.errors import PolicyError
from bridge.system.signals import StopRequest
from bridge.system.spawn import PIPE, Popen, start
from runner.bus.backoff import Retry
from runner.ownership import own_files
from runner.policy import Policy, load_policy
from runner.state import heartbeat
from runner.state.turn import write_members

_TICK_S = 0.5
_FIRST_S, LONGEST_S = 5.0, 300.0
# A runner that served for this long starts without delay when it fails.
_GOOD_S = 600.0
_FOLDER = "turns"


@dataclass
class Member:
    """One of the runners: its policy, its process, and how often it failed."""

    file: Path
    policy: Policy
    process: "Popen[bytes] | None" = None
    retry: Retry = field(default_factory=Retry)
    began_at: float = 0.0
    # It has ended on request, as after a drain.
    is_over: bool = False

    @property
    def serves(self) -> bool:
        """Whether its process gives signs of life."""
        serving = heartbeat.serving_process(self.policy.state)
        return self.process is not None and serving is not None and serving.pid == self.process.pid


def load_members(files: Sequence[Path]) -> list[Member]:
    """Read the policies of several runners.

    Raises:
        PolicyError: one cannot be used, or two share a state folder.
    """
    members = [Member(file.absolute(), load_policy(file)) for file in files]
    states: dict[Path, Path] = {}
    for member in members:
        state = member.policy.state.resolve()
        if state in states:
            fix = "Give each policy a `state` of its own."
            raise PolicyError(
                f"{states[state]} and {member.file} have the same state folder {state}", fix=fix
            )
        states[state] = member.file
    return members


def serve_several(
    members: Sequence[Member], tell: Callable[[str], None], stop: StopRequest, *args: str
) -> None:
    """Serve all policies until they have ended, or until told to stop. Each runner's ``serve`` gets ``args``."""
    folder = members[0].policy.state / _FOLDER
    with own_files():
        for member in members:
            member.policy.state.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
        write_members(folder, {member.file: member.policy for member in members})
    try:
        _watch(members, folder, tell, stop, args)
    finally:
        _end(members)


def _watch(
    members: Sequence[Member],
    folder: Path,
    tell: Callable[[str], None],
    stop: StopRequest,
    args: Sequence[str],
) -> None:
    is_ready, looked_at = False, time.monotonic()
    while not stop.is_set() and not all(member.is_over for member in members):
        for member in members:
            _attend(member, folder, tell, args)
        if not is_ready and all(
            member.serves or member.retry.failures or member.is_over for member in members
        ):
            is_ready = True
            heartbeat.notify("READY=1")
        if time.monotonic() - looked_at >= heartbeat.EVERY_S:
            looked_at = time.monotonic()
            for member in members:
                heartbeat.kill_if_hanging(member.policy.state, tell)
        heartbeat.notify("WATCHDOG=1")
        stop.wait(_TICK_S)
    heartbeat.notify("STOPPING=1")


def _attend(member: Member, folder: Path, tell: Callable[[str], None], args: Sequence[str]) -> None:
    """Start a runner if it does not run and is due, and notice its end."""
    if member.process is not None and (code := member.process.poll()) is not None:
        member.process = None
        if code == 0:
            member.is_over = True
            tell(f"{member.file}: its runner has ended")
            return
        if time.monotonic() - member.began_at >= _GOOD_S:
            member.retry.succeeded()
        member.retry.failed(LONGEST_S, _FIRST_S)
        tell(f"{member.file}: its runner ended with {code}; it is started again, and the others go on")
    if member.process is None and not member.is_over and member.retry.is_due:
        member.began_at = time.monotonic()
        argv = [
            sys.executable,
            "-I",
            "-m",
            "runner",
            "--policy",
            str(member.file),
            "serve",
            "--turns",
            str(folder),
        ]
        # Its standard input is the pipe that it watches.
        member.process = start([*argv, *args], env=environment.for_member(), stdin=PIPE)


def _end(members: Sequence[Member]) -> None:
    """Ask all runners to stop, and wait until they have. If this is interrupted, they end at once."""
    running = [member.process for member in members if member.process is not None]
    for process in running:
        process.terminate()
    try:
        for process in running:
            process.wait()
    except KeyboardInterrupt:
        for process in running:
            process.kill()
        raise
