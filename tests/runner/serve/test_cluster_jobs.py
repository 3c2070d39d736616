"""A job on a cluster that its runner ends: by its time limit, on request, or with the runner itself."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
from pathlib import Path

import psutil
import pytest
import yaml

import presets
from bridge.bus.wire import State
from bridge.client import Client
from tests.conftest import git, wait_for

pytestmark = [
    pytest.mark.long,
    pytest.mark.bus,
    pytest.mark.skipif(importlib.util.find_spec("mlx_lm") is None, reason="the engine is not installed"),
]


def ranks_below(folder: Path) -> list[int]:
    """Return the processes of ranks whose job's files lie in this folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        try:
            if "engine.cluster.rank" in (process.info["cmdline"] or []):
                found += [process.pid] * str(process.environ().get("HOME")).startswith(str(folder))
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("how", ["time limit", "cancel", "kill"])
def test_no_rank_outlives_its_job(how, clone, bus, runners, tmp_path):
    (tmp_path / "presets").mkdir()
    preset = yaml.safe_load((Path(presets.__file__).parent / "distributed-probe.yaml").read_text())
    preset["timeout_s"] = 20 if how == "time limit" else 600
    (tmp_path / "presets/distributed-probe.yaml").write_text(yaml.safe_dump(preset))
    runner = runners.start(preset_folder=str(tmp_path / "presets"), cluster={"ranks": 2})
    run = Client(clone, presets=tmp_path / "presets").run("distributed-probe", {"repeats": 1000})
    wait_for(lambda: len(ranks_below(tmp_path)) == 2)

    if how == "time limit":
        for rank in ranks_below(tmp_path):
            os.kill(rank, signal.SIGSTOP)  # until then they would keep all processors busy
    if how == "kill":
        runner.process.kill()
        wait_for(lambda: not ranks_below(tmp_path), 30)
        return
    if how == "cancel":
        run.cancel()
    status = run.wait(timeout=120)

    assert status.state == (State.CANCELLED if how == "cancel" else State.TIMED_OUT)
    assert not ranks_below(tmp_path)
    result = json.loads(git(bus, "show", f"{run.branch}:.mac-bridge/result.json"))
    assert result["state"] == status.state
