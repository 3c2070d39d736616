"""The model of a run: laws that are told whole, digests that are the engine's, and lies about every field."""

from __future__ import annotations

import importlib
import json
import time
from pathlib import Path

import pytest

from benchmarks import judging
from bridge import evidence, limits
from bridge.evidence import check_report
from bridge.evidence.bundled import bundled
from bridge.evidence.laws import BY_GROUP, LAWS
from bridge.evidence.laws.meaning import DEFINITIONS
from bridge.evidence.names import KINDS, LEGACY, OF_KIND
from bridge.evidence.stats import loops
from bridge.evidence.table import TABLE
from tests.bridge.evidence import mutations, reports, tell, whole

# Of each report, every so manieth lie is told here; `make fuzz` tells all. Real reports take longer to judge.
EVERY, EVERY_OF_REAL = 29, 97
# These are judged so soon that all lies about them are told here.
SOON = ("kakeya.codec-rd", "kakeya.verify-l", "kakeya.serve-conformance")


def test_each_law_has_a_name_a_code_and_kinds():
    assert len({one.name for one in LAWS}) == len(LAWS) >= 50
    assert {one.code for one in LAWS} <= set(TABLE)
    assert {kind for one in LAWS for kind in one.kinds} == set(KINDS)
    assert all(one.fields and one.statement[0].islower() and not one.statement.endswith(".") for one in LAWS)
    assert sum(map(len, BY_GROUP.values())) == len(LAWS)


def test_every_claim_has_a_definition():
    assert {name for names in OF_KIND.values() for name in names} == set(DEFINITIONS)


def test_the_definitions_are_those_that_the_engine_writes():
    names = ("engine.evals.speculation.claims", "engine.evals.verify_cost", "engine.evals.quant_claims")
    written = [importlib.import_module(name).DEFINITIONS for name in names]
    claims = importlib.import_module("engine.evals.claims")
    written.append({
        "recall": claims.RECALL, "recall_delta": claims.DELTA, "identical_outputs": claims.IDENTICAL,
        "cache_bytes": claims.BYTES, "agreement": importlib.import_module("engine.evals.parity").AGREEMENT,
        "prompt_kl": importlib.import_module("engine.evals.predictions").PREDICTION,
        "prompt_kl_ratio": importlib.import_module("engine.evals.predictions").RATIO,
    })  # fmt: skip
    for texts in written:
        for name, text in texts.items():
            assert text in DEFINITIONS[name]


def test_the_digests_of_what_is_bundled_are_the_engines(monkeypatch):
    pytest.importorskip("mlx")
    files = importlib.import_module("engine.checkpoints.digests")
    prompts = importlib.import_module("engine.measure.prompts")
    folder = importlib.import_module("engine.models").__path__[0]
    for name, roles in bundled()["models"].items():
        for role, digests in roles.items():
            place = {"reconstruction": "restore"}.get(role, role)
            path = Path(folder) / "data" / name / place
            found = files.model(role, name, path, "float32")
            told = {field: value for field, value in digests.items() if field not in ("facts", "cache")}
            assert told == {field: found[field] for field in told}
    assert set(bundled()["prompts"]) == set(prompts.BUNDLED)


def test_the_gate_draws_needles_as_the_engine_does():
    theirs = importlib.import_module("engine.evals.needles")
    ours = importlib.import_module("bridge.evidence.laws.needles")
    for name in ("PREFIXES", "NOTE", "NEEDLE", "QUESTION", "CHAT_QUESTION"):
        assert getattr(ours, name) == getattr(theirs, name)


@pytest.mark.parametrize("name", whole.HONEST)
def test_a_configured_report_is_believed(name):
    assert check_report(whole.HONEST[name]()) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", whole.HONEST)
def test_a_lie_about_any_field_is_caught_or_listed(name):
    synthetic = f"kakeya.{name}" in reports.HONEST or name in reports.HONEST
    tally = tell.tell(
        whole.HONEST[name](), every=EVERY if synthetic else EVERY_OF_REAL, start=sum(map(ord, name))
    )
    assert tally.rejected
    assert tally.unlisted == {}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", SOON)
def test_the_table_lists_nothing_of_a_kind_that_no_lie_needs(kind):
    made = [report for report in (make() for make in whole.HONEST.values()) if report["kind"] == kind]
    tallies = [tell.tell(report) for report in made]
    assert [tally.unlisted for tally in tallies] == [{}] * len(tallies)
    assert {need for need in tell.table() if need[1] == kind} <= set().union(*(one.needed for one in tallies))


def test_each_field_of_a_law_is_in_a_report_about_which_lies_are_told():
    held: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for make in whole.HONEST.values():
        report = make()
        held[report["kind"]] |= fields_of(report)
    missing = {
        (one.name, field)
        for one in LAWS
        for field in one.fields
        if not any(field in held[kind] for kind in one.kinds)
    }
    assert missing == {("predictions_of_restored_prompts", "rows.prediction")}  # it must not be there


def fields_of(report):
    """The fields of a report as laws name them: without what the report itself makes up, and without `[]`."""
    found = {"claims", *(f"claims.{name}" for claim in report.get("claims", []) for name in claim)}
    for place in mutations.places(report):
        first, *rest = place.replace("[]", "").split(".")
        found |= {".".join((first, *rest)), ".".join((first, *rest[1:])), ".".join(rest[1:])}
    return found


def test_judging_that_takes_too_long_has_a_verdict_of_its_own(monkeypatch):
    monkeypatch.setattr(limits, "JUDGE_S", -1.0)
    gate = evidence.check_reports({"a": reports.spec_bench()})
    assert (gate.verdict, {one.code for one in gate.violations}) == ("INCOMPLETE", {"JUDGED_TOO_LONG"})


def test_a_flood_does_not_hide_what_decides():
    report = reports.spec_bench()
    for row in report["rows"]:
        row["memory"]["layers"][0]["kind"] = "magic"
    report["rows"] = [
        row | {"prompt": f"{row['prompt']}", "prefill_s": row["prefill_s"] * (9 if row["repeat"] == 1 else 1)}
        for row in report["rows"]
    ]
    codes = [one.code for one in check_report(report)]
    assert "MEANING_UNKNOWN" in codes


def large(kind):
    """A report of two megabytes."""
    made = reports.HONEST[kind]()
    times = 2_000_000 // len(json.dumps(made)) + 1
    one = made["prompts"]
    made["prompts"] = [
        p | {"id": f"{p['id']}-{i}", "text": f"{p['text']} {i}"} for i in range(times) for p in one
    ]
    made["rows"] = [row | {"prompt": f"{row['prompt']}-{i}"} for i in range(times) for row in made["rows"]]
    made["claims"] = (made["claims"] * 200)[:200]
    return json.dumps(made).encode()


@pytest.mark.parametrize("kind", ["kakeya.spec-bench", "kakeya.recall", "kakeya.kv-quant"])
def test_two_megabytes_are_judged_soon(kind):
    data = large(kind)
    began = time.process_time()
    assert evidence.judge({"a.json": data}).verdict == "REJECTED"
    assert time.process_time() - began < 10  # under 2 s on an idle machine


def soonest(data, verdict):
    """Return the least processor seconds of several judgements: other work on the machine adds to the others."""
    took = []
    for _ in range(5):
        began = time.process_time()
        assert evidence.judge({"a.json": data}).verdict == verdict
        took.append(time.process_time() - began)
    return min(took)


def test_twice_the_size_is_judged_in_about_twice_the_time():
    """An accepted report of 1.6 MB beside one with half of its prompts."""
    data = (judging.PUBLISHED / "spec-tiny.json").read_bytes()
    whole, size = soonest(data, "ACCEPTED"), len(json.dumps(json.loads(data)))
    assert whole < 2.6 * soonest(judging.grown(json.loads(data), size / 2), "REJECTED")


@pytest.mark.parametrize(
    ("items", "found"),
    [
        ([1] * 12, True), ([1] * 11, False), ([5, *[1, 2] * 12, 6, 7], True), ([], False), ([*range(8)] * 12, True),
        ([*range(9)] * 12, False), ([1, 2] * 11, False), ([*[3, 1, 2] * 12, 9], True),
    ],
)  # fmt: skip
def test_loops_are_found_anywhere(items, found):
    assert loops(items) is found


def test_an_older_report_says_nothing_of_its_run_and_is_read():
    assert "run" not in reports.HONEST["kakeya.native"]()
    assert LEGACY in KINDS
