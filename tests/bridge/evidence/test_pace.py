"""Reports of restored prefill that are timed: the laws that hold for their times."""

from __future__ import annotations

import copy
import importlib
import random
from types import SimpleNamespace

import pytest

from bridge.evidence import check_report
from bridge.evidence.kinds import MODELS
from bridge.evidence.laws.counted import RESTORED, _odd_shape
from bridge.evidence.laws.meaning import GENERIC
from bridge.evidence.laws.time import no_copies
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rows import Decode, Layer
from bridge.evidence.rules import RULES
from bridge.evidence.stats import APART, TICK, deviations_above
from tests.bridge.evidence import falsehoods, reports
from tests.bridge.evidence.lies import slower
from tests.bridge.evidence.lies_of_laws import predicting, recomputing


def recomputed(times: float = 1.0, **about: str):
    """An honest report of restored prefill with a recomputation, a token of which takes ``times`` prefills."""
    made = copy.deepcopy(reports.restored_prefill())
    recomputing(times, **about)(made)
    return reports.timed(made)


def codes(made) -> set[str]:
    return {violation.code for violation in check_report(made)}


def test_an_honest_recomputation_is_believed():
    assert codes(recomputed()) == set()


def test_a_recomputation_that_nobody_configured():
    made = recomputed()
    made["config"]["recompute"] = False
    assert "NOT_COVERED" in codes(made)


def test_a_recomputation_that_did_not_run():
    made = reports.restored_prefill()
    made["config"]["recompute"] = True
    assert "NOT_COVERED" in codes(made)


@pytest.mark.parametrize("about", [{"role": "candidate"}, {"cache": "affine@4g64"}])
def test_a_recomputation_that_is_something_else(about):
    assert "NOT_COVERED" in codes(recomputed(**about))


@pytest.mark.parametrize("times", [0.1, 9.0])
def test_a_recomputation_that_was_not_one(times):
    assert "TIMES_UNCLEAR" in codes(recomputed(times))


def test_a_fixed_length_that_was_not_kept():
    made = reports.restored_prefill()
    made["config"]["fixed_length"] = True
    assert "TEXT_CONTRADICTS" in codes(made)


def test_other_layers_than_the_configured_ones():
    made = reports.restored_prefill()
    made["config"]["layers"] = "full"
    made["arms"][1]["options"] = {"layers": "sliding"}
    assert "NOT_COVERED" in codes(made)


@pytest.mark.parametrize(
    ("place", "sliding", "odd"),
    [(0, True, False), (0, False, True), (1, True, True), (1, False, False)],
    ids=["sliding", "sliding, not configured", "full, sliding configured", "full"],
)
def test_only_layers_of_the_configured_kind_are_restored(place, sliding, odd):
    shape = {"heads": 2, "dim": 64, "windows": [128, 0]}
    layer = Layer.model_validate({"kind": RESTORED, "nbytes": 1, "arrays": []})
    assert bool(_odd_shape(layer, place, shape, quant=False, sliding=sliding)) is odd


def test_a_loop_that_was_held_up_once_is_no_proof():
    """One repeat of a few tokens, as on a busy machine: nothing says which of two loops was held up."""
    made = reports.native()
    slow = [row for row in made["rows"] if row["arm"] == "one-pass"]
    for row in slow:
        slower(4)(row)
    assert "CLOCK_IMPLAUSIBLE" in codes(made)

    made["rows"] = [row for row in made["rows"] if row["repeat"] == made["rows"][0]["repeat"]]
    assert "CLOCK_IMPLAUSIBLE" not in codes(made)


def test_honest_predictions_are_believed():
    made = reports.restored_prefill()
    predicting()(made)
    assert codes(made) == set()


@pytest.mark.parametrize(
    ("interval", "odd"),
    [([0.01, 0.02], set()), (None, set()), ([0.01, 0.012], {"CLAIM_NOT_FROM_ROWS"})],
    ids=["told", "older", "narrower"],
)
def test_a_divergence_comes_with_its_least_and_greatest_prompt(interval, odd):
    made = reports.restored_prefill()
    worst = made["prompts"][0]["id"]

    def edit(report):
        for row in report["rows"]:
            if (row["arm"], row["prompt"]) == ("e8", worst):
                row["prediction"]["sum_kl"] = 0.02 * row["prediction"]["n_positions"]

    predicting(edit)(made)
    oracle = next(arm["oracle"] for arm in made["arms"] if arm["name"] == "e8")
    claim = {"name": "prompt_kl", "arm": "e8", "against": oracle, "value": 0.0, "definition": GENERIC}
    made["claims"].append(claim)
    reports.restate(made)
    told = claim.pop("interval")
    assert told == pytest.approx([0.01, 0.02])
    claim |= {"interval": interval} if interval else {}
    assert codes(made) == odd


def test_the_engine_claims_the_interval_that_the_gate_computes():
    pytest.importorskip("mlx")
    claims_of = importlib.import_module("engine.evals.predictions").prediction_claims
    made = reports.restored_prefill()
    dice = random.Random(3)

    def edit(report):
        moved = {prompt["id"]: dice.uniform(0.001, 0.1) for prompt in report["prompts"]}
        for row in report["rows"]:
            if row["arm"] == "e8":
                row["prediction"]["sum_kl"] = moved[row["prompt"]] * row["prediction"]["n_positions"]

    predicting(edit, repeats=2)(made)
    found = claims_of(made["rows"], made["arms"], {})
    assert found
    assert all(len(claim["interval"]) == 2 for claim in found)
    made["claims"] += found
    assert codes(made) == set()


@pytest.mark.parametrize("copied", [0, 12], ids=["by chance", "copied"])
def test_short_times_share_a_tick_of_the_clock_by_chance(copied):
    """About a hundred times of a millisecond each: on Apple's counter, most runs hold two of the same."""
    draw, found, row = random.Random(7), 0, Decode.model_validate(reports.spec_bench()["rows"][0])
    for _ in range(200):
        prefills, decodings = (
            [ticks * TICK for ticks in draw.choices(range(24_000, 27_000), k=120)] for _ in "pd"
        )
        decodings[:copied] = [decodings[0]] * copied
        times = [{"prefill_s": one, "decode_s": two} for one, two in zip(prefills, decodings, strict=True)]
        found += any(no_copies(SimpleNamespace(rows=[row.model_copy(update=both) for both in times])))
    assert found == (200 if copied else 0)


def busy(made, seed, most=3.0):
    """Let other work hold up each row by itself, or as many rows in a row as it takes."""
    draw, factor = random.Random(seed), 1.0
    for row in made["rows"]:
        factor = draw.uniform(1, most) if seed % 2 or draw.random() < 0.4 else factor
        for name in ("prefill_s", "decode_s", "seconds"):
            if name in row:
                row[name] *= factor * draw.uniform(1, 1.02)
        if "e2e_s" in row:
            row["e2e_s"] = row["prefill_s"] + row["decode_s"]
    return made


def few(name, repeats, prompts=9):
    made = falsehoods.real(name)
    known = [prompt["id"] for prompt in made.get("prompts", [])][:prompts]
    made["rows"] = [
        row for row in made["rows"] if row["repeat"] <= repeats and row.get("prompt") in (None, *known)
    ]
    if known:
        made["prompts"] = [prompt for prompt in made["prompts"] if prompt["id"] in known]
    return made


RULES_OF_PACE = [
    rule for kind in ("kakeya.spec-bench", "kakeya.verify-l") for rule in RULES[kind]
    if rule.code in ("SLOW_ORACLE", "SPEEDUP_IMPOSSIBLE")
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "repeats", "prompts"), [("bench", 1, 9), ("bench", 2, 9), ("bench", 3, 1), ("verify_l", 3, 0)]
)
def test_few_repeats_on_a_busy_machine_leave_times_unclear(name, repeats, prompts):
    """What a machine did besides may separate few repeats, so it must never look like a slowed baseline."""
    unclear = 0
    for seed in range(20):
        made = busy(few(name, repeats, prompts), seed)
        index = ReportIndex(MODELS[made["kind"]].model_validate(made))
        rules = [rule for rule in RULES_OF_PACE if rule in RULES[made["kind"]]]
        assert [said for rule in rules for said in rule(index)] == []
        unclear += any(any(rule(index)) for rule in RULES[made["kind"]] if rule.code == "TIMES_UNCLEAR")
    assert unclear


def test_values_that_exceed_others_by_more_than_chance():
    three = ([4.0, 5.0, 6.0], [1.0, 2.0, 3.0])
    assert deviations_above([three]) == pytest.approx(1.964, abs=1e-3)
    assert deviations_above([three] * 3) > APART > deviations_above([three] * 2)
    assert deviations_above([three, three[::-1]]) == deviations_above([]) == 0
