"""The digests of a job's rows are printed so that no row is long without one."""

import re
import time

import pytest

from bridge.reports import digests
from engine.harness import report as reports
from engine.harness.arm import Arm, interleave
from engine.harness.job import Job, run

ARM = Arm("one", "reference", "a loop", lambda _: None)


@pytest.fixture
def job():
    def rows(turn):
        return [{"block": block} for block in range(1 if turn.prompt == "short" else 3)]

    turns = list(interleave([ARM], ["long", "short", "longer"]))
    return Job("kakeya.codec-rd", {}, {}, turns, rows, names=lambda turn: {"prompt": turn.prompt})


def test_rows_that_began_together_are_told_together(job, monkeypatch, capsys):
    monkeypatch.setenv(digests.VARIABLE, "0" * 64)
    monkeypatch.setattr(reports, "EVERY_S", 1e9)

    report, journal = run(job)

    told = [int(count) for count in re.findall(r"kakeya-rows \w+ (\d+) ", capsys.readouterr().err)]
    assert told == [3, 7]
    assert report["rows"] == journal.rows
    starts = [row["started_s"] for row in journal.rows]
    assert starts == sorted(starts)
    assert len({*starts}) == 3
    assert all(0 <= start <= time.perf_counter() for start in starts)
