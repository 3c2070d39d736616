"""Many runners on one bus, by the simulation of benchmarks/scale.py: one answer each, and few lost claims."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
# Seconds, as measured once on a slow machine.
COSTS = {
    "start": 1.8, "first_poll": 0.1, "listing": 0.009, "fetch": 0.03, "branch": 3e-4, "job": 0.19, "claim": 0.035,
    "push": 0.013, "serve_listing": 0.004, "serve_fetch": 0.006, "serve_branch": 5e-5, "lost_push": 0.12, "look": 0.01,
    "beat": 0.035, "wait": 0.0,
}  # fmt: skip


@pytest.fixture
def simulated(monkeypatch):
    """Simulate a run, and return what it took."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    scale_costs = importlib.import_module("scale_costs")
    few = scale_costs.Costs(**COSTS)
    costs = scale_costs.Measured(few, few)
    simulation = importlib.import_module("scale_simulation")

    def run(runners, requests, *, shared=True):
        return simulation.Simulation(costs, runners, requests, 10.0, 1, 2.0, shared=shared).run()

    return run


@pytest.mark.parametrize(("runners", "requests"), [(1, 60), (10, 150), (50, 400)])
def test_each_request_has_one_answer_although_runners_are_killed(simulated, runners, requests):
    found = simulated(runners, requests)

    assert found.answers == [1] * requests
    assert found.kills > 0


def test_more_runners_take_less_time(simulated):
    assert simulated(10, 200, shared=False).seconds < simulated(2, 200, shared=False).seconds / 2


def test_fifty_runners_lose_few_claims_because_they_spread(simulated, monkeypatch):
    spread = simulated(50, 100)
    monkeypatch.setattr("runner.bus.backoff.WIDEST", 1)
    crowd = simulated(50, 100)

    assert spread.pushes < 3.5 * 100
    assert crowd.pushes > 1.5 * spread.pushes
