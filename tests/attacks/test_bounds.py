"""Bounds on what a job takes up: each is passed by a real job, which is ended with the reason."""

from __future__ import annotations

import sys

import pytest

from bridge.bus.wire import State
from bridge.presets import Limits as PresetLimits
from runner.job.usage import job_limits
from runner.policy import Limits as HostLimits

pytestmark = pytest.mark.bus

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's own lists of processes to be exact")

HOGS = {
    "memory": (
        """
        import time
        held = bytearray(200 << 20)
        print("held", flush=True)
        time.sleep(60)
        """,
        {"memory_mb": 100},
    ),
    "memory of a family": (
        """
        import os, time
        for _ in range(3):
            if os.fork() == 0:
                held = bytearray(os.urandom(1 << 20) * 60)
                time.sleep(60)
        time.sleep(60)
        """,
        {"memory_mb": 150},
    ),
    "processes": (
        """
        import os, time
        for _ in range(40):
            if os.fork() == 0:
                os.setsid()
                time.sleep(60)
        time.sleep(60)
        """,
        {"processes": 20},
    ),
    "disk": (
        """
        import os, time
        with open("big", "wb") as file:
            for _ in range(40):
                file.write(os.urandom(1 << 20))
                file.flush()
        time.sleep(60)
        """,
        {"disk_mb": 16},
    ),
    "files": (
        """
        import os, time
        for i in range(5000):
            os.makedirs(f"d{i % 50}", exist_ok=True)
            open(f"d{i % 50}/{i}", "w").close()
        time.sleep(60)
        """,
        {"files": 1000},
    ),
}


@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize("sandbox", ["off", "require"])
@pytest.mark.parametrize("hog", HOGS)
def test_a_job_that_takes_too_much_is_ended_with_the_reason(attacked, hog, sandbox):
    script, limits = HOGS[hog]
    word = hog.partition(" ")[0]

    result = attacked.by(
        script, limits=limits, timeout_s=50, policy={"sandbox": sandbox, "limits": {"grace_s": 0.2}}
    ).result

    assert (result.state, result.reason.code) == (State.FAILED, word), result.reason.message
    command = result.commands[0]
    assert command.exceeded == word
    assert command.peaks[word] > min(limits.values())
    assert command.seconds < 40
    assert command.survivors == []


def test_a_disk_that_is_nearly_full_ends_a_job(attacked):
    script = "import time; time.sleep(60)"

    result = attacked.by(script, policy={"sandbox": "off", "limits": {"keep_free_mb": 1 << 40}}).result

    assert result.reason.code == "free"


@linux
@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize("sandbox", ["off", "require"])
def test_what_a_job_took_up_is_reported(attacked, sandbox):
    script = """
        import subprocess, sys, time
        held = bytearray(80 << 20)
        open("file", "wb").write(b"x" * (2 << 20))
        subprocess.run([sys.executable, "-c", "import time; time.sleep(2.5)"])
    """

    command = attacked.by(script, policy={"sandbox": sandbox}).result.commands[0]

    assert command.exceeded is None
    assert 80 << 20 < command.max_rss_bytes < 160 << 20
    assert command.peaks["memory"] > 80 << 20
    assert 2 <= command.peaks["processes"] <= 5


def test_of_two_bounds_the_smaller_holds():
    preset = PresetLimits(memory_mb=100, processes=50)
    host = HostLimits(memory_mb=60, processes=500)

    found = job_limits(preset, host)

    assert (found["memory"], found["processes"]) == (60 << 20, 50)
    assert "memory" not in job_limits(PresetLimits(), HostLimits())
    assert job_limits(PresetLimits(), HostLimits(memory_mb=60))["memory"] == 60 << 20
