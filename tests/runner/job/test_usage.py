"""What a job uses is measured while its processes come and go."""

from __future__ import annotations

import os
import signal
import subprocess

from runner.job import usage

# Starts processes that end at once, a few at a time, for as long as it lives.
STORM = "while :; do (: | (: | :)); done"


def test_row_114_processes_that_come_and_go_end_no_measurement(tmp_path):
    measured = usage.Usage({"free": 0}, str(tmp_path))
    storm = subprocess.Popen(["/bin/sh", "-c", STORM], start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        seen = [measured.exceeded_limit() for _ in range(300)]
    finally:
        os.killpg(storm.pid, signal.SIGKILL)
        storm.wait()

    assert set(seen) == {None}
    assert measured.peaks["processes"] >= 1
