"""Count false alarms and misses of `kakeya run --against`: comparisons without a change, and with one of 10 %.

    python benchmarks/compare.py [--comparisons N] [--rounds N] [--change SHARE]

Real requests over a bus on this machine, whose runner is a process of its own. Prints the machine first.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import yaml
from common import print_machine

from bridge import local_runner
from bridge.client import Client, Run
from bridge.reports.compared import Compared
from bridge.system.git import Git

# Prints the median over several processes of the processor time of the quickest turn: other programs disturb the
# quickest turn least, and processes of one Python program differ by several per cent from their start to their end.
WORK = """
import json, statistics, subprocess, sys, time
def turn():
    began = time.process_time_ns()
    sum(i * i for i in range({loops}))
    return time.process_time_ns() - began
if sys.argv[1:]:
    print(min(turn() for _ in range(100)))
else:
    again = [sys.executable, "-I", __file__, "once"]
    print(json.dumps({{"ns": statistics.median(int(subprocess.check_output(again)) for _ in range(9))}}))
# {number}
"""
LOOPS = 6_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--comparisons", type=int, default=20, help="of each sort")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--change", type=float, default=0.1, help="the share by which the slower tree is slower"
    )
    options = parser.parse_args()
    print_machine()
    with tempfile.TemporaryDirectory() as folder:
        _measure(Path(folder), options)


def _measure(folder: Path, options: argparse.Namespace) -> None:
    presets = folder / "presets"
    presets.mkdir()
    compare = {
        "measure": "printed",
        "pointer": "/ns",
        "unit": "ns",
        "better": "lower",
        "rounds": options.rounds,
    }
    content = {
        "name": "work", "description": "Some work.", "code": "request", "timeout_s": 3600, "compare": compare,
        "steps": [{"argv": [sys.executable, "-I", "work.py"]}],
    }  # fmt: skip
    (presets / "work.yaml").write_text(yaml.safe_dump(content))
    with local_runner.stage("bench", ["work"], {}, preset_folder=presets, needs_engine=False) as stage:
        policy = yaml.safe_load(stage.policy.read_text()) | {"trust": {"code_request": "allow"}}
        stage.policy.write_text(yaml.safe_dump(policy))
        with local_runner.serving(stage):
            client, git = stage.client(presets), Git.of_user(stage.clone)
            runs = {
                sort: [_send(client, git, stage.clone, change) for _ in range(options.comparisons)]
                for sort, change in (("no change", 0.0), ("slower", options.change))
            }
            for sort, sent in runs.items():
                compared = [_read(run) for run in sent]
                alarms = sum(each.change == "regression" for each in compared)
                other = sum(each.change == "improvement" for each in compared)
                ratios = [each.ratios.candidate for each in compared]
                widths = [each.high - each.low for each in ratios]
                print(
                    f"{sort}: {len(compared)} comparisons of {options.rounds} rounds, {alarms} regressions, "
                    f"{other} improvements; ratio {min(ratios).value:.3f} to {max(ratios).value:.3f}, "
                    f"width of its interval p50 {statistics.median(widths):.3f}, most {max(widths):.3f}",
                    flush=True,
                )


def _send(client: Client, git: Git, clone: Path, change: float) -> Run:
    """Commit a baseline and a candidate, and ask for their comparison."""
    for loops in (LOOPS, round(LOOPS * (1 + change))):
        (clone / "work.py").write_text(WORK.format(loops=loops, number=time.time_ns()))
        git("add", "work.py")
        git("commit", "--quiet", "--no-gpg-sign", "--message", "Work")
    return client.run("work", against="HEAD~1")


def _read(run: Run) -> Compared:
    """Wait for an answer and return its comparison."""
    run.wait()
    compared = run.client.comparison(run.branch)
    assert compared, run.verify()
    print(f"{run.branch}: {compared.text}", file=sys.stderr, flush=True)
    return compared


if __name__ == "__main__":
    main()
