"""However the demonstration ends, nothing of it is left: no process and no folder."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

pytestmark = [
    pytest.mark.bus,
    pytest.mark.long,
    pytest.mark.skipif(importlib.util.find_spec("mlx_lm") is None, reason="needs the engine"),
]


def left(place) -> list[str]:
    """Return the files below a folder, and the programs whose command lines name it."""
    programs = []
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        if f"{place}/kakeya-" in words:
            programs.append(words)
    return [*programs, *(path.name for path in place.iterdir() if path.name.startswith("kakeya-"))]


@pytest.mark.parametrize(
    ("signum", "begun"),
    [
        ("SIGTERM", "runner"),
        ("SIGINT", "bus"),
        ("SIGHUP", "runner"),
        ("SIGQUIT", "bus"),
        *((("SIGKILL"), at) for at in ("bus", "runner")),
    ],
)
def test_a_demonstration_ended_by_a_signal_leaves_nothing(tmp_path, signum, begun):
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    argv = [sys.executable, "-P", "-m", "bridge", "demo"]
    with subprocess.Popen(
        argv, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as demo:
        for line in demo.stdout:
            if line.startswith(begun.encode()):
                break
        assert left(tmp_path)
        demo.send_signal(getattr(signal, signum))
        demo.stdout.read()
    until = time.monotonic() + 60
    while left(tmp_path) and time.monotonic() < until:
        time.sleep(0.1)
    assert left(tmp_path) == []
