"""Reports that take far more memory than they have bytes, for the gate on its own, a runner, and a reader."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from bridge.client import Client
from bridge.common import limits
from bridge.reports.reading import ReportFileError, parse_report
from tests.attacks.test_reader_rows import MOST_CPU_S, MOST_MIB, measured

pytestmark = pytest.mark.bus

RUNNER_MIB = 150
# A job that leaves a given file as its report.
LEAVES = """
import pathlib, sys
path = pathlib.Path("results/research/a.json")
path.parent.mkdir(parents=True, exist_ok=True)
path.write_bytes(pathlib.Path(sys.argv[1]).read_bytes())
"""


def emoji(size: int) -> bytes:
    """Return an object whose text takes four bytes of memory for each byte of its own."""
    head, tail = '{"a":"\U0001f600'.encode(), b'"}'
    return head + b"x" * (size - len(head) - len(tail)) + tail


def names(count: int) -> bytes:
    return b"{" + b",".join(b'"%06x":1' % i for i in range(count)) + b"}"


def objects(count: int) -> bytes:
    return b'{"a":[' + b",".join(b'{"%06x":1}' % i for i in range(count)) + b"]}"


def lists(count: int) -> bytes:
    return b'{"a":[' + b",".join([b"[]"] * count) + b"]}"


def both() -> bytes:
    head = names(limits.REPORT_OBJECT_NAMES - 1)
    return head[:-1] + b"," + emoji(limits.REPORT_BYTES - len(head))[1:]


# Made when they are used: they have megabytes.
COSTLY = {
    "names and an emoji": both,
    "objects": lambda: objects(limits.REPORT_OBJECTS - 1),
    "lists": lambda: lists(limits.REPORT_NESTS - 2),
}
# Of the largest report. A report of eight mebibytes takes 200.
READER_MIB = 600


@pytest.mark.parametrize("make", COSTLY.values(), ids=COSTLY)
def test_row_108_what_a_text_takes_in_memory_is_bounded(tmp_path, clone, make):
    """The largest reports that are parsed; several of them, as far as they fit together, take no more than one."""
    data = make()
    assert len(data) <= limits.REPORT_BYTES
    for i in range(min(2, limits.REPORTS_BYTES // len(data))):
        (tmp_path / f"{i}.json").write_bytes(data)

    code, shown, seconds, mib = measured(clone, "gate", str(tmp_path))

    assert code == 5, shown
    assert "UNKNOWN_KIND" in shown
    assert seconds < MOST_CPU_S
    assert mib < READER_MIB


def test_row_108_a_report_beyond_the_limit_is_not_parsed(tmp_path, clone):
    (tmp_path / "a.json").write_bytes(emoji(limits.REPORT_BYTES + 1))

    code, shown, _, mib = measured(clone, "gate", str(tmp_path))

    assert (code, "TOO_LARGE" in shown) == (7, True), shown
    assert mib < MOST_MIB
    for data in (
        names(limits.REPORT_OBJECT_NAMES + 1),
        objects(limits.REPORT_OBJECTS + 1),
        lists(limits.REPORT_NESTS),
    ):
        with pytest.raises(ReportFileError) as caught:
            parse_report(data)
        assert caught.value.code == "too_large"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("more", [0, 1])
def test_row_108_a_runner_and_a_reader_judge_the_largest_report(runners, clone, presets, tmp_path, more):
    (tmp_path / "large.json").write_bytes(emoji(limits.REQUESTERS_REPORT_BYTES + more))
    (tmp_path / "leaves.py").write_text(LEAVES, encoding="utf-8")
    steps = [{"argv": [sys.executable, str(tmp_path / "leaves.py"), str(tmp_path / "large.json")]}]
    folder = presets(
        large={"code": "request", "steps": steps, "collect": ["results/research/*.json"], "gate": "reports"}
    )
    client = Client(clone, presets=folder)
    runner = runners.start(preset_folder=str(folder), trust={"code_request": "allow"})

    answer = client.run("large").wait(timeout=120)

    result = client.result(answer.branch)
    assert result.gate
    codes = {fault.code for fault in result.gate.violations}
    assert codes == ({"NO_REPORT", "LEFT_OUT"} if more else {"RUN_UNNAMED", "UNKNOWN_KIND"})
    assert result.skipped == (["results/research/a.json: larger than 8 MiB"] if more else [])
    status = Path(f"/proc/{runner.process.pid}/status").read_text(encoding="ascii")
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak
    assert int(peak[1]) / 1024 < RUNNER_MIB
    print(f"runner: {int(peak[1]) / 1024:.0f} MiB")

    code, shown, _, mib = measured(clone, "verify", answer.branch)
    print(f"verify: {mib:.0f} MiB")
    assert code in (0, 1), shown
    assert mib < MOST_MIB
