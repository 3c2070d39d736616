"""Training a drafter in torch: loss and gradients are MLX's, it learns, it resumes, the drafter gets it."""

from dataclasses import replace

import numpy as np
import pytest

from engine import models
from engine.errors import BadInput
from engine.mx import mx, tree
from engine.train.drafter import init
from engine.train.drafter import recipe as draft
from engine.train.drafter.learner_mlx import MlxLearner
from engine.train.run import Pool, Trainer

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
draft_torch = pytest.importorskip("engine.train.drafter.learner_torch")
with_torch = pytest.importorskip("engine.train.with_torch")

ROW = 48
PLAN = draft.DrafterPlan(steps=6, rows=2, anchors=8, block=4, pool=2, uses=2, warm_up=2)
SLIDING = {"layer_types": ("sliding_attention", "full_attention"), "sliding_window": 9}


@pytest.fixture(scope="module", params=["tiny", "tiny-hybrid"])
def pair(request):
    return models.load(request.param, draft=False)


def begun(pair, **changes):
    part = pair.parts["target"]
    config = init.draft_config(part.config, 3, block=4)
    return init.drafter(replace(config, **changes), pair.target)


def torch_learner(model, pair):
    with_torch.use_threads(1)
    return draft_torch.TorchLearner(model, pair.parts["target"].folder, PLAN, dtype=torch.float32)


def trainer(learner, folder):
    return Trainer(learner, Pool(learner.read, source, PLAN), folder, PLAN)


def source(rng, count):
    starts = rng.integers(100, 1000, (count, 1))
    return ((starts + np.arange(ROW) % 12) % 2048).astype(np.int32)


@pytest.mark.parametrize("changes", [{}, SLIDING, {"final_logit_softcapping": 5.0, "output_multiplier": 0.5}])
def test_loss_and_gradients_are_those_of_mlx(pair, changes):
    model = begun(pair, **changes)
    ours, theirs = MlxLearner(model, pair.target, PLAN), torch_learner(model, pair)
    rows = source(np.random.default_rng(0), 2)
    anchors = np.sort(np.random.default_rng(1).choice(np.arange(1, ROW - 4), (2, 8), replace=False), axis=1)

    (loss, tau), gradients = ours.value_and_grad(ours.read(rows), mx.array(anchors.astype(np.int32)))
    found, found_tau = theirs.loss(theirs.read(rows), torch.from_numpy(anchors))
    found.backward()

    assert float(found.detach()) == pytest.approx(
        float(loss), abs=2e-3
    )  # MLX keeps the taps in half precision
    assert float(found_tau) == pytest.approx(float(tau))
    for name, expected in tree.tree_flatten(gradients):
        found = theirs.weights[name].grad.numpy()
        assert np.abs(found - np.asarray(expected)).max() < 5e-3 * np.abs(found).max(), name


@pytest.mark.parametrize("stride", [1, 16])
def test_a_shortlist_of_all_tokens_changes_nothing_and_another_compares_with_fewer(pair, stride, monkeypatch):
    monkeypatch.setattr(draft_torch, "STRIDE", stride)
    anchors = torch.from_numpy(PLAN.anchor_positions(0, ROW).astype(np.int64))
    model, folder = begun(pair), pair.parts["target"].folder
    whole = torch_learner(model, pair)
    short = draft_torch.TorchLearner(model, folder, replace(PLAN, shortlist=True), dtype=torch.float32)
    batch = whole.read(source(np.random.default_rng(0), 2))
    loss, tau = whole.loss(batch, anchors)
    short_loss, short_tau = short.loss(batch, anchors)
    loss, short_loss = float(loss.detach()), float(short_loss.detach())
    if stride == 1:
        assert short_loss == pytest.approx(loss, rel=1e-5)
        assert float(short_tau) == float(tau)
    else:
        assert short_loss < loss
        assert short_tau >= tau


def test_answers_end_where_the_model_ends_them():
    pair = models.load("tiny-chat", draft=False)
    tokenizer = pair.tokenizer
    prompts = [
        list(tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True))
        for text in ("Hello.", "What is your name?", "Count to three.", "Good morning.", "Hi")
    ]
    answers = draft_torch.writer(pair.parts["target"].folder, 60)(prompts)
    ended = [answer for answer in answers if len(answer) < 60]
    assert ended
    assert all(answer[-1] in tokenizer.eos_token_ids for answer in ended)
    assert not any(tokenizer.eos_token_ids & set(answer[:-1]) for answer in answers)


def test_it_learns_and_an_interrupted_run_ends_the_same(tmp_path):
    pair = models.load("tiny", draft=False)
    lines = []
    model = begun(pair)
    before = np.array(model.fc.weight)
    trainer(torch_learner(model, pair), tmp_path / "straight").run(lines.append, every=3)
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert not np.array_equal(np.array(model.fc.weight), before)

    def stop(line):
        if line["step"] == 3:  # in the middle of a pool
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer(torch_learner(begun(pair), pair), tmp_path / "broken").run(stop, every=3)
    other = begun(pair)
    second = trainer(torch_learner(other, pair), tmp_path / "broken")
    assert second.step == 3
    second.run(lambda _: None)
    expected = dict(tree.tree_flatten(model.parameters()))
    for name, value in tree.tree_flatten(other.parameters()):
        np.testing.assert_array_equal(np.asarray(value), np.asarray(expected[name]))


def test_a_run_begun_with_the_other_library_is_refused(pair, tmp_path):
    trainer(torch_learner(begun(pair), pair), tmp_path).save()
    with pytest.raises(BadInput, match="begun with another"):
        trainer(MlxLearner(begun(pair), pair.target, PLAN), tmp_path)
