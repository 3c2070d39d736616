"""Training a drafter: its many-blocks forward is the decoder's, it learns, it resumes, others read it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from engine import cli, models
from engine.dflash.drafter.model import DFlashDrafter
from engine.dflash.drafter.weights import save_draft
from engine.dflash.target.embeddings import TargetEmbeddings
from engine.dflash.target.rotary import Rotations, rotate
from engine.dflash.target.taps import Tapped
from engine.errors import BadInput
from engine.mx import mx, tree
from engine.train.data import generate, text
from engine.train.drafter import init
from engine.train.drafter import recipe as draft
from engine.train.drafter.blocks import Batch, hidden_states
from engine.train.drafter.learner_mlx import MlxLearner, read
from engine.train.run import Pool, Trainer
from tests.engine import drafts, folders
from tests.engine import small_models as small

ROW = 40
MIXED = {"layer_types": ("sliding_attention", "full_attention"), "sliding_window": 8}


def target_config(**changes):
    return {
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "vocab_size": 128,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 512,
        "rope_theta": 10_000.0,
        **changes,
    }


@pytest.fixture(scope="module")
def target():
    return small.gemma3()


def drafter(target, **changes):
    config = init.draft_config(target_config(), 3, taps=(0, 2), block=4)
    if changes:
        config = replace(config, **changes)
    return init.drafter(config, target)


def source(rng, count):
    starts = rng.integers(0, 128, (count, 1))
    return ((starts + np.arange(ROW)) % 128).astype(np.int32)


def trainer(model, target, folder, plan):
    learner = MlxLearner(model, target, plan)
    return Trainer(learner, Pool(learner.read, source, plan), folder, plan)


@pytest.mark.parametrize("anchor", [1, 7, 30])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"is_causal": True},
        {**MIXED, "is_causal": False},
        MIXED,  # as published: sliding layers are causal
    ],
    ids=["full", "causal", "sliding", "sliding and causal"],
)
def test_a_training_block_is_what_decoding_computes(target, anchor, changes):
    model = drafter(target, **changes)
    tokens = mx.array(np.random.default_rng(1).integers(0, 128, (1, ROW)).astype(np.int32))
    _, taps = Tapped(target, model.config.target_layer_ids).forward(tokens, None)
    bound = model.bind(target)
    context = bound.make_cache()
    expected = bound.propose(int(tokens[0, anchor]), taps[:, :anchor], context, 3).logits[0]

    embeddings = TargetEmbeddings.of(target)
    batch = Batch(tokens, taps, mx.zeros((1, ROW, 1)), mx.zeros((1, ROW, 1)))
    states = hidden_states(
        model,
        embeddings.embed,
        batch,
        mx.array([[anchor, 20]]),
        4,
        Rotations.of(model.config),
    )
    found = embeddings.head(states[0, 0])
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=2e-5)


def test_rotation_is_that_of_mlx():
    x = mx.random.normal((2, 3, 5, 64), key=mx.random.key(0))
    expected = mx.fast.rope(x, 64, traditional=False, base=1e4, scale=1.0, offset=11)
    turns = Rotations.of(init.draft_config(target_config(), 3)).at(11, 5)
    np.testing.assert_allclose(np.asarray(rotate(x, *turns)), np.asarray(expected), atol=1e-4)


def test_it_learns_and_an_interrupted_run_ends_the_same(target, tmp_path):
    plan = draft.DrafterPlan(steps=8, rows=1, anchors=12, block=4, pool=2, uses=2, warm_up=2)
    lines = []
    straight = trainer(drafter(target), target, tmp_path / "straight", plan)
    straight.run(lines.append, every=2)
    assert lines[-1]["loss"] < lines[0]["loss"]

    def stop(line):
        if line["step"] == 6:  # in the middle of a pool
            raise KeyboardInterrupt

    first = trainer(drafter(target), target, tmp_path / "broken", plan)
    with pytest.raises(KeyboardInterrupt):
        first.run(stop, every=2)
    second = trainer(drafter(target), target, tmp_path / "broken", plan)
    assert second.step == 6
    second.run(lambda _: None)
    expected = dict(tree.tree_flatten(straight.learner.draft.parameters()))
    for name, value in tree.tree_flatten(second.learner.draft.parameters()):
        np.testing.assert_array_equal(np.asarray(value), np.asarray(expected[name]))


def test_another_plan_in_the_same_folder_is_refused(target, tmp_path):
    trainer(drafter(target), target, tmp_path, draft.DrafterPlan(steps=8)).save()
    with pytest.raises(BadInput, match="another plan"):
        trainer(drafter(target), target, tmp_path, draft.DrafterPlan(steps=9))


def test_the_targets_best_successors_are_read(target):
    rows = source(np.random.default_rng(0), 2)
    batch = read(Tapped(target, (0, 2)), rows)
    logits = target(mx.array(rows))
    assert np.array_equal(np.asarray(batch.top_ids[..., 0]), np.asarray(mx.argmax(logits, axis=-1)))
    np.testing.assert_allclose(np.asarray(batch.top_probs.sum(-1)), 1, atol=1e-5)
    assert np.all(np.diff(np.asarray(batch.top_probs), axis=-1) <= 0)


def test_greedy_rows_are_what_the_target_writes(target):
    openings = source(np.random.default_rng(0), 2)[:, :8]
    rows = generate.rows(target, openings, length=16)
    logits = target(mx.array(rows[:1].astype(np.int32)))
    assert np.array_equal(np.asarray(mx.argmax(logits, axis=-1))[0, 7:-1], rows[0, 8:])
    assert np.array_equal(rows[:, :8], openings)


def test_text_and_written_rows_are_mixed():
    ids = np.arange(1000, dtype=np.uint32)
    written = np.full((3, 32), 7, np.uint32)
    rows = text.source(ids, written, share=0.5, length=32)
    drawn = [rows(np.random.default_rng(i), 2) for i in range(60)]
    written = [bool((row == 7).all()) for batch in drawn for row in batch]
    assert 20 < sum(written) < 80
    assert {batch.shape for batch in drawn} == {(2, 32), (2, 76)}
    with pytest.raises(BadInput, match="fewer than a row"):
        text.source(ids[:10], written, share=0.5, length=32)


def test_taps_are_spread_over_the_target():
    for layers, taps in ((8, (1, 4, 6)), (30, (1, 14, 28)), (4, (1, 2))):
        config = init.draft_config(target_config(num_hidden_layers=layers), 3)
        assert config.target_layer_ids == taps


def test_a_drafter_is_trained_further_from_its_folder(target, tmp_path):
    save_draft(drafter(target), tmp_path, "float16")
    found = init.from_folder(tmp_path, target)
    assert found.fc.weight.dtype == mx.float32
    plan = draft.DrafterPlan(steps=1, rows=1, anchors=4, block=4, pool=1)
    trainer(found, target, tmp_path / "run", plan).run(lambda _: None)


def test_more_blocks_than_a_row_has_room_for_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "drafter", "--target", "tiny", "--out", str(tmp_path / "out"), "--length", "64"])
    assert ended.value.code == 2
    assert "a row of 64 tokens has room for 55 blocks of 8" in capsys.readouterr().err


def test_a_library_that_is_missing_is_noticed_before_any_work(python, tmp_path):
    pair = folders.write_pair(tmp_path / "pair")
    out = tmp_path / "out"
    argv = ["train", "drafter", "--target", str(pair), "--out", str(out), "--with", "torch"]
    done = python(
        "-c", f"import sys; sys.modules['torch'] = None; from engine.cli import main; main({argv!r})"
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: training this needs torch")
    assert not out.exists()


def test_a_target_without_attention_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"cannot be made for a mamba: .* has no num_attention_heads"):
        init.draft_config(
            {"model_type": "mamba", "num_hidden_layers": 2, "hidden_size": 8, "vocab_size": 9}, 3
        )


def test_a_drafter_is_bound_to_the_target_that_it_was_trained_for(tmp_path, capsys):
    """Another architecture of the same shape is refused, and so is going on from such a drafter."""
    text = tmp_path / "text.txt"
    text.write_text("def f(x):\n    return x\n" * 200)
    pair = folders.write_pair(tmp_path / "pair")
    other = folders.write_target(tmp_path / "other", folders.GEMMA3)
    options = ["--text", text, "--steps", 1, "--written", 4, "--length", 64, "--anchors", 8, "--rows", 1]

    def train(target, out, *more):
        argv = ["train", "drafter", "--target", target, "--out", tmp_path / out, *options, *more]
        with pytest.raises(SystemExit) as ended:
            cli.main([str(word) for word in argv])
        return ended.value.code

    assert train(pair, "mine") == 0
    made = tmp_path / "mine" / "draft"
    noted = json.loads((made / "config.json").read_text())["made_for"]
    assert noted["model_type"] == "qwen3"
    assert noted["vocabulary"].startswith("sha256:")
    assert models.load(pair, made).draft.config.made_for == noted
    with pytest.raises(BadInput, match="for a target of architecture qwen3, and this one is gemma3_text"):
        models.load(other, made)
    capsys.readouterr()
    assert train(other, "theirs", "--start", made) == 2
    assert "for a target of architecture qwen3" in capsys.readouterr().err


def test_what_cannot_be_trained_further_is_refused(target, tmp_path):
    config = drafter(target).config
    save_draft(DFlashDrafter(replace(config, **drafts.DFLASH2)), tmp_path)
    with pytest.raises(BadInput, match="is a DFlash2 drafter"):
        init.from_folder(tmp_path, target)
    save_draft(DFlashDrafter(replace(config, num_target_layers=9)), tmp_path)
    with pytest.raises(BadInput, match="for another target"):
        init.from_folder(tmp_path, target)
