"""Heads against their forward passes in NumPy, and decoding with them against plain decoding."""

from collections import Counter

import numpy as np
import pytest

from engine import cache as kv
from engine.dflash.divergence import classify
from engine.dflash.loop import stream_generate
from engine.dflash.propose.proposer import Proposer, can_share
from engine.dflash.sampling import Sampler, Sampling
from engine.dflash.target.taps import Tapped
from engine.errors import BadInput
from engine.mx import mx
from tests.engine import heads
from tests.engine import small_models as models

KINDS = {
    "plain": {},
    "norm before the residual": {"norm_before_residual": True},
    "one norm before": {"norm_before_fc": True},
    "a norm each": {"fc_norm": True},
    "3.1": {"norm_feedback": True},
    "norms of heads": {"qk_norm": True},
    "own embeddings": {"own_embeddings": True},
    "all tokens": {"draft_vocab_size": 128},
    "narrow": {"hidden_size": 32, "own_embeddings": True, "intermediate_size": 48},
}
TOKENS = [5, 9, 3, 77, 20, 64, 31]


def _taps(n, width=192):
    return mx.array(np.random.default_rng(3).standard_normal((1, n, width)).astype(np.float32))


@pytest.mark.parametrize("parts", [(7,), (1, 3, 2, 1), (6, 1)], ids=str)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_eagle3_as_in_numpy(kind, parts):
    """However the accepted tokens come, and after drafts that were dropped."""
    head, target, taps = heads.eagle3(**kind), models.llama(layers=4), _taps(7)
    bound = head.bind(target)
    context, at = bound.make_cache(), 0
    for count in parts:
        new = slice(at, at + count)
        got = bound.propose(3, taps[:, new], context, 4, tokens=mx.array([TOKENS[new]]))
        at += count
    got = bound.propose(7, None, context, 5)
    embed = np.array(target.model.embed_tokens.weight)
    drafts, scores = heads.in_numpy(head, embed, TOKENS, np.array(taps[0]), 7, 5)
    assert got.tokens.tolist() == [drafts]
    np.testing.assert_allclose(got.logits[0], scores, rtol=0, atol=2e-4)
    assert context.offset == 7


@pytest.mark.parametrize("parts", [(7,), (1, 3, 2, 1)], ids=str)
def test_mtp_as_in_numpy(parts):
    head, target = heads.mtp(), models.qwen3_5()
    tokens = mx.array([TOKENS])
    _, taps = Tapped(target, head.layer_ids(target)).forward(tokens)
    bound = head.bind(target)
    context, at = bound.make_cache(), 0
    for count in parts:
        new = slice(at, at + count)
        bound.propose(3, taps[:, new], context, 2, tokens=tokens[:, new])
        at += count
    got = bound.propose(7, None, context, 4)
    states = np.array(target.model.norm(taps)[0])  # not those before the norm
    drafts, scores = heads.mtp_in_numpy(head, target, TOKENS, states, 7, 4)
    assert got.tokens.tolist() == [drafts]
    np.testing.assert_allclose(got.logits[0], scores, rtol=0, atol=2e-4)


def test_a_prompt_of_one_token_and_no_drafts():
    bound = heads.eagle3().bind(models.llama(layers=4))
    context = bound.make_cache()
    assert bound.propose(7, None, context, 3).tokens.shape == (1, 3)
    assert context.cache.offset == 0
    with pytest.raises(BadInput, match="0 tokens to draft"):
        bound.propose(7, None, context, 0)
    with pytest.raises(BadInput, match="tokens None"):
        bound.absorb(_taps(2), context)


PAIRS = {
    "eagle3": (heads.eagle3, lambda: models.llama(layers=4)),
    "mtp": (heads.mtp, models.qwen3_5),
    "mtp of experts": (lambda: heads.mtp(**heads.MOE), models.qwen3_5),
    "eagle3, sliding": (heads.eagle3, models.gemma3),
    "eagle3, hybrid": (heads.eagle3, models.qwen3_5),
}


def _tokens(steps):
    return [token for step in steps for token in step.tokens]


@pytest.mark.rows(3)
@pytest.mark.parametrize("spec", ["raw", "affine@4g64", "e8v@4.25:fast"])
@pytest.mark.parametrize("pair", PAIRS, ids=PAIRS)
@pytest.mark.parametrize("length", [1, 40])
def test_decoding_equals_plain_decoding(pair, spec, length):
    head, target = (make() for make in PAIRS[pair])
    prompt = models.tokens(length)[0].tolist()
    options = {"max_tokens": 16, "lookup": False}
    fresh = lambda: kv.make_caches(target, spec)  # noqa: E731
    plain = _tokens(stream_generate(target, None, None, prompt, caches=fresh(), **options))
    for loop in ("lazy", "two-phase"):
        steps = list(
            stream_generate(target, head, None, prompt, caches=fresh(), adaptive=False, loop=loop, **options)
        )
        assert {step.drafter for step in steps if step.proposed} == {head.kind}
        assert max(step.proposed for step in steps) == head.config.verified_rows - 1
        parted = classify(target, fresh, prompt, _tokens(steps), plain)
        assert parted is None or (spec != "raw" and parted.kind == "tie")


@pytest.mark.rows(1)
@pytest.mark.parametrize("pair", ["eagle3", "mtp"])
def test_the_policy_learns_and_answers_do_not_change(pair):
    head, target = (make() for make in PAIRS[pair])
    prompt = models.tokens(20)[0].tolist()
    plain = _tokens(stream_generate(target, None, None, prompt, max_tokens=60))
    assert _tokens(stream_generate(target, head, None, prompt, max_tokens=60)) == plain


def test_accepted_drafts_leave_the_context_of_plain_reading():
    """A head that agrees with its target is accepted, and then knows what it would know without having drafted."""
    head, target = heads.eagle3(draft_vocab_size=128), models.llama(layers=4)
    prompt = models.tokens(12)[0].tolist()
    proposer = Proposer(head, target)
    known = _tokens(stream_generate(target, None, None, prompt, max_tokens=20))
    tokens = mx.array([[*prompt, *known]])
    _, taps = Tapped(target, head.layer_ids(target)).forward(tokens)
    proposer.feed(taps[:, :14], tokens[:, :14])
    proposer.propose(tokens[:, 14:15], 5, Sampler(Sampling()))
    proposer.feed(taps[:, 14:17], tokens[:, 14:17])
    after, _ = proposer.propose(tokens[:, 17:18], 5, Sampler(Sampling()))
    other = Proposer(head, target)
    other.feed(taps[:, :17], tokens[:, :17])
    assert after.tolist() == other.propose(tokens[:, 17:18], 5, Sampler(Sampling()))[0].tolist()
    assert mx.allclose(
        other.context.cache.keys[:, :, :16], proposer.context.cache.keys[:, :, :16], atol=1e-5
    ).item()


def test_drafts_are_sampled_from_the_distribution_that_is_returned():
    proposer = Proposer(heads.eagle3(), models.llama(layers=4))
    proposer.feed(_taps(7), mx.array([TOKENS]))
    sampler = Sampler(Sampling(temperature=0.5, top_k=2), seed=3)
    seen, q = Counter(), {}
    for _ in range(200):
        tokens, drawn_from = proposer.propose(mx.array([[7]]), 2, sampler)
        first, second = tokens[0].tolist()
        seen[first, second] += 1
        q[first] = np.array(drawn_from[0])
        assert drawn_from.shape == (1, 2, 128)
    assert len(q) == 2
    assert {token for pair in seen for token in pair} <= set(heads.IDS)
    for (first, second), count in seen.items():
        chance = q[first][0][first] * q[first][1][second]
        assert abs(count / 200 - chance) < 4 * np.sqrt(chance * (1 - chance) / 200)


@pytest.mark.long
def test_three_sampled_tokens_follow_the_target():
    """Chi-square over the first three tokens of many answers, with drafts and without: the two agree."""
    head, target = (make() for make in PAIRS["eagle3"])
    prompt = models.tokens(6)[0].tolist()
    counts = []
    for draft in (None, head):
        met = Counter()
        for seed in range(100):
            options = {"temperature": 0.6, "top_k": 2, "seed": seed + 1000 * (draft is None), "lookup": False}
            steps = stream_generate(target, draft, None, prompt, max_tokens=3, adaptive=False, **options)
            met[tuple(_tokens(steps))] += 1
        counts.append(met)
    kinds = sorted(set(counts[0]) | set(counts[1]))
    a, b = (np.array([met[kind] for kind in kinds]) for met in counts)
    chi = ((a - b) ** 2 / (a + b)).sum()
    assert abs(chi - (len(kinds) - 1)) < 5 * np.sqrt(2 * (len(kinds) - 1))


def test_heads_do_not_draft_together():
    head, target = heads.eagle3(), models.llama(layers=4)
    assert not can_share([Proposer(head, target), Proposer(head, target)])


OTHERS = {
    "another width": ({"target_hidden_size": 32}, "hidden size 32"),
    "another vocabulary": ({"vocab_size": 256, "draft_vocab_size": 48}, "vocabulary 256"),
    "more layers": ({"layer_ids": (0, 1, 9)}, "reads layer 9"),
    "no embeddings": ({"hidden_size": 32}, "has no embed_tokens"),
}


@pytest.mark.parametrize(("changes", "message"), OTHERS.values(), ids=OTHERS)
def test_a_head_of_another_target_is_refused(changes, message):
    with pytest.raises(BadInput, match=message):
        heads.eagle3(**changes).bind(models.llama(layers=4))


def test_an_mtp_head_of_another_target_is_refused():
    with pytest.raises(BadInput, match="layers 4, this target has 2"):
        heads.mtp().bind(models.qwen3_5(layers=2))
