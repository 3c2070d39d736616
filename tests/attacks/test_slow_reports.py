"""Reports that take long to judge, or much memory: all of a run have a time limit together."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bridge import gate
from bridge.common import limits
from tests.bridge.gate.reports import large_report

REAL = Path(__file__).parents[1] / "bridge" / "gate" / "real" / "bench.json.gz"
# Of processor time: parsing a report of this size takes a while.
SOON_S = 6.0
MOST_MIB, MOST_CPU_S = 250, 10

JUDGE = """
import pathlib, re, resource, sys, time
from bridge import gate
data = sys.stdin.buffer.read()
began = time.process_time()
judged = gate.judge({"a.json": data})
if sys.platform == "darwin":
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20
else:
    # A process inherits the ru_maxrss of its parent.
    mib = int(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) >> 10
print(judged.verdict, mib, time.process_time() - began)
"""


def real_report() -> dict:
    return json.loads(gzip.decompress(REAL.read_bytes()))


@pytest.fixture(scope="module")
def large() -> bytes:
    """A report of a few megabytes with as many claims as it may have, each about all of its rows."""
    data = large_report()
    assert 3 << 20 < len(data) < limits.REPORT_BYTES
    return data


def late(judged) -> list[str]:
    return [fault.path for fault in judged.violations if fault.code == "JUDGED_TOO_LONG"]


def test_row_109_a_large_report_is_judged_for_a_limited_time(large, monkeypatch):
    monkeypatch.setattr(limits, "JUDGE_S", 0.2)
    began = time.process_time()

    judged = gate.judge({"a.json": large})

    assert time.process_time() - began < limits.JUDGE_S + SOON_S
    assert late(judged) == ["a.json"]
    assert not judged.accepted


def test_row_109_many_large_reports_have_this_time_together(large, monkeypatch):
    monkeypatch.setattr(limits, "JUDGE_S", 0.2)  # a fast machine judges fifty in a second
    began = time.process_time()

    judged = gate.judge({f"{i}.json": large for i in range(1000)})

    assert time.process_time() - began < limits.JUDGE_S + SOON_S
    assert len(late(judged)) > gate.MAX_VIOLATIONS / 2
    assert len(judged.violations) <= gate.MAX_VIOLATIONS
    assert not judged.accepted


FAULTY = {
    "rows": lambda report: report.update(rows=[{"arm": 1}] * 45_000),
    "tokens": lambda report: report["rows"][0].update(tokens=["x"] * 900_000),
    "commits": lambda report: report["rows"][0].update(commits=["x"] * 900_000),
    "unknown names": lambda report: report.update({f"x{i}": 1 for i in range(400_000)}),
    "prompts": lambda report: report.update(prompts=[{f"x{i}": 1 for i in range(400)}] * 1_000),
}


@pytest.mark.parametrize("name", FAULTY)
def test_row_113_very_many_faults_of_the_form_take_little_time_and_memory(name):
    report = real_report()
    FAULTY[name](report)
    data = json.dumps(report).encode()
    assert len(data) < limits.REPORT_BYTES

    done = subprocess.run(
        [sys.executable, "-P", "-c", JUDGE], input=data, capture_output=True, check=True, timeout=60
    )

    verdict, mib, seconds = done.stdout.split()
    assert verdict in (b"REJECTED", b"INCOMPLETE")
    assert int(mib) < MOST_MIB
    assert float(seconds) < MOST_CPU_S
