"""What has to hold of the models that a host names: the target and drafter of its policy, or the bundled pair.

The preset `integration-tests` runs this folder on a runner, whose models no other test sees.
"""

import os

import pytest

pytest.importorskip("mlx", reason="the engine is not installed")

from engine import models
from engine.evals import needles
from engine.evals.recall import RecallPlan, arms_of, row
from engine.evals.speculation import bench as spec
from engine.harness import prompt_sets
from engine.harness.arm import Turn, interleave

pytestmark = pytest.mark.integration

TOKENS = 24


@pytest.fixture(scope="module")
def pair():
    target = os.environ.get("KAKEYA_MAC_VERIFIER_PATH", "tiny")
    if target in models.registry.BUNDLED and not models.registry.is_bundled_here(target):
        pytest.skip("no model is named, and this checkout holds no weights")
    return models.load(target, os.environ.get("KAKEYA_MAC_DRAFTER_ID"))


@pytest.mark.long
def test_drafts_are_accepted_and_change_nothing(pair):
    """Ours repeats mlx-lm's greedy tokens, or parts from them at a near tie."""
    asked = prompt_sets.encode(prompt_sets.read(most=1), pair.tokenizer, chat=False)
    plan = spec.SpeculationPlan(drafters=("dflash",), package=False, max_tokens=TOKENS, repeats=1)
    found, left_out = spec.arms_of(pair, plan)
    assert not left_out
    ends = set(pair.tokenizer.eos_token_ids)
    rows = [
        {"arm": turn.arm.name, "prompt": turn.prompt.id, "repeat": turn.repeat} | spec.row(turn, TOKENS, ends)
        for turn in interleave(found, asked, range(plan.repeats + 1))
    ]
    spec.explain(rows, found, asked, pair)
    assert not spec.faults(rows, found)
    drafted = [row for row in rows if row["arm"] == "dflash/auto"]
    assert all(sum(row["accepted"]) > 0 for row in drafted)


@pytest.mark.long
def test_a_packed_cache_serves_the_model(pair):
    """The packed cache holds every position, in less than half of the raw one's bytes."""
    (needle,) = needles.make(pair.tokenizer, [512], [0.5], 1, 0, chat=False)
    plan = RecallPlan(("e8v@4.25",), max_tokens=4)
    rows = {}
    for arm in arms_of(pair.target, plan)[0][:2]:
        rows[arm.name] = row(Turn(arm, needle), pair, plan.max_tokens)
    packed = rows["e8v@4.25"]
    assert packed["counters"]["injected_positions"] > 0
    assert packed["counters"]["codec_failures"] == 0
    assert packed["memory"]["cache_bytes"] < rows["raw"]["memory"]["cache_bytes"] / 2
