"""What the parts of a job cost on this machine: processor time of runner and server, connections and bytes."""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from unittest.mock import patch

import psutil
from common import Place, git, make, policy_for
from scale_run import POLL, add_waiting, fleet
from scale_server import GitServer, git_server

from bridge.bus.wire import State
from runner.admit.manifests import read_candidate
from runner.context import RunnerContext, open_runner
from runner.policy import load_policy
from runner.serve.compose import Composer
from runner.serve.dispatch import Action
from runner.serve.lease import Lease
from runner.serve.poll import Poller
from runner.serve.scheduler import Scheduler

# How many requests wait on the two buses of the measurement.
FEW, MANY = 20, 1000
BATCH = 10
# How many branches of other runners move between two polls.
MOVES = 61
STARTS = 3


@dataclass(frozen=True)
class Costs:
    """Processor seconds of runner and server together. The simulation's constants."""

    start: float  # starting a runner until it polls
    first_poll: float  # its first poll: it reads all branches again
    listing: float  # a poll that finds nothing new
    fetch: float  # what a poll costs more if another runner has moved a branch
    branch: float  # the same for each further branch that has moved
    job: float  # a whole short job: claim, run, answer
    claim: float  # the part of it until the claim is pushed
    push: float  # the server's part of a push
    serve_listing: float  # the server's part of a listing
    serve_fetch: float  # the server's part of a fetch
    serve_branch: float  # the same for each further branch
    lost_push: float  # a claim that another runner won
    look: float  # asking first, and finding that another runner was faster
    beat: float  # a heartbeat
    wait: float  # seconds of a job that pass without using the processor

    def print(self) -> None:
        """Print one line a constant."""
        for each in fields(self):
            print(f"  {each.name:15} {getattr(self, each.name) * 1e3:9.3f} ms")

    def beyond(self, few: Costs, factor: float) -> Costs:
        """Return the costs on a line through ``few`` and these, at so many times their distance from ``few``."""
        pairs = ((getattr(few, each.name), getattr(self, each.name)) for each in fields(self))
        return Costs(*(max(0.0, first + factor * (last - first)) for first, last in pairs))


@dataclass(frozen=True)
class Measured:
    """The costs on a bus with few branches, and on one with many."""

    few: Costs
    many: Costs

    def at(self, branches: int) -> Costs:
        """Return the costs on a bus with so many branches: they grow in proportion."""
        return self.many.beyond(self.few, max(0, branches - FEW) / (MANY - FEW))

    def print(self) -> None:
        """Print the costs on both buses."""
        for branches, costs in ((FEW, self.few), (MANY, self.many)):
            print(f"with {branches} requests on the bus:")
            costs.print()


class Clock:
    """The processor time of this process, its children and a server."""

    def __init__(self, server: GitServer) -> None:
        self._server = server

    def now(self) -> float:
        """Return the processor seconds so far."""
        used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in used) + self._server.processor_s()

    def of(self, call: Callable[[], object], runs: int = 1, each: int = 1) -> float:
        """Return the median processor seconds of a call that does something ``each`` times."""
        taken = []
        for _ in range(runs):
            before = self.now()
            call()
            taken.append((self.now() - before) / each)
        show(taken)
        return statistics.median(taken)


def show(seconds: list[float]) -> None:
    """Print the spread of the figure that follows, if there is one."""
    if len(seconds) > 1:
        print(f"    {len(seconds)} runs, {min(seconds) * 1e3:.2f} to {max(seconds) * 1e3:.2f} ms")


def many(call: Callable[[], object]) -> None:
    """Call it ``BATCH`` times: the clock of the server's processes ticks slowly."""
    for _ in range(BATCH):
        call()


@contextmanager
def runner_of(folder: Path, place: Place, url: str, name: str = "one") -> Iterator[RunnerContext]:
    """Open a runner in this process."""
    home = folder / name
    home.mkdir(parents=True, exist_ok=True)
    bus = {"url": url, **POLL}
    policy = policy_for(home, place, bus=bus, id=name, sandbox="off")
    with open_runner(load_policy(policy), lambda _: None) as context:
        yield context


def measure_costs(folder: Path) -> Measured:
    """Measure the constants."""
    few, many = (_measure(folder / str(branches), branches) for branches in (FEW, MANY))
    return Measured(few, many)


def _measure(folder: Path, branches: int, runs: int = 5) -> Costs:
    """Measure the constants on a bus on which so many requests wait."""
    place = make(folder)
    with ExitStack() as stack:
        server = stack.enter_context(git_server(place))
        clock = Clock(server)
        add_waiting(place, branches)
        start = _start(folder, place, server)
        one = stack.enter_context(runner_of(folder, place, server.url))
        two = stack.enter_context(runner_of(folder, place, server.url, "two"))
        poller = Composer(one).poller()
        with taking_nothing():
            poller.poll()
            first_poll = clock.of(lambda: Composer(one).poller().poll(), runs)
            before = server.processor_s()
            listing = clock.of(lambda: many(poller.poll), runs, each=BATCH)
            serve_listing = (server.processor_s() - before) / runs / BATCH
            (first, serve_first), (more, serve_more) = (
                _moved(clock, server, place, two, poller, moves) for moves in (1, MOVES)
            )
        began, jobs = time.perf_counter(), [clock.of(poller.poll) for _ in range(2 * runs)]
        total = time.perf_counter() - began
        show(jobs)
        job = statistics.median(jobs)
        claim, lost_push, look = _lose(clock, place, one, two)
        push, beat = _beat(clock, server, place, one)
        return Costs(
            start=start,
            first_poll=first_poll,
            listing=listing,
            fetch=max(0.0, first - listing),
            branch=max(0.0, more - first) / (MOVES - 1),
            job=job - listing,
            claim=claim,
            push=push,
            serve_listing=serve_listing,
            serve_fetch=max(0.0, serve_first - serve_listing),
            serve_branch=max(0.0, serve_more - serve_first) / (MOVES - 1),
            lost_push=lost_push,
            look=look,
            beat=beat,
            wait=max(0.0, total / len(jobs) - job) if os.getloadavg()[0] < 1 else 0.0,
        )


@contextmanager
def taking_nothing() -> Iterator[None]:
    """Let polls put the requests in order, and take none."""
    with patch.object(Scheduler, "_work", lambda *_args, **_more: False):
        yield


def _moved(
    clock: Clock, server: GitServer, place: Place, other: RunnerContext, poller: Poller, moves: int
) -> tuple[float, float]:
    """Return what a poll costs after another runner has claimed so many requests, and the server's part of it."""
    polls, served = [], []
    for _ in range(5):
        branches = add_waiting(place, moves)
        poller.poll()
        tips, commits = other.bus.fetch(), []
        for branch in branches:
            read = other.keys.reader.read_branch(other.bus.git, branch, tips[branch])
            commits.append(Lease(other.author, read).commit(State.CLAIMED, {}, tips[branch]))
        moved = [f"{oid}:refs/heads/{branch}" for branch, oid in zip(branches, commits, strict=True)]
        git(place.bus, "fetch", "--quiet", str(other.bus.git.directory), *moved)
        before = server.processor_s()
        polls.append(clock.of(poller.poll))
        served.append(server.processor_s() - before)
        gone = "".join(f"delete refs/heads/{branch}\n" for branch in branches)
        git(place.bus, "update-ref", "--stdin", stdin=gone.encode())
        poller.poll()
    show(polls)
    return statistics.median(polls), statistics.median(served)


def _start(folder: Path, place: Place, server: GitServer) -> float:
    """Return the processor seconds of a runner until it polls, without those of its end."""
    taken = []
    for number in range(STARTS):
        with fleet(folder / f"start-{number}", place, server.url, 1) as made:
            made.wait_until_serving()
            taken.append(sum(psutil.Process(made.processes[0].pid).cpu_times()[:4]))
    show(taken)
    return statistics.median(taken)


def _lose(clock: Clock, place: Place, one: RunnerContext, two: RunnerContext) -> tuple[float, float, float]:
    """Return what a claim costs, a lost one, and one that was given up after a look."""
    claims, lost = [], []
    for _ in range(6):
        (branch,) = add_waiting(place, 1)
        reads = [
            each.keys.reader.read_branch(each.bus.git, branch, each.bus.tip(branch) or "")
            for each in (one, two)
        ]
        lease = Lease(one.author, reads[0])
        claims.append(clock.of(lambda lease=lease: lease.advance(State.CLAIMED)))  # type: ignore[misc]
        candidate = read_candidate(two.bus.git, reads[1])
        lost.append(
            clock.of(lambda candidate=candidate: Composer(two).dispatcher().apply(candidate, Action.TAKE))
        )  # type: ignore[misc]
    # The first one had no reason to look.
    return statistics.median(claims), lost[0], statistics.median(lost[1:])


def _beat(clock: Clock, server: GitServer, place: Place, one: RunnerContext) -> tuple[float, float]:
    """Return what a heartbeat costs: the server's part, and all of it."""
    (branch,) = add_waiting(place, 1)
    lease = Lease(one.author, one.keys.reader.read_branch(one.bus.git, branch, one.bus.fetch()[branch]))
    lease.advance(State.CLAIMED)
    before = server.processor_s()
    beats = []
    for _ in range(6):
        lease.log.add(b"step 1: a line of output\n" * 10)
        beats.append(clock.of(lambda: lease.beat(0)))
    show(beats)
    return (server.processor_s() - before) / len(beats), statistics.median(beats)
