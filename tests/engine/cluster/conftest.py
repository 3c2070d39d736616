import os
import signal
import time

import psutil
import pytest

from engine.cluster import hosts, state, supervise
from tests.engine import folders

CLOCKS = state.Clocks(token=6, load=20, start=30, silence=5, end=5)
JOB = {
    "task": "generate", "split": "tensor", "prompts": ["abc"], "system": None, "raw": True, "seed": 0, "stop": [],
    "ids": True, "dtype": None, "max_tokens": 12, "temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0,
}  # fmt: skip
SHAPE = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return folders.write_target(tmp_path_factory.mktemp("sharded"), SHAPE, dtype="float32")


class Ranks:
    """Runs a job on ranks of this machine, and notes what they report."""

    def __init__(self, folder):
        self.folder, self.pids, self.messages, self.hurt = folder, {}, [], None

    def run(self, ranks=2, clocks=CLOCKS, hurt=None, **job):
        """Run it. ``hurt`` is a phase and a signal that rank 1 gets in it."""
        self.hurt = hurt
        job = {**JOB, "model": str(self.folder), **job}
        cluster = ranks if isinstance(ranks, hosts.Cluster) else hosts.local(ranks)
        try:
            return supervise.run(cluster, job, clocks, self._notice)
        finally:
            self.left = left_of(self.pids.values())

    def _notice(self, message):
        self.messages.append(message)
        if message["event"] == "hello":
            self.pids[message["rank"]] = message["pid"]
        if self.hurt and message["rank"] == 1 and message.get("phase") == self.hurt[0]:
            os.kill(self.pids[1], self.hurt[1])
            self.hurt = None

    @property
    def ids(self):
        return [token for each in self.messages if each["event"] == "text" for token in each["ids"]]


def left_of(pids, within=5):
    """Return the processes that still live after some seconds."""
    until = time.monotonic() + within
    while (left := [pid for pid in pids if _lives(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def _lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def ranks(folder):
    """Run jobs on ranks of this machine; afterwards none of them is left."""
    made = Ranks(folder)
    yield made
    left = left_of(made.pids.values())
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
