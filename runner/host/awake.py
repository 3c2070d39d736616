"""Keeps a Mac awake while the runner serves."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bridge.system.process import DEVNULL, start

CAFFEINATE = "/usr/bin/caffeinate"


@contextmanager
def awake() -> Iterator[None]:
    """Keep the system from sleeping while it is idle or on mains power. Does nothing except on a Mac.

    ``caffeinate -w`` watches this process, so it also ends if this process is killed.
    """
    if sys.platform != "darwin":
        yield
        return
    argv = [CAFFEINATE, "-is", "-w", str(os.getpid())]
    keeper = start(argv, env={}, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    try:
        yield
    finally:
        keeper.terminate()
        keeper.wait()
