"""Reports are bound to their run: by its id, its times, its machine, and the digests of rows in its log."""

from __future__ import annotations

import copy
import hashlib
import importlib
import json
from datetime import UTC, datetime, timedelta

import pytest

from bridge import evidence
from bridge.evidence.asked import BUNDLED_SET, unlike
from bridge.evidence.bound import Bound, chain, is_told, run_id, unbound
from bridge.evidence.laws.identity import bundled
from tests.bridge.evidence import falsehoods, mutations, reports

ID = run_id("mac-bridge/job-1", "c" * 40, 1)
BEGAN = datetime(2026, 1, 31, 11, 50, tzinfo=UTC)
ENDED = BEGAN + timedelta(minutes=15)


def report_of(run=ID):
    return mutations.whole("kakeya.spec-bench") | {"run": {"id": run}}


def log_of(*made):
    lines = [b"measuring\n"]
    for one in made:
        digests = [*chain(one["rows"])]
        lines += [
            f"kakeya-rows {n} {digests[n - 1]}\n".encode() for n in (1, len(digests) // 2, len(digests))
        ]
    return b"".join(lines)


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
