"""The model of a run: laws that are told whole, digests that are the engine's, and lies about every field."""

from __future__ import annotations

import importlib
import json
import time
from pathlib import Path

import pytest

from bridge import evidence
from bridge.evidence import check_report
from bridge.evidence.laws import BY_GROUP, LAWS
from bridge.evidence.laws.identity import bundled
from bridge.evidence.laws.meaning import DEFINITIONS
from bridge.evidence.laws.unchecked import UNCHECKED, reason_for
from bridge.evidence.names import KINDS, LEGACY, OF_KIND
from bridge.evidence.stats import loops
from bridge.evidence.table import TABLE
from tests.bridge.evidence import mutations, reports

# Of each kind, every so manieth lie is told here; `make fuzz` tells all.
EVERY = 29


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_configured_report_is_believed(kind):
    assert check_report(mutations.whole(kind)) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_a_lie_about_any_field_is_caught_or_listed(kind):
    tally = mutations.tell(mutations.whole(kind), every=EVERY, start=sum(map(ord, kind)))
    assert tally.rejected
    untold = {place: lies for place, lies in tally.passed.items() if reason_for(kind, place) is None}
    assert untold == {}


def test_what_nothing_checks_is_told_with_its_reason():
    assert all(one.reason and not one.reason.endswith(".") for one in UNCHECKED)
    assert reason_for("kakeya.spec-bench", "config.seed")
    assert reason_for("kakeya.spec-bench", "claims[].value") is None


def test_judging_that_takes_too_long_has_a_verdict_of_its_own(monkeypatch):
    monkeypatch.setattr(evidence, "MAX_SECONDS", 0.0)
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
