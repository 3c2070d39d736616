"""Training a restorer: one forward over whole rows is the chunked prefill, it learns, it resumes."""

import json
from dataclasses import replace

import numpy as np
import pytest

from engine import cli, models
from engine.errors import BadInput
from engine.lm import cache as lm_cache
from engine.models.target import load_tokenizer
from engine.mx import mx, tree
from engine.restore import Learned, restored_caches
from engine.restore.learned import blocks, config_for
from engine.restore.restorer import Restorer
from engine.restore.weights import load_restorer, target_digest
from engine.train.data import mixed
from engine.train.restorer import recipe as restorer
from engine.train.restorer.recipe import WholeRows
from engine.train.run import Pool, Trainer
from tests.engine import folders
from tests.engine import small_models as small

SINK, WINDOW, LENGTH = 2, 8, 40


def learner(target, seed=0):
    mx.random.seed(seed)
    return Restorer(config_for(target, "sha256:0", width=16, dilations=(1, 4)))


def plan(**changes):
    return replace(
        restorer.RestorerPlan(
            steps=24, alone=16, rows=2, length=LENGTH, pool=4, uses=2, sink=SINK, window=WINDOW, warm_up=2,
            matrix_rate=0.15, other_rate=0.01,
        ),
        **changes,
    )  # fmt: skip


def trainer(model, target, folder, planned):
    learner = restorer.RestorerLearner(model, target, planned)
    return Trainer(learner, Pool(learner.read, source, planned), folder, planned)


def source(rng, count):
    starts = rng.integers(0, 128, (count, 1))
    return ((starts + 3 * np.arange(LENGTH)) % 128).astype(np.int32)


@pytest.mark.parametrize("make", [small.qwen3, small.gemma3, small.gpt_oss])
def test_one_forward_is_the_chunked_prefill(make):
    """With made-up projections given for all positions, so that what is read from where shows."""
    target, tokens = make(), small.tokens(LENGTH)
    plain = lm_cache.make_prompt_cache(target)
    target(tokens, cache=plain)
    layers = config_for(target, "", width=16, dilations=(1,)).layers
    raw = {}
    for i in layers:
        shapes = [(1, LENGTH, x.shape[1] * x.shape[3]) for x in plain[i].keys_and_values()]
        raw[i] = [mx.random.normal(shape, key=mx.random.key(2 * i + n)) for n, shape in enumerate(shapes)]
    modules = {i: block.self_attn for i, block in zip(layers, blocks(target, layers), strict=True)}

    def given(i):
        return Learned(modules[i], lambda start, stop: tuple(x[:, start:stop] for x in raw[i]))

    chunked = restored_caches(target, SINK, WINDOW, given)
    parts = [target(tokens[:, at : at + WINDOW], cache=chunked) for at in range(0, LENGTH, WINDOW)]

    whole = lm_cache.make_prompt_cache(target)
    for i in layers:
        everything = given(i)
        everything.take(0, *plain[i].keys_and_values())
        whole[i] = WholeRows(everything.give(), SINK, WINDOW)
    assert mx.abs(target(tokens, cache=whole) - mx.concatenate(parts, axis=1)).max().item() < 1e-4


def test_what_was_there_diverges_by_nothing(tmp_path):
    target = small.qwen3()
    run = trainer(learner(target), target, tmp_path, plan()).learner
    rows = run.read(source(np.random.default_rng(0), 2))
    assert abs(run.divergence(rows, rows.exact).item()) < 1e-5
    assert max(x.item() for x in restorer.errors(rows.exact, rows.exact)) == 0
    zeros = [tuple(mx.zeros_like(x) for x in pair) for pair in rows.exact]
    assert run.divergence(rows, zeros).item() > 0.01
    assert all(abs(x.item() - 1) < 1e-6 for x in restorer.errors(zeros, rows.exact))


def test_it_learns_and_an_interrupted_run_ends_the_same(tmp_path):
    target = small.gemma3()
    before = [np.asarray(x) for _, x in tree.tree_flatten(target.parameters())]
    lines = []
    straight = trainer(learner(target), target, tmp_path / "straight", plan())
    straight.run(lines.append, every=4)
    assert [line["divergence"] > 0 for line in lines] == [False] * 4 + [True] * 2
    assert lines[3]["error"] < 0.9 * lines[0]["error"]
    assert lines[5]["divergence"] < lines[4]["divergence"]

    def stop(line):
        if line["step"] == 17:  # within a pool, once both are learnt
            raise KeyboardInterrupt

    first = trainer(learner(target), target, tmp_path / "broken", plan())
    with pytest.raises(KeyboardInterrupt):
        first.run(stop, every=17)
    second = trainer(learner(target, seed=5), target, tmp_path / "broken", plan())
    assert second.step == 17
    second.run(lambda _: None)
    expected = dict(tree.tree_flatten(straight.learner.restorer.parameters()))
    for name, value in tree.tree_flatten(second.learner.restorer.parameters()):
        np.testing.assert_array_equal(np.asarray(value), np.asarray(expected[name]))
    for old, (_, new) in zip(before, tree.tree_flatten(target.parameters()), strict=True):
        np.testing.assert_array_equal(old, np.asarray(new))


def test_plans_that_cannot_be(tmp_path):
    target = small.qwen3()
    trainer(learner(target), target, tmp_path, plan()).save()
    with pytest.raises(BadInput, match="another plan"):
        trainer(learner(target), target, tmp_path, plan(window=4))
    with pytest.raises(BadInput, match="nothing behind a window"):
        trainer(learner(target), target, tmp_path / "other", plan(length=18))
    with pytest.raises(BadInput, match=r"layers is \(0, 1, 2\), and the target's \(0, 1\)"):
        trainer(learner(small.qwen3(layers=3)), target, tmp_path / "third", plan())


def test_rows_mix_text_and_tasks(tmp_path):
    folders.write_target(tmp_path)
    tokenizer = load_tokenizer(tmp_path, {"vocab_size": folders.VOCAB, "eos_token_id": 0})
    text = "".join(f"value_{i} = compute({i})\n" for i in range(400))
    ids = np.asarray(tokenizer.encode(text), np.uint32)
    rows = mixed.source(tokenizer, ids, task_share=0.5, length=300)
    drawn = [rows(np.random.default_rng(i), 2) for i in range(12)]
    texts = [tokenizer.decode(row.tolist()) for batch in drawn for row in batch]
    plain = [one in text for one in texts]
    assert 4 < sum(plain) < 20
    assert {row.shape for row in drawn} == {(2, 300)}
    again = [rows(np.random.default_rng(i), 2) for i in range(12)]
    assert all(np.array_equal(*both) for both in zip(drawn, again, strict=True))
    with pytest.raises(BadInput, match="fewer than a row"):
        mixed.source(tokenizer, ids[:10], task_share=0.5, length=300)


def test_the_command_leaves_a_restorer_that_loads(tmp_path, capsys):
    folders.write_target(tmp_path / "target", {"num_hidden_layers": 2})
    (tmp_path / "a.py").write_text("".join(f"name_{i} = {i}\n" for i in range(300)))
    asked = (
        "--steps",
        "3",
        "--alone",
        "1",
        "--width",
        "16",
        "--length",
        "64",
        "--window",
        "16",
        "--rows",
        "1",
    )
    argv = ["train", "restorer", "--target", str(tmp_path / "target"), "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit) as ended:
        cli.main([*argv, "--text", str(tmp_path / "a.py"), *asked])
    assert ended.value.code in (0, None)
    assert capsys.readouterr().out.strip() == str(tmp_path / "run" / "restore")
    made = load_restorer(tmp_path / "run" / "restore", tmp_path / "target")
    assert made.config.target == target_digest(tmp_path / "target")
    assert made.added[0].weight.dtype == mx.float16
    told = json.loads((tmp_path / "run" / "restore" / "training.json").read_text())
    assert told["plan"]["steps"] == 3


def from_drafter(folder, out, *more):
    """Run ``train restorer --from-drafter`` on five rows of text, and return its exit code."""
    (folder / "a.py").write_text("".join(f"name_{i} = {i}\n" for i in range(300)))
    argv = ["train", "restorer", "--from-drafter", "--target", str(folder), "--out", str(out)]
    asked = ("--steps", "5", "--rows", "1", "--length", "64", "--rank", "16", "--task-share", "0")
    with pytest.raises(SystemExit) as ended:
        cli.main([*argv, "--text", str(folder / "a.py"), *asked, *more])
    return ended.value.code or 0


@pytest.mark.parametrize(("layers", "restored"), [("full", (1, 3)), ("sliding", (0, 2))])
def test_the_command_fits_a_restorer_to_a_drafter(tmp_path, capsys, layers, restored):
    shape = folders.GEMMA3 | {"tie_word_embeddings": True}
    pair = folders.write_pair(tmp_path / "pair", shape)
    assert from_drafter(pair, tmp_path / "run", "--layers", layers) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "run" / "restore")

    loaded = models.load(str(pair), restore=tmp_path / "run" / "restore")
    config = loaded.restorer.config
    assert (config.layers, config.rank) == (restored, 16)
    assert (config.target, config.draft) == tuple(target_digest(pair / role) for role in ("target", "draft"))
    told = json.loads((tmp_path / "run" / "restore" / "training.json").read_text())
    assert (told["plan"]["rows"], told["plan"]["layers"]) == (5, layers)
    assert len(told["held_out_error"]) == 2 * len(restored)
    assert all(error < 1 for error in told["held_out_error"])  # to give zeros would err by 1


def test_sliding_layers_are_restored_from_a_drafter_alone(tmp_path, capsys):
    folders.write_target(tmp_path / "target")
    asked = ["--target", str(tmp_path / "target"), "--out", str(tmp_path / "run"), "--layers", "sliding"]
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "restorer", *asked])
    assert ended.value.code == 2
    assert "add --from-drafter" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_target_without_a_drafter_has_none_to_fit(tmp_path, capsys):
    folders.write_target(tmp_path)
    assert from_drafter(tmp_path, tmp_path / "run") != 0
    assert "has no drafter to read" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
