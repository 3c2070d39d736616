"""DSpark drafters: the heads against plain NumPy, what is read and refused, and decoding with them."""

import json
from collections import Counter

import numpy as np
import pytest

from engine.checkpoints import files
from engine.dflash.drafter.dspark import count_confident
from engine.dflash.drafter.load import load_draft
from engine.dflash.drafter.weights import save_draft
from engine.dflash.loop import stream_generate
from engine.dflash.propose.proposer import Proposer, can_share
from engine.dflash.sampling import Sampler, Sampling
from engine.errors import BadInput
from engine.mx import load, mx
from engine.train.drafter.init import from_folder
from tests.engine import drafts
from tests.engine import small_models as models
from tests.engine.drafts import DSPARK

KINDS = {
    "anchor": {},
    "1 + n rows": {"sample_from_anchor": False},
    "confidence without codes": {"confidence_head_with_markov": False},
    "no confidence": {"enable_confidence_head": False, "confidence_head_with_markov": False},
    "sliding": drafts.SLIDING,
}


def _bound(target=None, **kind):
    model = drafts.drafter(**{**DSPARK, **kind})
    return model, model.bind(target or models.llama(layers=4))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_heads_as_in_numpy(kind):
    model, bound = _bound(**kind)
    context = bound.make_cache()
    states = np.array(bound.states(7, drafts.taps(9), context, 5))
    got = bound.propose(7, None, context, 5)
    logits = np.array(bound.embeddings.logits(mx.array(states)))
    w1, w2 = (np.array(part.weight) for part in (model.markov_head.markov_w1, model.markov_head.markov_w2))
    token, tokens, scores, codes = 7, [], [], []
    for row in logits:
        codes.append(w1[token])
        scores.append(row + w2 @ w1[token])
        token = int(scores[-1].argmax())
        tokens.append(token)
    assert got.tokens.tolist() == [tokens]
    assert tokens != logits.argmax(axis=-1).tolist()
    np.testing.assert_allclose(got.logits[0], scores, rtol=0, atol=1e-5)
    if not model.config.enable_confidence_head:
        assert got.confidences is None
        return
    rows = np.concatenate([states, codes], axis=1) if model.config.confidence_head_with_markov else states
    head = model.confidence_head.proj
    sure = 1 / (1 + np.exp(-(rows @ np.array(head.weight)[0] + np.array(head.bias))))
    np.testing.assert_allclose(got.confidences[0], sure, rtol=0, atol=1e-5)


def test_the_anchor_row_predicts_the_first_draft():
    """A block with an anchor row that predicts has the rows of a DFlash block of one draft fewer."""
    _, anchored = _bound()
    _, other = _bound(sample_from_anchor=False)
    first = anchored.states(7, drafts.taps(9), anchored.make_cache(), 5)
    second = other.states(7, drafts.taps(9), other.make_cache(), 4)
    np.testing.assert_allclose(first[1:], second, rtol=0, atol=1e-5)
    assert anchored.config.verified_rows == other.config.verified_rows + 1 == 9


@pytest.mark.parametrize(("threshold", "kept"), [(0, 4), (0.3, 4), (0.5, 2), (0.85, 1), (0.99, 1)])
def test_a_block_ends_before_its_first_unsure_draft_but_has_one(threshold, kept):
    assert count_confident(mx.array([[0.9, 0.8, 0.4, 0.9]]), threshold) == kept


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_configured_threshold_cuts_drafts_and_distributions(temperature):
    tokens = {}
    for threshold in (0.0, 0.5, 1.0):
        model = drafts.drafter(**DSPARK, confidence_threshold=threshold)
        proposer = Proposer(model, models.llama(layers=4))
        proposer.feed(drafts.taps(9))
        drafted, drawn_from = proposer.propose(mx.array([[7]]), 7, Sampler(Sampling(temperature), seed=1))
        tokens[threshold] = drafted[0].tolist()
        assert drawn_from is None or drawn_from.shape == (1, len(tokens[threshold]), 128)
    whole, cut = tokens[0.0], tokens[0.5]
    assert [len(whole), len(tokens[1.0])] == [7, 1]
    assert len(cut) < len(whole)
    assert cut == whole[: len(cut)]


@pytest.mark.rows(1)
@pytest.mark.parametrize("threshold", [0.0, 0.5])
@pytest.mark.parametrize("adaptive", [True, False])
def test_decoding_equals_plain_decoding(threshold, adaptive):
    target, prompt = models.llama(layers=4), list(range(5, 45))
    draft = drafts.drafter(**DSPARK, confidence_threshold=threshold)
    options = {"max_tokens": 40, "lookup": False}
    plain = stream_generate(target, None, None, prompt, **options)
    steps = list(stream_generate(target, draft, None, prompt, adaptive=adaptive, **options))
    assert [t for step in steps for t in step.tokens] == [t for step in plain for t in step.tokens]
    proposed = {step.proposed for step in steps if step.drafter == "dflash"}
    assert adaptive or (8 in proposed if threshold == 0 else len(proposed) > 1)


def test_drafts_are_sampled_from_the_distribution_that_is_returned():
    """Of the second draft too, whose distribution depends on the first: else acceptance would judge by a wrong q."""
    proposer = Proposer(drafts.drafter(**DSPARK), models.llama(layers=4))
    proposer.feed(drafts.taps(9))
    sampler = Sampler(Sampling(temperature=0.5, top_k=2), seed=3)
    seen, q = Counter(), {}
    for _ in range(400):
        tokens, drawn_from = proposer.propose(mx.array([[7]]), 2, sampler)
        first, second = tokens[0].tolist()
        seen[first, second] += 1
        q[first] = np.array(drawn_from[0])
    assert len(q) == 2
    a, b = q.values()
    assert np.abs(a[1] - b[1]).max() > 0.1
    for (first, second), count in seen.items():
        chance = q[first][0][first] * q[first][1][second]
        assert abs(count / 400 - chance) < 4 * np.sqrt(chance * (1 - chance) / 400)


def test_generations_do_not_draft_together():
    model, target = drafts.drafter(**DSPARK), models.llama(layers=4)
    assert not can_share([Proposer(model, target), Proposer(model, target)])


def _native(folder):
    """Rewrite a saved drafter as DeepSpec lays it out: flat keys, and copies of the target's table and head."""
    save_draft(drafts.drafter(**DSPARK), folder, "float32")
    data = json.loads((folder / "config.json").read_text())
    data.update(data.pop("dflash_config"), architectures=["Qwen3DSparkModel"], markov_head_type="vanilla")
    del data["sample_from_anchor"]
    (folder / "config.json").write_text(json.dumps(data))
    (weights,) = files.weight_files(folder)
    copies = {name: mx.zeros((128, 64)) for name in ("embed_tokens.weight", "lm_head.weight")}
    tensors = {name: mx.array(np.array(x)) for name, x in load(weights).items()}
    mx.save_safetensors(str(weights), {**tensors, **copies})


def test_the_layout_of_deepspec(tmp_path):
    _native(tmp_path)
    back, same = load_draft(tmp_path), drafts.drafter(**DSPARK)
    assert back.config == same.config
    assert mx.array_equal(back.markov_head.markov_w2.weight, same.markov_head.markov_w2.weight)


REFUSED = {
    "no layout": ({}, ("sample_from_anchor",), "no sample_from_anchor"),
    "speculators": ({"transformer_layer_config": {}}, (), "layout of speculators"),
    "a gated head": ({"markov_head_type": "gated"}, (), "markov_head_type is 'gated'"),
    "its own vocabulary": ({"draft_vocab_size": 64}, (), "draft_vocab_size is 64"),
    "no rank": ({}, ("markov_rank",), "no markov_rank"),
    "a soft cap": ({"final_logit_softcapping": 30.0}, (), "final_logit_softcapping with a Markov head"),
    "a high threshold": ({"confidence_threshold": 2}, (), "confidence_threshold is 2"),
    "heads on DFlash": ({"architectures": ["DFlashDraftModel"]}, (), "which only DSparkDraftModel has"),
    "no confidence": ({"enable_confidence_head": False}, (), "confidence_head.proj.bias"),
    "two masks": ({"mask_token_id": 5}, (), "mask_token_id is 5 at the top"),
}


@pytest.mark.parametrize(("changes", "without", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_uncertain_is_refused(changes, without, message, tmp_path):
    folder = drafts.write(tmp_path, changes, without, **DSPARK)
    with pytest.raises(BadInput, match=message):
        load_draft(folder)


def test_the_heads_are_not_trained(tmp_path):
    save_draft(drafts.drafter(**DSPARK), tmp_path)
    with pytest.raises(BadInput, match="is a DSpark drafter"):
        from_folder(tmp_path, models.llama(layers=4))
