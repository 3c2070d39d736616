"""The connections of a job by its length, and its heartbeats."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from unittest import mock

from common import make
from scale_run import fleet
from scale_server import FETCH, LIST, PUSH, git_server

from runner.bus.bus import Budget, Pushed
from runner.serve import watch_job
from runner.serve.pace import Pace

LONG_S = 60
PRESETS = {
    "long": f"""name: long
description: Sleep.
code: installed
timeout_s: 600
steps:
  - argv: [/bin/sleep, "{LONG_S}"]
"""
}


def job_traffic(folder: Path) -> dict[str, Counter[str]]:
    """Return the connections and bytes of an empty job and of one of a minute, its client's wait included."""
    place = make(folder)
    presets = folder / "presets"
    presets.mkdir()
    for name, text in PRESETS.items():
        (presets / f"{name}.yaml").write_text(text, encoding="utf-8")
    found = {}
    kakeya = str(Path(sys.executable).with_name("kakeya"))
    with (
        git_server(place) as server,
        fleet(
            folder / "fleet", place, server.url, 1, more={"preset_folder": str(presets), "presets": ["*"]}
        ) as made,
    ):
        made.wait_until_serving()
        time.sleep(3)
        for name in ("noop", "long"):
            for waits in (False, True):
                before = server.totals()
                argv = [kakeya, "-C", str(place.clone), "run", name, *(["--wait"] if waits else [])]
                subprocess.run(argv, check=True, capture_output=True, timeout=600)
                made.wait_until_idle(place.bus)
                found[f"{name}{', with a client that waits' if waits else ''}"] = server.totals() - before
        before = server.totals()
        time.sleep(60)
        found["a runner without work, a minute"] = server.totals() - before
    return found


def heartbeats(seconds: float, *, prints: bool, per_minute: int = 6, lease_s: float = 120.0) -> int:
    """Return how many heartbeats a job of a length has, by the runner's own clockwork and a clock of our own."""
    now = [1000.0]
    budget = Budget(per_minute)
    pace = Pace(lease_s, budget)

    class Job:
        branch = request = ""

        def __init__(self) -> None:
            self.pace, self.budget, self.log, self.beats = pace, budget, mock.Mock(has_pending=prints), 0

        def beat(self, step: int) -> Pushed:
            del step
            pace.plan()
            budget.spend()
            self.beats += 1
            return Pushed.DONE

    policy, others = mock.Mock(), mock.Mock()
    policy.bus.poll, others.count_busy.return_value = (2.0, 15.0), 0
    with mock.patch("time.monotonic", side_effect=lambda: now[0]):
        job = Job()
        pace.plan()
        budget.spend()
        keeps = watch_job.Keepalive(mock.Mock(), mock.Mock(), others, policy, job)  # type: ignore[arg-type]
        while now[0] < 1000.0 + seconds:
            now[0] += 0.1
            keeps.beat(0)
    return job.beats


def print_traffic(found: dict[str, Counter[str]]) -> None:
    """Print a line for each kind of job."""
    for name, counts in found.items():
        print(
            f"  {name}: {counts[PUSH]} pushes, {counts[FETCH]} fetches, {counts[LIST]} listings, "
            f"{counts['bytes'] / 1e3:.1f} kB"
        )
