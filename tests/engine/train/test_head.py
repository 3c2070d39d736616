"""Training an EAGLE-3 head: its unrolled forward is the decoder's, it learns, it resumes, and it is loaded again."""

from dataclasses import replace

import numpy as np
import pytest

from engine import cli, models
from engine.dflash.loop import stream_generate
from engine.dflash.target.rotary import Rotations
from engine.dflash.target.taps import Tapped
from engine.errors import BadInput
from engine.mx import mx, tree
from engine.train.data import chats
from engine.train.head import learner
from engine.train.head.recipe import HeadPlan, vocabulary_of
from engine.train.head.unrolled import outputs
from engine.train.run import Pool, Trainer
from tests.engine import folders, heads
from tests.engine import small_models as small

ROW = 24
PLAN = HeadPlan(steps=30, rows=4, pool=8, length=ROW, warm_up=3)


@pytest.fixture(scope="module")
def target():
    return small.llama(layers=4)


def source(rng, count):
    starts = rng.integers(0, 128, (count, 1))
    return ((starts + 3 * np.arange(ROW)) % 128).astype(np.int32)


def new_head(target, vocabulary=96):
    shape = replace(heads.eagle3().config, draft_vocab_size=vocabulary)
    return learner.new_head(shape, target, list(range(128 - vocabulary, 128)))


@pytest.mark.parametrize("at", [0, 5, 17])
def test_a_training_chain_is_what_decoding_computes(target, at):
    """The outputs of each step at a row are those of a chain that begins there, if it drafts the text's tokens."""
    head, tokens = heads.eagle3(), mx.array(source(np.random.default_rng(2), 1))
    _, taps = Tapped(target, head.layer_ids(target)).forward(tokens)
    rotations = Rotations(head.layers[0].self_attn.rope, head.config.head_dim)
    chain = list(outputs(head, target.model.embed_tokens, tokens, taps, 4, rotations))
    bound = head.bind(target)
    context = bound.make_cache()
    bound.absorb(taps[:, : at + 1], context, tokens[:, : at + 1])
    feature = context.feature
    for k, states in enumerate(chain):
        feature = bound._step(tokens[:, at + 1 + k : at + 2 + k], feature, context)
        np.testing.assert_allclose(states[:, at], feature[:, 0], atol=2e-4)


def _trained(target, folder, plan=PLAN, until=None):
    head = new_head(target)
    taught = learner.HeadLearner(head, target, plan, source(np.random.default_rng(9), 4))
    trainer = Trainer(taught, Pool(taught.read, source, plan), folder, plan)
    lines = []

    def say(line):
        lines.append(line)
        if line["step"] == until:
            raise KeyboardInterrupt

    try:
        trainer.run(say, every=5)
    except KeyboardInterrupt:
        assert until
    return head, lines


@pytest.mark.long
def test_it_learns_resumes_and_is_accepted_more_than_a_random_head(target, tmp_path):
    whole, lines = _trained(target, tmp_path / "whole")
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert 0 < lines[-1]["read_share"] < 1
    assert lines[-1]["held_out_tau"] > 1
    _trained(target, tmp_path / "parts", until=10)
    again, _ = _trained(target, tmp_path / "parts")
    pairs = zip(tree.tree_flatten(whole.parameters()), tree.tree_flatten(again.parameters()), strict=True)
    assert all(mx.allclose(a, b, atol=1e-5).item() for (_, a), (_, b) in pairs)
    taught = learner.HeadLearner(heads.eagle3(draft_vocab_size=96, ids=whole.ids), target, PLAN)
    batch = taught.read(source(np.random.default_rng(9), 4))
    random_tau = taught.loss(batch)[1].item()
    assert learner.HeadLearner(whole, target, PLAN).loss(batch)[1].item() > random_tau + 0.05
    prompt = list(range(9, 9 + 3 * ROW, 3))
    options = {"max_tokens": 20, "lookup": False, "adaptive": False}
    plain = [t for s in stream_generate(target, None, None, prompt, **options) for t in s.tokens]
    assert [t for s in stream_generate(target, whole, None, prompt, **options) for t in s.tokens] == plain


def test_the_most_frequent_tokens_in_rising_order():
    assert vocabulary_of(np.array([7, 7, 3, 9, 9, 9]), 2, 12) == [7, 9]
    assert vocabulary_of(np.array([7, 7, 3]), 4, 12) == [0, 1, 3, 7]
    assert vocabulary_of(np.array([1]), 99, 3) == [0, 1, 2]


def test_the_target_answers_its_prompts(target):
    """Prompts of several lengths; the first of each batch that is decoded greedily is what the target says."""
    prompts = [[5, 9, 3], [4, 4], [7, 8, 9]]
    answers = chats.writer(target, 6, ends=(), seed=1)(prompts)
    assert [len(answer) for answer in answers] == [6, 6, 6]
    plain = stream_generate(target, None, None, prompts[0], max_tokens=6, lookup=False)
    assert answers[0] == [t for s in plain for t in s.tokens]
    last = answers[0][1]
    cut = chats.writer(target, 6, ends=(last,), seed=1)([prompts[0]])
    assert cut == [answers[0][: answers[0].index(last) + 1]]


def test_a_target_without_attention_is_refused():
    with pytest.raises(
        BadInput, match=r"EAGLE-3 head cannot be made for a mamba: .* has no num_attention_heads"
    ):
        learner.head_config(
            {"model_type": "mamba", "num_hidden_layers": 2, "hidden_size": 8, "vocab_size": 9}, 64
        )


@pytest.mark.long
def test_the_command_writes_a_head_for_its_target(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("def f(x):\n    return x\n" * 200)
    pair = folders.write_pair(tmp_path / "pair")
    argv = ["train", "head", "--target", pair, "--out", tmp_path / "out", "--text", text, "--steps", 2]
    argv += ["--length", 32, "--rows", 2, "--vocabulary", 64, "--every", 1]
    with pytest.raises(SystemExit) as ended:
        cli.main([str(word) for word in argv])
    assert ended.value.code == 0
    loaded = models.load(pair, tmp_path / "out" / "draft")
    assert (loaded.draft.kind, loaded.draft.config.draft_vocab_size) == ("eagle3", 64)
    assert loaded.draft.config.made_for["model_type"] == "qwen3"
    assert len((tmp_path / "out" / "log.jsonl").read_text().splitlines()) == 2
