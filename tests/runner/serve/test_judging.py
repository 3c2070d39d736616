"""While a real runner judges reports that take long, it keeps its claim, and hears the requester and the operator."""

from __future__ import annotations

import json

import pytest

from bridge.bus import wire
from bridge.bus.wire import State
from tests.bridge.gate.reports import large_report

pytestmark = pytest.mark.bus

REPORTS = 12


@pytest.fixture
def judging(runners, presets, requester, client, tmp_path, wait_for):
    """Return a runner that judges for as long as it may, and the branch."""
    (tmp_path / "slow.json").write_bytes(large_report())
    script = (
        f'mkdir -p results/research; for i in $(seq {REPORTS}); do cp "$0" results/research/$i.json; done'
    )
    step = {"argv": ["/bin/sh", "-c", script, str(tmp_path / "slow.json")]}
    folder = presets(
        slow={
            "collect": ["results/research/*.json"],
            "gate": "reports",
            "steps": [step],
            "limits": {"all_reports_mb": 100},
        }
    )
    runner = runners.start(preset_folder=str(folder), bus={"lease_s": 3})
    branch = requester.send(requester.manifest("slow"))
    wait_for(lambda: "judged" in client.status(branch).detail)
    return runner, branch


@pytest.mark.long
def test_row_109_the_claim_is_renewed_and_a_cancellation_is_heard(judging, client, git, bus, wait_for):
    runner, branch = judging
    first = json.loads(git(bus, "show", f"{branch}:{wire.STATE}"))["sequence"]
    wait_for(lambda: json.loads(git(bus, "show", f"{branch}:{wire.STATE}"))["sequence"] > first)

    client.cancel(branch)

    assert client.wait(branch, timeout=120).state is State.CANCELLED
    assert client.verify(branch).holds
    assert runner.stop() == 0


def test_row_109_a_runner_that_is_told_to_stop_hands_the_request_back(judging, client):
    runner, branch = judging

    assert runner.stop() == 0

    assert client.status(branch).state is State.REQUESTED
