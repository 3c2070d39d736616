"""A simulation of many runners on one git server: events, with the measured costs as its only constants.

A push, a listing and a fetch wait for a core of the server, which serves one of them at a time.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from scale_costs import Measured
from scale_run import POLL, WAITING

from runner.bus.backoff import Spread
from runner.serve.loop import PAUSE_GROWTH

# A step of a runner: seconds of a core, or seconds that pass.
Steps = Generator[tuple[str, float], None, Any]
CORE, SERVER, PASS = "core", "server", "pass"


@dataclass
class Request:
    """A request, and who holds it."""

    holder: int | None = None
    claims: int = 0
    answers: int = 0


@dataclass
class Prediction:
    """What the simulation says of a run."""

    seconds: float = 0.0
    core_s: float = 0.0
    pushes: int = 0
    listings: int = 0
    fetches: int = 0
    lost_claims: int = 0
    kills: int = 0
    answers: list[int] = field(default_factory=list)


class Simulation:
    """Runners that poll, compete for requests, and are killed. A git server is the cores that its pushes take."""

    def __init__(
        self,
        measured: Measured,
        runners: int,
        requests: int,
        kill_every_s: float,
        seed: int,
        cores: float,
        *,
        shared: bool,
    ) -> None:
        self._costs = measured.at(requests)
        self._random = random.Random(seed)
        self._requests = [Request() for _ in range(requests)]
        self._open = list(range(requests))
        self._moves = 0
        self._left = requests
        # When each of the server's cores is free again. A part of a core is a slower one.
        self._cores = [0.0] * max(1, round(cores))
        self._speed = cores / len(self._cores)
        # Whether the runners use the server's cores, or have one each.
        self._shared = shared
        self._kill_every_s = kill_every_s
        self._events: list[tuple[float, int, int]] = []
        self._count = 0
        self._life = [0] * runners
        self._steps: dict[int, Steps] = {n: self._runner(n) for n in range(runners)}
        self._spreads = [Spread() for _ in range(runners)]
        self.found = Prediction()

    def run(self) -> Prediction:
        """Run until each request is answered."""
        found, now = self.found, 0.0
        for runner in self._steps:
            # All runners serve already, and are somewhere in their longest pause.
            self._at(self._random.uniform(0, POLL["idle_poll_s"]), runner)
        next_kill = self._kill_every_s or float("inf")
        while self._left:
            time, _, key = heapq.heappop(self._events)
            while next_kill <= time:
                self._kill(next_kill)
                next_kill += self._kill_every_s
            now = time
            runner, life = divmod(key, 1 << 20)
            if life == self._life[runner]:
                self._advance(now, runner)
        found.seconds = now
        found.answers = [request.answers for request in self._requests]
        return found

    def _at(self, time: float, runner: int) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, (runner << 20) + self._life[runner]))

    def _advance(self, now: float, runner: int) -> None:
        kind, seconds = next(self._steps[runner])
        if kind == PASS:
            self._at(now + seconds, runner)
            return
        self.found.core_s += seconds
        if kind == CORE and not self._shared:
            self._at(now + seconds, runner)
            return
        began = max(now, heapq.heappop(self._cores))
        end = began + seconds / self._speed
        heapq.heappush(self._cores, end)
        self._at(end, runner)

    def _kill(self, now: float) -> None:
        runner = self._random.randrange(len(self._life))
        self.found.kills += 1
        self._life[runner] += 1
        self._steps[runner] = self._runner(runner, restarts=True)
        self._spreads[runner] = Spread()
        self._at(now, runner)

    def _runner(self, number: int, *, restarts: bool = False) -> Steps:
        costs, found = self._costs, self.found
        if restarts:
            yield CORE, costs.start
            yield SERVER, costs.push
            found.pushes += 1
            yield CORE, costs.first_poll
            # A runner that was killed resumes its own claim at once.
            for mine in [i for i, request in enumerate(self._requests) if request.holder == number]:
                yield from self._claim(number, mine)
        seen, pause = self._moves, POLL["poll_s"]
        spread = self._spreads[number]
        while True:
            shown, moved, seen = self._open[:WAITING], self._moves - seen, self._moves
            served, listed = costs.serve_listing, costs.listing
            if moved > 0:
                served += costs.serve_fetch + (moved - 1) * costs.serve_branch
                listed += costs.fetch + (moved - 1) * costs.branch
            found.listings += 1
            found.fetches += moved > 0
            yield SERVER, served
            yield CORE, max(0.0, listed - served)
            if not shown:
                pause = min(pause * PAUSE_GROWTH, POLL["idle_poll_s"])
                yield PASS, pause * self._random.uniform(0.7, 1.3)
                continue
            pause = POLL["poll_s"]
            wanted = self._random.choice(shown[: spread.width])
            if spread.has_rivals:
                found.listings += 1
                yield SERVER, costs.serve_listing
                if self._requests[wanted].holder is not None:
                    spread.lose()
                    yield CORE, max(0.0, costs.look - costs.serve_listing)
                    found.lost_claims += 1
                    continue
            # A runner has its own commits already.
            seen += yield from self._claim(number, wanted)

    def _claim(self, number: int, wanted: int) -> Steps:
        """Claim a request and answer it. Returns how often that has moved the branch."""
        costs, found, request = self._costs, self.found, self._requests[wanted]
        # Without rivals, the supervisor starts beside the push. A lost claim costs a look at who won it.
        beside = max(0.0, costs.lost_push - costs.look - costs.claim)
        until_push = costs.claim + (0.0 if self._spreads[number].has_rivals else beside)
        yield CORE, max(0.0, until_push - costs.push)
        yield SERVER, costs.push
        found.pushes += 1
        if request.holder not in (None, number):
            found.lost_claims += 1
            self._spreads[number].lose()
            found.listings += 1
            found.fetches += 1
            yield CORE, costs.look
            return 0
        if request.holder is None:
            self._open.remove(wanted)
        request.holder = number
        request.claims += 1
        self._moves += 1
        self._spreads[number].win()
        yield CORE, max(0.0, costs.job - until_push - costs.push)
        yield PASS, costs.wait
        yield SERVER, costs.push
        found.pushes += 1
        request.answers += 1
        request.holder = -1
        self._moves += 1
        self._left -= 1
        return 2
