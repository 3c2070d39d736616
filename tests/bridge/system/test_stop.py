"""A request to stop from a signal handler: it must never wait for the thread that it interrupts."""

import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from bridge.system.signals import StopRequest

# In each round, a signal arrives while the main thread waits again and again.
INTERRUPTED = """
import os, signal, threading, time
from {module} import {name} as Request

for delay in range(200):
    stop = Request()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Timer(0.001 + 0.0001 * delay, os.kill, (os.getpid(), signal.SIGTERM)).start()
    while not stop.wait(0):
        pass
"""


def interrupted(module, name, timeout):
    argv = [sys.executable, "-c", INTERRUPTED.format(module=module, name=name)]
    return subprocess.run(argv, timeout=timeout, check=False).returncode


@pytest.mark.long
def test_a_handler_makes_it_whatever_the_main_thread_does():
    assert interrupted("bridge.system.signals", "StopRequest", timeout=60) == 0


@pytest.mark.long
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="how Python's own events behave is its own affair")
def test_an_event_would_hang():
    """The test above can fail."""
    with pytest.raises(subprocess.TimeoutExpired):
        interrupted("threading", "Event", timeout=5)


def test_it_is_made_once_and_stays():
    stop = StopRequest()
    assert (stop.is_set(), stop.wait(0)) == (False, False)
    for _ in range(3):
        stop.set()
        assert (stop.is_set(), stop.wait(), stop.wait(0)) == (True, True, True)


def test_waiting_ends_in_time_and_in_every_thread():
    stop, found = StopRequest(), []
    began = time.monotonic()
    assert not stop.wait(0.05)
    assert 0.04 < time.monotonic() - began < 5
    waiting = [threading.Thread(target=lambda: found.append(stop.wait(30))) for _ in range(3)]
    for thread in waiting:
        thread.start()
    stop.set()
    for thread in waiting:
        thread.join(60)
    assert found == [True] * 3


def test_a_signal_wakes_who_waits():
    stop = StopRequest()
    before = signal.signal(signal.SIGUSR1, lambda *_: stop.set())
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        assert stop.wait(30)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_its_pipe_is_closed():
    before = psutil.Process().num_fds()
    stops = [StopRequest() for _ in range(50)]
    assert psutil.Process().num_fds() >= before + 100
    stops.clear()
    assert psutil.Process().num_fds() < before + 50
