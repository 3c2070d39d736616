"""Measure the runner under load: a flood of output, and what the sandbox costs.

    python benchmarks/jobs.py [--gib N] [--runs N] [--only NAME]

Real jobs under the real supervisor. Prints the machine first, then a line a figure with the goal where there is one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Self

import psutil
from common import Figure, options_of, print_figures

from runner.job.command import Command, Ended, job_environment
from runner.job.logs import LogSink
from runner.job.sandbox import Sandbox, choose
from runner.job.workspace import workspace
from runner.policy import Bus, Policy

TOKEN = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
LINE = b"2026-11-20 20:00:00 step 12345 loss 0.12345 tokens/s 123.4 of plain text\n"
FLOODS = {"lines": LINE * 900, "one endless line": b"x" * 65_536}
POUR = """
import os, sys
block, left = sys.argv[1].encode().decode("unicode_escape").encode(), int(sys.argv[2])
block *= 65536 // len(block)
while left > 0:
    left -= os.write(1, block)
"""


def flood(folder: Path, options: argparse.Namespace) -> None:
    """A job that prints gigabytes: what the process that reads it grows by, and how fast it reads."""
    size = int(options.gib * (1 << 30))
    for name, line in (("lines", LINE), ("one endless line", b"x")):
        sink = LogSink(4 << 20, [TOKEN])
        with Peak() as peak:
            ended = run(
                folder, [sys.executable, "-I", "-c", POUR, ascii(line.decode())[1:-1], str(size)], sink
            )
        assert ended.exit_code == 0, ended
        assert sink.truncated
        rate = sink.total / ended.seconds / 1e6
        print(f"flood of {sink.total / 1e9:.1f} GB, {name}: memory +{peak.growth / 1e6:.1f} MB (goal < 50 MB), "
              f"{rate:.0f} MB/s from job to digest, {len(sink.kept) / 1e6:.1f} MB kept")  # fmt: skip


def sink(folder: Path, options: argparse.Namespace) -> None:
    """The log alone, without a pipe or a job, by its own processor time: the machine may be busy."""
    del folder
    for name, block in FLOODS.items():
        rates = []
        for _ in range(options.runs):
            log = LogSink(4 << 20, [TOKEN])
            began = time.process_time()
            for _ in range(200):
                log.write(block)
            rates.append(log.total / (time.process_time() - began) / 1e6)
        print(
            f"log, {name}: p50 {statistics.median(rates):.0f} MB/s, best {max(rates):.0f} MB/s (goal > 150 MB/s)"
        )


def sandbox(folder: Path, options: argparse.Namespace) -> None:
    """What a sandbox adds to a job that does nothing, by turns with none; and what trying it at the start costs."""
    policy = Policy(schema_version=1, bus=Bus(url=str(folder)), state=folder)
    began = time.perf_counter()
    box = choose(policy, print)
    print(
        f"sandbox: {box.kind}, chosen and tried in {time.perf_counter() - began:.2f} s, once a runner process"
    )
    argv = ["/bin/echo", "nothing"]
    pairs = [
        [run(folder, argv, LogSink(1000), around).seconds * 1e3 for around in (Sandbox(), box)]
        for _ in range(options.runs)
    ]
    off, on = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"a job that does nothing: {off:.0f} ms, in the sandbox {on:.0f} ms ({options.runs} pairs)")


FIGURES: dict[str, Figure] = {
    "flood": flood,
    "log": sink,
    "sandbox": sandbox,
}


class Peak:
    """The most memory that this process had while something ran, above what it had before."""

    def __enter__(self) -> Self:
        self._process = psutil.Process()
        self._before = self._most = self._process.memory_info().rss
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            self._most = max(self._most, self._process.memory_info().rss)

    @property
    def growth(self) -> int:
        """Return it in bytes."""
        return self._most - self._before


def run(folder: Path, argv: list[str], log: LogSink, box: Sandbox | None = None) -> Ended:
    with workspace(folder, "bench") as place:
        env = job_environment(place.home, interpreter=Path(sys.executable), extra={})
        inside = box.around(argv, place) if box else []
        command = Command(argv, inside=inside, env=env, cwd=place.tree, timeout_s=3600, grace_s=1, sink=log)
        while command.poll(0.05) is None:
            pass
        return command.stop()


if __name__ == "__main__":
    asked = options_of(__doc__, runs=20)
    asked.add_argument("--gib", type=float, default=5.0, help="how much output a flood is (default 5)")
    sys.exit(print_figures(asked, FIGURES))
