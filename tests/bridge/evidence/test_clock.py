"""All reports of a run are judged in one time, whatever they hold; meanwhile whoever waits is given a chance to act."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from bridge import evidence, limits
from bridge.evidence.bound import Bound, chain, unbound
from bridge.evidence.clock import Clock, Timed, TooLongError
from bridge.evidence.report_index import ReportIndex
from tests.bridge.evidence import reports
from tests.bridge.evidence.slow import slow

# A rule looks at the clock often, but parsing a report of this size takes a while; and the machine may be busy.
SOON_S = 4.0


@pytest.fixture(scope="module")
def large():
    return slow()


def codes(gate):
    return [one.code for one in gate.violations]


def test_row_109_a_report_with_claims_about_all_of_its_rows_is_judged_for_a_limited_time(large, monkeypatch):
    monkeypatch.setattr(limits, "JUDGE_S", 1.0)
    began = time.monotonic()

    gate = evidence.judge({"a.json": large})

    assert time.monotonic() - began < limits.JUDGE_S + SOON_S
    assert "JUDGED_TOO_LONG" in codes(gate)
    assert gate.verdict != "ACCEPTED"


def test_row_109_many_such_reports_have_this_time_together(large, monkeypatch):
    monkeypatch.setattr(limits, "JUDGE_S", 1.0)
    began = time.monotonic()

    gate = evidence.judge({f"{i}.json": large for i in range(1000)}, ["kakeya.spec-bench"])

    assert time.monotonic() - began < limits.JUDGE_S + SOON_S
    late = [one.path for one in gate.violations if one.code == "JUDGED_TOO_LONG"]
    assert len(late) > evidence.MAX_VIOLATIONS / 2
    assert gate.verdict != "ACCEPTED"
    assert len(gate.violations) <= evidence.MAX_VIOLATIONS


def test_reports_that_were_not_judged_are_not_called_missing(monkeypatch):
    monkeypatch.setattr(limits, "JUDGE_S", -1.0)

    gate = evidence.judge({"a.json": slow(1)}, ["kakeya.spec-bench"])

    assert (codes(gate), gate.verdict) == (["JUDGED_TOO_LONG"], "INCOMPLETE")


def test_the_comparison_with_the_run_is_part_of_this_time():
    report = reports.spec_bench() | {"run": {"id": "1" * 64}}
    at = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
    bound = Bound("1" * 64, at, at, logs=(b"kakeya-rows 1 %s\n" % (b"0" * 64) * 1000,))

    with pytest.raises(TooLongError):
        list(unbound(report, bound, Clock(-1.0)))


def test_the_rows_of_a_log_of_the_largest_size_are_read_without_being_kept():
    report = reports.spec_bench() | {"run": {"id": "1" * 64}, "created_at": "2026-01-31T12:00:00Z"}
    report.pop("seconds", None)
    at = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
    digests = [*chain(report["rows"])]
    honest = b"".join(b"kakeya-rows %d %s\n" % (i + 1, one.encode()) for i, one in enumerate(digests))
    other = b"kakeya-rows 1 %s\n" % (b"0" * 64)
    said = [
        [*unbound(report, Bound("1" * 64, at, at, logs=logs))]
        for logs in ((other * 100_000 + honest,), (other * 100_000, honest), (honest + other * 100_000,))
    ]

    assert said == [[], [], []]
    assert [code for code, _ in unbound(report, Bound("1" * 64, at, at, logs=(other * 100_000,)))] == [
        "RUN_UNBOUND"
    ]


def test_a_fault_that_stands_in_very_many_places_is_told_of_some():
    found = [("ROW_CONTRADICTS", f"row {i}") for i in range(100_000)] + [("PATCHED_ORACLE", "x")]

    once = [*evidence._once(found)]

    assert len(once) == evidence._PLACES + 1
    assert once[-1] == ("PATCHED_ORACLE", "x")


def test_who_waits_is_called_a_few_times_a_second_and_ends_the_judging(large):
    calls = []

    def attend():
        calls.append(time.monotonic())
        if len(calls) == 5:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        evidence.judge({"a.json": large}, attend=attend)

    assert all(after - before >= 0.1 for before, after in pairwise(calls))


def test_loops_over_the_parts_of_a_report_look_at_the_clock():
    model = evidence.MODELS["kakeya.spec-bench"].model_validate(reports.spec_bench())
    index = ReportIndex(model, Clock(-1.0))

    for part in (index.rows, index.claims, index.all_arms, index.all_prompts):
        assert len(part) > 0
        with pytest.raises(TooLongError):
            list(enumerate(part))


@pytest.mark.parametrize("size", [0, 1, 64, 65, 200])
def test_a_timed_list_holds_what_it_was_made_of(size):
    assert [*Timed(range(size), Clock())] == [*range(size)]


FAULTY = {
    "rows": lambda report: report.update(rows=[{"arm": 1}] * 45_000),
    "tokens": lambda report: report["rows"][0].update(tokens=["x"] * 900_000),
    "commits": lambda report: report["rows"][0].update(commits=["x"] * 900_000),
    "unknown names": lambda report: report.update({f"x{i}": 1 for i in range(400_000)}),
    "prompts": lambda report: report.update(prompts=[{f"x{i}": 1 for i in range(400)}] * 1_000),
}


@pytest.mark.parametrize("name", FAULTY)
def test_row_113_very_many_faults_of_the_format_take_little_time_and_memory(name):
    report = reports.spec_bench()
    FAULTY[name](report)
    data = json.dumps(report).encode()
    assert len(data) < 8 << 20
    # A process inherits the ru_maxrss of whoever started it: Linux tells its own elsewhere.
    script = (
        "import pathlib, re, resource, sys, time\n"
        "from bridge import evidence\n"
        "data = sys.stdin.buffer.read()\n"
        "began = time.process_time()\n"
        "gate = evidence.judge({'a.json': data})\n"
        "if sys.platform == 'darwin':\n"
        "    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20\n"
        "else:\n"
        "    status = pathlib.Path('/proc/self/status').read_text()\n"
        "    most = int(re.search(r'VmHWM:\\s+(\\d+) kB', status)[1]) >> 10\n"
        "print(gate.verdict, most, time.process_time() - began)\n"
    )

    done = subprocess.run(
        [sys.executable, "-P", "-c", script], input=data, capture_output=True, check=True, timeout=60
    )

    verdict, megabytes, seconds = done.stdout.split()
    assert verdict in (b"REJECTED", b"INCOMPLETE")
    assert int(megabytes) < 250
    assert float(seconds) < 10  # under 1 s on an idle machine
