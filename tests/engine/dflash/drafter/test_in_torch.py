"""The drafter in torch drafts what the one in MLX drafts, and counts what crosses between the libraries."""

import sys

import numpy as np
import pytest

from engine import models
from engine.dflash import load_draft
from engine.dflash.loop import stream_generate
from engine.errors import BadInput
from engine.evals.speculation import bench
from engine.harness.job import run
from engine.harness.prompt_sets import Prompt, Workload
from engine.mx import mx
from tests.engine import folders

pytest.importorskip("torch")
in_torch = pytest.importorskip("engine.dflash.drafter.in_torch")


@pytest.fixture(scope="module", params=["tiny", "tiny-hybrid"])
def pair(request):
    return models.load(request.param)


def both(pair):
    return pair.draft.bind(pair.target), in_torch.TorchDrafter(pair.draft, "cpu").bind(pair.target)


def test_logits_are_those_of_mlx_round_after_round(pair):
    sides = both(pair)
    contexts = [side.make_cache(7) for side in sides]
    rng = np.random.default_rng(0)
    for new, drafts in ((40, 3), (1, 7), (0, 2), (30, 1)):
        taps = mx.array(rng.normal(size=(1, new, pair.draft.config.taps_size)).astype(np.float32))
        made = [
            side.propose(5, taps if new else None, ctx, drafts)
            for side, ctx in zip(sides, contexts, strict=True)
        ]
        assert made[0].tokens.tolist() == made[1].tokens.tolist()
        np.testing.assert_allclose(np.array(made[0].logits), np.array(made[1].logits), atol=2e-3)
    assert contexts[0].offset == contexts[1].offset == 78


def test_a_generation_takes_the_same_rounds(pair):
    ids = pair.tokenizer.encode("def first(items):\n    for")
    hybrid = in_torch.TorchDrafter(pair.draft, "cpu")
    options = {"max_tokens": 24, "adaptive": False, "lookup": False}
    one, other = (
        [(s.tokens, s.accepted) for s in stream_generate(pair.target, draft, None, ids, **options)]
        for draft in (pair.draft, hybrid)
    )
    assert one == other
    rounds = len(other)
    assert 2 * rounds <= hybrid.crossings.count <= 3 * rounds + 2
    assert hybrid.crossings.nbytes > 0


def test_a_device_that_torch_does_not_find_is_refused():
    draft = load_draft(models.load("tiny").parts["draft"].folder)
    with pytest.raises(BadInput, match="torch cannot use cuda:99"):
        in_torch.TorchDrafter(draft, "cuda:99")


def test_reports_count_crossings_of_the_hybrid_alone(tmp_path):
    pair = models.load(folders.write_walker(tmp_path))
    plan = bench.SpeculationPlan(
        ("torch", "dflash"), max_tokens=6, repeats=1, package=False, torch_device="cpu"
    )
    workload = Workload("prompts", [Prompt("one", "def f(a):")], "code", "the test")
    made, _ = run(bench.speculation(pair, [workload], plan)[0])

    arms = {arm["name"]: arm for arm in made["arms"]}
    assert arms["torch/auto"]["options"]["runtime"] == "torch cpu"
    counted = {row["arm"]: row["counters"] for row in made["rows"] if "counters" in row}
    assert counted["torch/auto"]["crossings"] >= 2 * counted["torch/auto"]["rounds_dflash"]
    assert "crossings" not in counted["dflash/auto"]


def test_without_torch_the_hybrid_is_left_out_and_the_report_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "engine.dflash.drafter.in_torch")
    pair = models.load(folders.write_walker(tmp_path))

    found, left_out = bench.arms_of(pair, bench.SpeculationPlan(("torch", "dflash"), package=False))

    assert "pip install torch" in left_out["torch/auto"]
    assert [arm.name for arm in found if arm.role == "candidate"] == ["dflash/auto"]
