"""No value makes the gate crash or hang: whatever a file holds, there is a verdict."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bridge.cli import main
from bridge.common import limits
from bridge.gate import check_report, judge, verdict
from bridge.gate.deadline import Deadline, DeadlineList, TooLongError
from tests.bridge.gate import reports
from tests.bridge.gate.reports import Report

VALUES = (
    *(0, 0.0, -1, 1, 10**30, 10**400, 1e308, 5e-324, -0.0, 2**63, -5, 0.5, 1e-9, float("nan"), float("inf")),
    *("", "x", "\ud800", "a\u0000", "sha256:" + "0" * 64),
    *([], {}, None, True, False, [[]], [None], [0] * 50),
)  # fmt: skip
BASES = {
    **{name: (lambda name=name: reports.real(name)) for name in reports.REAL_NAMES},
    **reports.BUILDERS,
}
TIMES = 5


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in inner:
        yield (*path, step)
        yield from paths(item, (*path, step))


def spoil(report: Report, dice: random.Random) -> None:
    """Write an odd value to one place, or to all places of that name; or leave something out."""
    places: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for path in paths(report):
        places[tuple("*" if isinstance(step, int) else step for step in path)].append(path)
    alike = places[dice.choice([*places])]
    value, is_removed = dice.choice(VALUES), dice.random() < 0.2
    for path in [dice.choice(alike)] if is_removed or dice.random() < 0.5 else alike:
        container: Any = report
        for step in path[:-1]:
            container = container[step]
        if is_removed:
            del container[path[-1]]
        else:
            container[path[-1]] = value


@pytest.mark.long
@pytest.mark.parametrize("base", BASES)
def test_an_odd_value_gets_a_verdict(base):
    dice = random.Random(base)
    for _ in range(TIMES):
        report = reports.copy(BASES[base]())
        run, before = reports.vouched(report)[1] if "config" in report else None, repr(report)
        spoil(report, dice)
        if repr(report) == before:
            continue
        began = time.process_time()
        assert verdict(check_report(report)) in ("REJECTED", "INCOMPLETE")
        if run:
            assert verdict(check_report(report | {"run": {"id": run.id}}, run)) in ("REJECTED", "INCOMPLETE")
        assert time.process_time() - began < limits.JUDGE_S


@pytest.mark.parametrize(
    ("base", "edit"),
    [
        ("verify_l", lambda report: report["config"].update(contexts=[[]])),
        ("recall", lambda report: report["config"].update(depths=["x", 0.5, 0.9])),
        ("recall", lambda report: report["config"].update(samples=10**400)),
        ("bench", lambda report: report.update(prompts=report["prompts"][:1])),
        ("bench", lambda report: report.update(rows=report["rows"][:1])),
        ("bench", lambda report: report["config"].update(rollbacks=[[]], drafters=[7])),
        ("bench", lambda report: report["config"].update(resumed_rows=-3, model=[])),
        ("parity", lambda report: report["identity"]["blas"].update(gflops=10**400)),
        ("parity", lambda report: [row.update(reference=[1]) for row in report["rows"]]),
        ("restored", lambda report: [row.update(prefill_s=0.0) for row in report["rows"]]),
        ("kv_quant", lambda report: [row.update(sum_squares=0.0) for row in report["rows"]]),
        ("served", lambda report: [row["counters"].clear() for row in report["rows"]]),
    ],
)
def test_what_cannot_be_computed_is_a_violation(base, edit):
    report = reports.real(base)
    edit(report)

    assert verdict(check_report(report)) in ("REJECTED", "INCOMPLETE")


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("", "UNREADABLE", "the report is empty"),
        ("\ufeff{}", "UNREADABLE", "byte order mark"),
        ("no JSON", "UNREADABLE", "line 1, column 1"),
        ('{"kind": "kakeya.native", "rows": [1, 2', "UNREADABLE", "cut off after 39 bytes"),
        ('{"a": "b', "UNREADABLE", "cut off after 8 bytes"),
        ("[]", "UNREADABLE", "not a JSON object"),
        ("7", "UNREADABLE", "not a JSON object"),
        ('{"a": NaN}', "UNREADABLE", "NaN"),
        ('{"a": 1e999}', "UNREADABLE", "too large for a number"),
        ('{"a": 1234567890123456789}', "UNREADABLE", "19 digits"),
        ('{"a": 1, "a": 2}', "UNREADABLE", "twice"),
        ('{"a": "\\ud800"}', "UNREADABLE", "surrogate"),
        (b'{"a": "\xff"}', "UNREADABLE", "UTF-8"),
        ('{"a": ' + "[" * 40 + "]" * 40 + "}", "UNREADABLE", "nested too deeply"),
        ("[" * 100_000 + "]" * 100_000, "UNREADABLE", "nested too deeply"),
        (
            "{" + ", ".join(f'"{i}": 1' for i in range(limits.REPORT_OBJECT_NAMES + 1)) + "}",
            "TOO_LARGE",
            "names",
        ),
        ('{"a": [' + ", ".join(["[]"] * (limits.REPORT_NESTS + 1)) + "]}", "TOO_LARGE", "too many values"),
        (" " * (limits.REPORT_BYTES + 1), "TOO_LARGE", "larger than"),
        ("{}", "UNKNOWN_KIND", "None"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_file_that_is_no_report_is_named(text, code, message):
    data = text.encode() if isinstance(text, str) else text
    found = {fault.code: fault.message for fault in judge({"a.json": data}).violations}

    assert message in found[code]


def test_what_is_no_file_is_named_and_a_folder_is_no_report(tmp_path, monkeypatch, capsys):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["kakeya", "gate", str(tmp_path), "--json"])
    with pytest.raises(SystemExit):
        main()
    (fault,) = json.loads(capsys.readouterr().out)["violations"]

    assert (fault["path"], fault["code"]) == (str(tmp_path / "pipe.json"), "UNREADABLE")
    assert fault["message"] == "it is no regular file, or this user may not read it"


def test_so_many_faults_are_told_in_few_violations():
    report = reports.spec_bench()
    for row in report["rows"]:
        row |= {"tokens": None, "prefill_s": -1, "text": 7}
    report["arms"] = [{} for _ in range(90)]

    found = check_report(report)

    assert len(found) <= limits.ANSWER_NOTES
    assert {"NO_RUN", "MALFORMED", "BAD_ROW"} <= {fault.code for fault in found}


def test_each_code_is_among_the_first_violations():
    report = reports.spec_bench()
    report["rows"] *= 1_500 // len(report["rows"]) * 3
    report["rows"] = reports.copy(report["rows"])
    for i, row in enumerate(report["rows"]):
        row["arm"] = f"arm-{i}"
    report["identity"]["modified"] = ["a file"]

    codes = {fault.code for fault in check_report(report)}

    assert {"DANGLING_NAME", "BASELINE_PATCHED", "TIMES_CONTRADICT"} <= codes


def test_no_number_of_faults_hides_a_worse_one():
    """The verdict is that of the worst report, wherever that is among the others, and each code is named."""
    older = json.dumps({"kind": reports.kinds.NATIVE}).encode()
    files = {
        "x.json": b"{}",
        "y.json": json.dumps({"kind": reports.kinds.NATIVE, "schema_version": 3}).encode(),
    }
    alone = judge(files, [reports.kinds.NATIVE, reports.kinds.PARITY])
    for before in range(limits.ANSWER_NOTES + 2):
        others = {f"{i:03}.json": older for i in range(before)}

        whole = judge(others | files, [reports.kinds.NATIVE, reports.kinds.PARITY])

        assert (whole.verdict, len(whole.violations) <= limits.ANSWER_NOTES) == ("REJECTED", True)
        assert {fault.code for fault in whole.violations} >= {fault.code for fault in alone.violations}
    assert {"WRONG_KIND", "NO_REPORT", "NO_RUN"} < {fault.code for fault in alone.violations}


def many_claims(times: int = 40) -> Report:
    """Return a report that takes long to judge: many prompts, and as many claims as it may have."""
    report = reports.spec_bench(texts=tuple(f"{text} {i}" for i in range(times) for text in reports.TEXTS))
    report["claims"] = [report["claims"][i % len(report["claims"])] for i in range(200)]
    return report


def test_judging_ends_when_its_time_is_over():
    report = many_claims()
    began = time.process_time()

    found = check_report(report, deadline=Deadline(0.01))

    assert time.process_time() - began < 5
    assert verdict(found) == "INCOMPLETE"
    assert "JUDGED_TOO_LONG" in {fault.code for fault in found}


def repeated(name: str, oracle: dict[str, Any], **fields: Any) -> Report:
    """Return a report with very many rows of a candidate on one prompt, whose oracle's row has other fields."""
    report = reports.real(name)
    arm = next(arm for arm in report["arms"] if arm["role"] == "candidate")
    row = next(row for row in report["rows"] if row["arm"] == arm["name"])
    expected = next(prompt["expected"] for prompt in report["prompts"] if prompt["id"] == row["prompt"])
    text = "x" * 20_000 + expected
    report["rows"] += [{**row, "text": text, "memory": None, "repeat": i, **fields} for i in range(5_000)]
    names = (arm["oracle"], row["prompt"])
    next(row for row in report["rows"] if (row["arm"], row["prompt"]) == names).update(oracle)
    return report


def configured(name: str, **config: Any) -> Report:
    report = reports.real(name)
    report["config"].update(config)
    return report


def compared(rounds: int) -> Report:
    report = reports.compare()
    rows = [report["rows"][-1] | {"arm": arm} for arm in ("candidate", "baseline", "again")]
    report["rows"] = [row | {"round": i} for i in range(rounds) for row in rows]
    return report


def predicted(positions: int) -> Report:
    report = reports.torch_parity()
    for row in report["rows"]:
        if row.get("prediction"):
            row["prediction"] |= {"n_positions": positions}
    return report


MANY = 20_000
SLOW = {
    "needles": lambda: configured("recall", lengths=[0] * MANY, depths=[0] * MANY, samples=0),
    "drafters": lambda: configured("bench", rollbacks=["b"] * MANY, drafters=["a"] * MANY, left_out={"a/b": ""}),
    "lengths": lambda: configured("verify_l", lengths=[1] * MANY, contexts=[64] * MANY),
    "answers": lambda: repeated("recall", {}, stop="length"),
    "loops": lambda: repeated("recall", {"tokens": [i % 100 for i in range(300_000)]}, tokens=[1] * 13),
    "rounds": lambda: compared(MANY // 20),
    "positions": lambda: predicted(10**14),
    "trials": lambda: predicted(20_000),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOW)
def test_no_part_of_a_report_makes_judging_long(name):
    report = SLOW[name]()
    began = time.process_time()

    assert check_report(report, deadline=Deadline(1.0))

    assert time.process_time() - began < 10


def test_no_log_makes_judging_long():
    report, run = reports.vouched(reports.spec_bench(texts=reports.TEXTS * 8))
    lines = [*reports.log_lines(report)]
    report["seconds"] += 1  # none of the many measurements in the log is that of the report
    began = time.process_time()

    found = check_report(
        report, replace(run, logs=(reports.as_log(*[lines[0], lines[-1]] * MANY),)), Deadline(1.0)
    )

    assert {"EDITED", "JUDGED_TOO_LONG"} & {fault.code for fault in found}
    assert time.process_time() - began < 10


def test_reports_that_are_too_late_are_named(monkeypatch):
    monkeypatch.setattr(limits, "JUDGE_S", 0.05)
    data = json.dumps(many_claims()).encode()

    gate = judge(
        {f"{i}.json": data for i in range(4)}, kinds=[reports.kinds.NATIVE, reports.kinds.SPEC_BENCH]
    )

    assert gate.verdict == "INCOMPLETE"
    assert {"the reports before it took all of the 0.05 s"} <= {fault.message for fault in gate.violations}
    assert "NO_REPORT" not in {fault.code for fault in gate.violations}


def test_whoever_waits_for_the_verdict_can_end_the_judging():
    calls = []

    def attend() -> None:
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt

    data = json.dumps(many_claims()).encode()
    with pytest.raises(KeyboardInterrupt):
        judge({f"{i}.json": data for i in range(50)}, attend=attend)


def test_loops_over_a_list_end_in_time():
    items = DeadlineList(range(3), Deadline())
    assert [*items] == [0, 1, 2]
    with pytest.raises(TooLongError):
        [*DeadlineList(range(3), Deadline(-1))]
