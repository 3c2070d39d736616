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

import psutil
from common import Place, add_requests, make, policy_for
from scale_run import POLL, add_waiting, answered, fleet, histories
from scale_server import GitServer, git_server

from bridge.bus.wire import State
from runner.admit.manifests import read_candidate
from runner.context import RunnerContext, open_runner
from runner.policy import load_policy
from runner.serve.compose import Composer
from runner.serve.lease import Lease
from runner.serve.next_action import Action

MANY = 500
BATCH = 10
STARTS = 3


@dataclass(frozen=True)
class Costs:
    """Processor seconds of runner and server together. The simulation's constants."""

    start: float  # starting a runner until it polls
    listing: float  # a poll that finds nothing new, without request branches
    listing_branch: float  # the same, for each branch on the bus
    branch: float  # fetching and reading a branch that moved
    job: float  # a whole short job: claim, run, answer
    claim: float  # the part of it until the claim is pushed
    push: float  # the server's part of a push
    serve_listing: float  # the server's part of a listing
    serve_branch: float  # the server's part of fetching a branch
    lost_push: float  # a claim that another runner won
    look: float  # asking first, and finding that another runner was faster
    beat: float  # a heartbeat
    wait: float  # seconds of a job that pass without using the processor

    def print(self) -> None:
        """Print one line a constant."""
        for each in fields(self):
            print(f"  {each.name:15} {getattr(self, each.name) * 1e3:9.3f} ms")


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


def measure_costs(folder: Path, runs: int = 5) -> Costs:
    """Measure the constants."""
    place = make(folder)
    with ExitStack() as stack:
        server = stack.enter_context(git_server(place))
        clock = Clock(server)
        start = _start(folder, place, server)
        one = stack.enter_context(runner_of(folder, place, server.url))
        two = stack.enter_context(runner_of(folder, place, server.url, "two"))
        poller = Composer(one).poller()
        poller.poll()
        before = server.processor_s()
        listing = clock.of(lambda: many(poller.poll), runs, each=BATCH)
        serve_listing = (server.processor_s() - before) / runs / BATCH
        began, total, jobs = time.perf_counter(), 0.0, []
        for _ in range(runs):
            add_waiting(place, 1)
            jobs.append(clock.of(poller.poll))
            total = time.perf_counter() - began
        show(jobs)
        job = statistics.median(jobs) - listing
        claim, lost_push, look = _lose(clock, place, one, two)
        push, beat = _beat(clock, server, place, one)
        while answered(place.bus) < len(histories(place.bus)):
            poller.poll()
        add_requests(place.bus, MANY)
        before = server.processor_s()
        branch = clock.of(poller.poll, each=MANY)
        serve_branch = (server.processor_s() - before) / MANY
        listing_branch = max(0.0, clock.of(lambda: many(poller.poll), runs, each=BATCH) - listing) / MANY
        wait = max(0.0, total / runs - statistics.median(jobs)) if os.getloadavg()[0] < 1 else 0.0
        return Costs(
            start=start,
            listing=listing,
            listing_branch=listing_branch,
            branch=branch,
            job=job,
            claim=claim,
            push=push,
            serve_listing=serve_listing,
            serve_branch=serve_branch,
            lost_push=lost_push,
            look=look,
            beat=beat,
            wait=wait,
        )


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
            each.keys.reader.read_branch(each.bus.git, branch, each.bus.fetch()[branch])
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
