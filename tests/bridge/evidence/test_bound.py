"""Reports are bound to their run: by its id, its times, its machine, and the digests of rows in its log."""

from __future__ import annotations

import copy
import hashlib
import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bridge import evidence
from bridge.evidence.asked import BUNDLED_SET, unlike
from bridge.evidence.bound import Bound, chain, is_told, run_id, unbound
from bridge.evidence.bundled import bundled
from tests.bridge.evidence import falsehoods, reports, whole

ID = run_id("mac-bridge/job-1", "c" * 40, 1)
BEGAN = datetime(2026, 1, 31, 11, 50, tzinfo=UTC)
ENDED = BEGAN + timedelta(minutes=15)


def report_of(run=ID):
    return whole.whole("kakeya.spec-bench") | {"run": {"id": run}}


def log_of(*made, first=0):
    """The log of a job that measured these reports, as the engine writes it; ``first`` rows were there before."""
    lines = ["measuring"]
    for one in made:
        rows, last = one["rows"], None
        for n, (row, digest) in enumerate(zip(rows, chain(rows), strict=True), 1):
            at = ends(row) if "started_s" in row and n > first else 0.0
            if last is None or at - last >= 1 or n == len(rows):
                lines.append(f"kakeya-rows {n} {digest}")
                last = at
    return "".join(f"{line}\n" for line in lines).encode()


def ends(row):
    return row["started_s"] + row.get("e2e_s", row.get("seconds"))


def last_line_of(made):
    return b"kakeya-rows" + log_of(made).rpartition(b"kakeya-rows")[2]


def bound_to(*made, **more):
    return Bound(ID, BEGAN, ENDED, logs=(log_of(*made),), **more)


def said(report, bound):
    return [code for code, _ in unbound(report, bound)]


def test_a_report_of_the_run_is_accepted():
    report = report_of()
    assert evidence.check_report(report, bound_to(report)) == []


def test_two_reports_of_one_job_are_found_in_one_log():
    one, other = report_of(), reports.parity() | {"run": {"id": ID}}
    assert [said(report, bound_to(one, other)) for report in (one, other)] == [[], []]


@pytest.mark.parametrize(
    "about", [("b", "c" * 40, 1), ("mac-bridge/job-1", "d" * 40, 1), ("mac-bridge/job-1", "c" * 40, 2)]
)
def test_another_branch_request_or_claim_is_another_run(about):
    report = report_of(run_id(*about))
    assert said(report, bound_to(report)) == ["RUN_UNBOUND"]


def test_a_report_that_names_no_run_passes_only_where_none_is_required():
    report = reports.spec_bench()
    assert not is_told(report)
    assert said(report, bound_to(report)) == []
    assert said(report, bound_to(report, required=True)) == ["RUN_UNTOLD"]
    assert (
        evidence.check_reports({"a": report}, bound=bound_to(report, required=True)).verdict == "INCOMPLETE"
    )


@pytest.mark.parametrize("at", ["2025-07-15T12:00:00Z", "2026-01-31T12:30:00Z", "2099-01-01T00:00:00Z"])
def test_a_report_of_another_time_is_no_report_of_the_job(at):
    report = report_of() | {"created_at": at}
    assert said(report, bound_to(report)) == ["RUN_UNBOUND"]


def test_a_report_does_not_take_longer_than_its_job():
    report = report_of() | {"seconds": 3600.0}
    assert said(report, bound_to(report)) == ["RUN_UNBOUND"]


def test_a_report_of_another_machine_is_no_report_of_the_job():
    report = report_of()
    report["identity"] = report["identity"] | {"memory_bytes": 1 << 34}
    assert said(report, bound_to(report, host={"memory_bytes": (1 << 34) + 4096})) == []
    assert said(report, bound_to(report, host={"memory_bytes": 1 << 35})) == ["RUN_UNBOUND"]
    assert said(report, bound_to(report, versions={"mlx": "0.1"})) == ["RUN_UNBOUND"]


@pytest.mark.parametrize("place", [0, 20, -1])
def test_a_row_that_was_changed_after_it_was_measured_shows(place):
    report = report_of()
    bound = bound_to(report)
    report["rows"][place]["decode_s"] *= 0.99
    assert said(report, bound) == ["RUN_UNBOUND"]


def test_rows_that_the_log_never_held_show():
    report = report_of()
    assert said(report, Bound(ID, BEGAN, ENDED, logs=(b"nothing",))) == ["RUN_UNBOUND"]


def test_a_log_that_tells_another_course_shows():
    report, other = report_of(), copy.deepcopy(report_of())
    other["rows"][0]["text"] = "changed"
    digests, others = [*chain(report["rows"])], [*chain(other["rows"])]
    log = f"kakeya-rows 1 {others[0]}\nkakeya-rows {len(digests)} {digests[-1]}\n".encode()
    assert said(report, Bound(ID, BEGAN, ENDED, logs=(log,))) == ["RUN_UNBOUND"]


def with_log(log):
    return Bound(ID, BEGAN, ENDED, logs=(log,))


@pytest.mark.parametrize("name", ["bench", "native", "recall", "acceptance"])
def test_a_log_with_one_line_at_the_end_was_not_written_while_rows_were_measured(name):
    report = falsehoods.real(name) | {"run": {"id": ID}, "created_at": "2026-01-31T12:00:00Z"}
    assert said(report, with_log(log_of(report))) == []
    assert said(report, with_log(last_line_of(report))) == ["RUN_UNBOUND"]


@pytest.mark.parametrize("left_out", [0.2, 0.8])
def test_a_log_that_is_silent_for_some_seconds_in_between_shows(left_out):
    report = falsehoods.real("native") | {"run": {"id": ID}, "created_at": "2026-01-31T12:00:00Z"}
    lines = log_of(report).splitlines(keepends=True)
    at = int(left_out * len(lines))
    assert said(report, with_log(b"".join(lines[: at - 1] + lines[at:]))) == []
    assert said(report, with_log(b"".join(lines[: at - 2] + lines[at + 2 :]))) == ["RUN_UNBOUND"]


def test_a_log_whose_middle_was_left_out_says_nothing_of_it():
    report = falsehoods.real("native") | {"run": {"id": ID}, "created_at": "2026-01-31T12:00:00Z"}
    lines = log_of(report).splitlines(keepends=True)
    cut = b"\n[... 70000 bytes left out ...] "
    assert said(report, with_log(b"".join([*lines[:3], cut, *lines[-3:]]))) == []
    assert said(report, with_log(b"".join([lines[0], cut, lines[-1]]))) == []
    assert said(report, with_log(b"".join([*lines[:3], cut, lines[-4], lines[-1]]))) == []
    assert said(report, with_log(b"".join([*lines[:2], *lines[-6:-3], cut, *lines[-2:]]))) == ["RUN_UNBOUND"]


def test_rows_of_an_earlier_interrupted_run_have_their_digests_in_another_log():
    report = falsehoods.real("native") | {"run": {"id": ID}, "created_at": "2026-01-31T12:00:00Z"}
    report["config"]["resumed_rows"] = half = len(report["rows"]) // 2
    start = report["rows"][half]["started_s"]
    for row in report["rows"][half:]:
        row["started_s"] -= start
    assert said(report, with_log(log_of(report, first=half))) == []
    assert said(report, with_log(last_line_of(report))) == ["RUN_UNBOUND"]


def test_passes_over_several_caches_have_their_digests_at_the_end():
    report = falsehoods.real("verify_l") | {"run": {"id": ID}, "created_at": "2026-01-31T12:00:00Z"}
    for row in report["rows"]:
        row["started_s"] *= 100
    assert said(report, with_log(last_line_of(report))) == ["RUN_UNBOUND"]
    report["config"]["caches"] = ["raw", "e8v@4.25"]
    assert said(report, with_log(last_line_of(report))) == []


def test_the_log_of_a_real_run_holds_the_digests_that_its_times_demand(tmp_path):
    pytest.importorskip("mlx")
    if not importlib.import_module("engine.models.registry").is_bundled_here("tiny"):
        pytest.skip("this installation holds no bundled pair")
    argv = [
        "bench",
        "native",
        "--model",
        "tiny",
        "--max-prompts",
        "3",
        "--max-tokens",
        "64",
        "--repeats",
        "3",
    ]
    out, began = tmp_path / "native.json", datetime.now(UTC)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "engine", *argv, "--out", str(out)],
        env={**os.environ, "KAKEYA_RUN_ID": ID}, stderr=subprocess.PIPE, check=True,
    )  # fmt: skip
    report = json.loads(out.read_text())
    bound = Bound(ID, began, datetime.now(UTC), logs=(done.stderr,))

    assert said(report, bound) == []
    took = ends(report["rows"][-2]) - report["rows"][0]["started_s"]
    one_line = replace(bound, logs=(b"kakeya-rows" + done.stderr.rpartition(b"kakeya-rows")[2],))
    assert said(report, one_line) == (["RUN_UNBOUND"] if took > 3 else [])


def test_why_a_row_parts_may_be_looked_into_later():
    report = report_of()
    bound = bound_to(report)
    report["rows"][0]["divergence"] = {"index": 1, "best": [[1, 2.0], [2, 2.0]]}
    assert said(report, bound) == []


ENGINE = ("/usr/bin/python3", "-P", "-m", "engine")
# What the steps ran that wrote the real reports of the tests.
ASKED = {
    "bench": "bench spec --model {M} --max-prompts 3 --max-tokens 40 --block-size 8 --repeats 3 "
    "--drafters dflash,lookup --no-package --out x.json",
    "acceptance": "eval acceptance --prompts code,functions --model {M} --max-prompts 3 --max-tokens 40 --block-size 8",
    "native": "bench native --model {M} --max-prompts 3 --max-tokens=40 --repeats 3",
    "parity": "eval parity --model {M} --max-prompts 3 --block-size 8 --against float32 --half bfloat16",
    "codec_rd": "codec rd --n-vectors 64",
    "verify_l": "bench verify-l --model {M} --lengths 1,2,4,8,16 --contexts 64 --repeats 5",
    "kv_quant": "eval kv-quant --model {M} --max-prompts 3",
    "recall": "eval recall --model {M} --lengths 512,1024 --samples 1 --max-tokens 32",
    "restored": "eval restored-prefill --model {M} --samples 1 --max-tokens 32",
    "restored_sliding": "eval restored-prefill --model {M} --layers auto --lengths 256,512 --depths 0.1,0.4 "
    "--samples 1",
}


def odd_options(name, edit, argv=None):
    made = falsehoods.real(name)
    edit(made)
    return [*unlike(made, [("/bin/true",), (*ENGINE, *(argv or ASKED[name]).split())])]


@pytest.mark.parametrize("name", ASKED)
def test_a_report_of_what_the_job_was_asked_for_is_accepted(name):
    assert odd_options(name, lambda _: None) == []


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("bench", falsehoods.put("config", "max_tokens", to=64)),
        ("bench", falsehoods.without_drafter("lookup")),
        ("bench", falsehoods.put("config", "block", to=4)),
        ("bench", falsehoods.put("config", "package", to=True)),
        ("bench", falsehoods.without_repeat(2)),
        ("native", lambda r: falsehoods.without_prompts(falsehoods.prompt_ids(r)[-1])(r)),
        ("parity", falsehoods.put("config", "max_prompts", to=2)),
        ("parity", falsehoods.put("config", "half", to="float16")),
        ("codec_rd", falsehoods.put("config", "n_vectors", to=4096)),
        ("verify_l", falsehoods.without_length(16)),
        ("kv_quant", falsehoods.put("config", "max_prompts", to=2)),
        ("recall", falsehoods.without_place("length", 512)),
        ("restored", falsehoods.put("config", "samples", to=2)),
        ("restored_sliding", falsehoods.put("config", "layers", to="none")),
    ],
)  # fmt: skip
def test_a_report_of_something_else_than_the_job_was_asked_for_is_not(name, edit):
    (odd,) = odd_options(name, edit)
    assert odd.startswith("--")


def test_more_prompts_than_were_asked_for_show():
    assert odd_options("native", lambda _: None, "bench native --max-prompts 2")
    assert odd_options("native", lambda _: None, "bench spec --max-prompts 2") == []
    assert odd_options("native", lambda r: r.update(config=7), "bench native --max-prompts 2") == []


def test_a_block_of_one_is_compared_as_two():
    edit = falsehoods.put("config", "block_size", to=2)
    assert odd_options("parity", edit, "eval parity --block-size 1") == []


def test_the_options_of_the_job_are_among_what_binds_a_report():
    report = report_of()
    asked = (*ENGINE, "bench", "spec", "--max-tokens", "7")
    assert said(report, bound_to(report, argvs=(asked,))) == ["RUN_UNBOUND"]


def test_the_sets_that_come_with_the_engine_have_as_many_prompts():
    assert {len(known) for known in bundled()["prompts"].values()} == {BUNDLED_SET}


@pytest.mark.parametrize("rows", [None, [], [7]])
def test_what_has_no_rows_is_judged_by_other_rules(rows):
    assert said(report_of() | {"rows": rows}, bound_to(report_of())) == []


def test_engine_and_gate_chain_rows_alike(monkeypatch, capsys):
    run = importlib.import_module("engine.measure.chain")
    monkeypatch.setenv(run.VARIABLE, ID)
    rows = reports.recall()["rows"]
    made = run.Chain()
    for row in rows:
        made.add(row)
    made.tell()
    again = json.loads(json.dumps(rows))
    assert made.digest == [*chain(again)][-1]
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == f"kakeya-rows {len(rows)} {made.digest}"
    assert run.run_id() == ID


@pytest.mark.parametrize("value", ["", "x" * 64, "a" * 63])
def test_an_id_that_is_none_is_not_written(monkeypatch, value, capsys):
    run = importlib.import_module("engine.measure.chain")
    monkeypatch.setenv(run.VARIABLE, value)
    run.tell_all([{"a": 1}])
    assert run.run_id() is None
    assert capsys.readouterr().err == ""


def test_the_id_is_that_of_branch_request_and_claim():
    text = b"kakeya-run\nmac-bridge/job-1\n" + b"c" * 40 + b"\n1\n"
    assert hashlib.sha256(text).hexdigest() == ID
