"""Several runners in one service, one process for each policy: each serves its own bus, and they take turns with jobs.

A runner that fails is started again while the others go on. All end together with this process, however it ends: each
watches a pipe from it.
"""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
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
from runner.state.turn import FOLDER, write_members

_TICK_S = 0.5
_FIRST_S, LONGEST_S = 5.0, 300.0
# A runner that served for this long starts without delay when it fails.
_GOOD_S = 600.0


@dataclass
class Member:
    """One of the runners: its policy, its process, and how often it failed."""

    file: Path
    # None if the file could not be read yet.
    policy: Policy | None
    process: "Popen[bytes] | None" = None
    retry: Retry = field(default_factory=Retry)
    began_at: float = 0.0
    # It has ended on request, as after a drain.
    is_over: bool = False

    @property
    def bus(self) -> str:
        """The bus, or else the policy that would name it."""
        return self.policy.bus.url if self.policy else str(self.file)

    @property
    def serves(self) -> bool:
        """Whether its process gives signs of life."""
        serving = heartbeat.serving_process(self.policy.state) if self.policy else None
        return self.process is not None and serving is not None and serving.pid == self.process.pid


def load_members(files: Sequence[Path], tell: Callable[[str], None] | None = None) -> list[Member]:
    """Read the policies of several runners. With ``tell``, one that cannot be read does not stop the others.

    Raises:
        PolicyError: one cannot be used, or, with ``tell``, none can; or two share a state folder.
    """
    members: list[Member] = []
    for i, file in enumerate(files):
        try:
            members.append(Member(file.absolute(), load_policy(file)))
        except PolicyError as error:
            is_last = i + 1 == len(files) and not any(member.policy for member in members)
            if tell is None or is_last:
                raise
            tell(f"{error.message}; it is read again later, and the others go on")
            members.append(Member(file.absolute(), None))
    check_states(members)
    return members


def check_states(members: Sequence[Member]) -> None:
    """Raise PolicyError if two of the policies share a state folder."""
    states: dict[Path, Path] = {}
    for member in members:
        if member.policy is None:
            continue
        state = member.policy.state.resolve()
        if state in states:
            fix = "Give each policy a `state` of its own."
            raise PolicyError(
                f"{states[state]} and {member.file} have the same state folder {state}", fix=fix
            )
        states[state] = member.file


def serve_several(
    members: Sequence[Member], tell: Callable[[str], None], stop: StopRequest, *args: str
) -> None:
    """Serve all policies until they have ended, or until told to stop. Each runner's ``serve`` gets ``args``."""
    states = [member.policy.state for member in members if member.policy]
    folder = states[0] / FOLDER
    with own_files():
        for state in states:
            state.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
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
            if _attend(member, folder, tell, args):
                with own_files():
                    write_members(folder, {each.file: each.policy for each in members if each.policy})
        if not is_ready and all(
            member.serves or member.retry.failures or member.is_over for member in members
        ):
            is_ready = True
            heartbeat.notify("READY=1")
        if time.monotonic() - looked_at >= heartbeat.EVERY_S:
            looked_at = time.monotonic()
            for member in members:
                if member.policy:
                    heartbeat.kill_if_hanging(member.policy.state, tell)
        heartbeat.notify("WATCHDOG=1")
        stop.wait(_TICK_S)
    heartbeat.notify("STOPPING=1")


def _attend(member: Member, folder: Path, tell: Callable[[str], None], args: Sequence[str]) -> bool:
    """Notice a runner's end, and start it if it does not run and is due. Returns whether it was started."""
    if member.process is not None and (code := member.process.poll()) is not None:
        member.process = None
        if code == 0:
            member.is_over = True
            tell(f"{member.file}: its runner has ended")
            return False
        if time.monotonic() - member.began_at >= _GOOD_S:
            member.retry.succeeded()
        member.retry.failed(LONGEST_S, _FIRST_S)
        tell(f"{member.file}: its runner ended with {code}; it is started again, and the others go on")
    if member.process is not None or member.is_over or not member.retry.is_due:
        return False
    member.began_at = time.monotonic()
    # It may have changed. If it cannot be read, the runner itself says why.
    with suppress(PolicyError):
        member.policy = load_policy(member.file)
    runner = [sys.executable, "-I", "-m", "runner", "--policy", str(member.file)]
    # Its standard input is the pipe that it watches.
    argv = [*runner, "serve", "--turns", str(folder), *args]
    member.process = start(argv, env=environment.for_member(), stdin=PIPE)
    return True


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
