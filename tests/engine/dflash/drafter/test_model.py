"""The drafter against the reference package, on the same tensors, and against itself computed otherwise.

Tolerance: both sides compute in float32, whose rounding is 6e-8 of a value. Sums of some hundred products in
another order, through a few layers, differ by some 1e-6 of the logits, which are of the order of one; ten
times that is allowed. A wrong position, mask, scale or norm moves them by more than a hundredth.
"""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from mlx_lm.tuner.lora import LoRALinear

from engine.dflash.drafter import context as buffers
from engine.dflash.target.embeddings import DraftEmbeddings, TargetEmbeddings
from engine.errors import BadInput
from engine.mx import mx, nn, tree
from tests.engine import drafts
from tests.engine import small_models as models

CLOSE = {"rtol": 0, "atol": 1e-5}


def _close(ours, theirs):
    np.testing.assert_allclose(np.array(ours), np.array(theirs), **CLOSE)


def _reference(model, target, monkeypatch, tmp_path):
    return drafts.in_package(model, tmp_path, monkeypatch).bind(target)


KINDS = {
    "full": {},
    "sliding": drafts.SLIDING,
    "mixed": drafts.MIXED,
    "not causal": {**drafts.MIXED, "is_causal": False},
    "causal": {**drafts.MIXED, "is_causal": True},
    "soft cap": {"final_logit_softcapping": 0.5},
    "no soft cap": {"final_logit_softcapping": 0.0},
    "scales": {"input_embedding_scale": 3.0, "output_multiplier": 0.25},
    "rope": {"rope_theta": 500.0},
    "scaled rope": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama3 rope": {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
    "yarn rope": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
    "one layer, one tap": {"num_hidden_layers": 1, "target_layer_ids": (3,)},
    "equal heads": {"num_key_value_heads": 4},
    "dflash2": drafts.DFLASH2,
    "dflash2, sliding": {**drafts.DFLASH2, **drafts.SLIDING, "final_logit_softcapping": 2.0},
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_step_by_step_as_the_package(kind, tmp_path, monkeypatch):
    """Rounds of several sizes, past the window; a prompt longer than a window is read at once."""
    model, target = drafts.drafter(**kind), models.llama(layers=4)
    theirs = _reference(model, target, monkeypatch, tmp_path)
    cache = theirs.make_cache()
    bound = model.bind(target)
    context = bound.make_cache()
    made_for = {**drafts.BASE, **kind}
    for turn, new in enumerate([21, 3, 2, 8, 4, 7, 2]):
        taps, rows = drafts.taps(new, turn, made_for), 2 + turn % 7
        drafted = bound.propose(turn, taps, context, rows - 1)
        block = mx.array([[turn] + [model.config.mask_token_id] * (rows - 1)])
        if model.config.is_dflash2:
            tokens, _, _ = theirs.propose(block, taps, cache, 0.0, logits_start=1)
        else:
            logits = theirs(block, taps, cache, logits_start=1)
            tokens = mx.argmax(logits, axis=-1)
            _close(drafted.logits, logits)
        assert drafted.tokens.tolist() == tokens.tolist()
        assert context.offset == cache[0].offset


def test_scores_of_the_selector_as_the_package(tmp_path, monkeypatch):
    """Sampling reads scores and candidates; with a cold temperature the package's choices are all but certain."""
    model, target = drafts.drafter(**drafts.DFLASH2), models.llama(layers=4)
    theirs = _reference(model, target, monkeypatch, tmp_path)
    bound = model.bind(target)
    taps = drafts.taps(9)
    drafted = bound.propose(7, taps, bound.make_cache(), 6)
    block = mx.array([[7] + [3] * 6])
    tokens, candidates, chances = theirs.propose(block, taps, theirs.make_cache(), 1e-3, logits_start=1)
    assert drafted.tokens.tolist() == tokens.tolist()
    assert drafted.candidates.tolist() == candidates.tolist()
    np.testing.assert_allclose(mx.softmax(drafted.logits / 1e-3, axis=-1), chances, rtol=0, atol=0.02)


@pytest.mark.parametrize("target", [models.gemma4, models.gemma3], ids=["gemma4", "gemma3"])
def test_embeddings_may_be_scaled_as_the_package_scales(target, tmp_path, monkeypatch):
    target = target(layers=4)
    model = drafts.drafter()
    theirs = _reference(model, target, monkeypatch, tmp_path)
    block, taps = mx.array([[9, 3, 3]]), drafts.taps(5)
    ours = model.bind(target, embed_scale=theirs.embed_scale)
    _close(
        ours.propose(9, taps, ours.make_cache(), 2).logits,
        theirs(block, taps, theirs.make_cache(), logits_start=1),
    )
    assert ours.embeddings.scale == theirs.embed_scale


@pytest.mark.parametrize(
    ("said", "made_for", "scale"),
    [
        (None, None, 1.0),
        (None, {"model_type": "gemma4"}, "target"),
        (2.5, None, 2.5),
        (1.0, {"model_type": "x"}, 1.0),
    ],
)
def test_the_checkpoint_says_how_embeddings_are_scaled(said, made_for, scale):
    target = models.gemma4(layers=4)
    own = TargetEmbeddings.of(target)
    config = replace(drafts.drafter().config, embed_scale=said, made_for=made_for)
    assert own.embed_scale != 1.0
    assert DraftEmbeddings(own, config).scale == (own.embed_scale if scale == "target" else scale)
    assert DraftEmbeddings(own, config, 4.0).scale == 4.0


def _pieces(sizes, made_for=drafts.BASE):
    whole = drafts.taps(sum(sizes), 5, made_for)
    return whole, mx.split(whole, np.cumsum(sizes)[:-1].tolist(), axis=1)


@pytest.mark.parametrize("kind", [{}, drafts.SLIDING, drafts.MIXED], ids=["full", "sliding", "mixed"])
def test_context_may_come_in_any_pieces(kind, monkeypatch):
    """Token by token past a wrapped window, which the package's rotating cache takes out of order.

    Buffers grow at every few positions, so that windows wrap and move in every state that they can be in.
    """
    monkeypatch.setattr(buffers, "STEP", 7)
    bound = drafts.drafter(**kind).bind(models.llama(layers=4))
    whole, pieces = _pieces([1, 1, 30, 1, 1, 1, 2, 1, 5, 1, 4, 4, 40, 1, 3, 1, 15, 16, 1, 1])
    context, read = bound.make_cache(), 0
    for i, piece in enumerate(pieces):
        read += piece.shape[1]
        if apart := i % 3 == 0:
            bound.absorb(piece, context)
        drafted = bound.propose(11, None if apart else piece, context, 5)
        assert context.offset == read
        fresh = bound.make_cache()
        _close(drafted.logits, bound.propose(11, whole[:, :read], fresh, 5).logits)


def test_single_tokens_past_the_window_as_the_package_read_afresh(tmp_path, monkeypatch):
    """Fed one token, the package's rotating cache leaves temporal order, which its mask relies on; not ours."""
    model, target = drafts.drafter(**drafts.SLIDING), models.llama(layers=4)
    theirs, bound = _reference(model, target, monkeypatch, tmp_path), model.bind(target)
    whole, context, read = drafts.taps(33), bound.make_cache(), 0
    for new in (20, 4, 4, 4, 1):
        taps = whole[:, read : read + new]
        read += new
        drafted = bound.propose(5, taps, context, 7).logits
    block = mx.array([[5] + [3] * 7])
    _close(drafted, theirs(block, whole, theirs.make_cache(), logits_start=1))


def test_a_context_may_begin_late(tmp_path, monkeypatch):
    """As the package does where a prompt's first part lies before every window."""
    model, target = drafts.drafter(**drafts.SLIDING), models.llama(layers=4)
    theirs, bound = _reference(model, target, monkeypatch, tmp_path), model.bind(target)
    context, cache = bound.make_cache(offset=70), theirs.make_cache()
    for layer in cache:
        layer.offset = 70
    for turn, new in enumerate([6, 4]):
        taps = drafts.taps(new, turn)
        logits = theirs(mx.array([[turn, 3, 3]]), taps, cache, logits_start=1)
        _close(bound.propose(turn, taps, context, 2).logits, logits)
    whole, early = bound.make_cache(), drafts.taps(85)
    bound.absorb(early, whole)
    late = bound.make_cache(offset=70)
    bound.absorb(early[:, 70:], late)
    _close(bound.propose(1, None, whole, 4).logits, bound.propose(1, None, late, 4).logits)


def test_half_precision_as_the_package(tmp_path, monkeypatch):
    """bfloat16 keeps 8 bits: values of the order of one differ by hundredths once sums are ordered otherwise."""
    model, target = drafts.drafter(**drafts.MIXED), models.llama(layers=4)
    theirs = _reference(model, target, monkeypatch, tmp_path)
    for module in (model, theirs, target):
        module.set_dtype(mx.bfloat16)
    taps, block = drafts.taps(30).astype(mx.bfloat16), mx.array([[9, 3, 3, 3]])
    bound = model.bind(target)
    ours = bound.propose(9, taps, bound.make_cache(), 3).logits
    assert ours.dtype == mx.bfloat16
    logits = theirs(block, taps, theirs.make_cache(), logits_start=1)
    assert mx.abs(ours - logits).max().item() < 0.1
    assert mx.abs(ours - logits).mean().item() < 0.02


def test_a_window_is_all_that_is_kept():
    bound = drafts.drafter(**drafts.SLIDING).bind(models.llama(layers=4))
    context = bound.make_cache()
    for turn in range(120):
        mx.eval(bound.propose(1, drafts.taps(8, turn), context, 7).tokens)
    per_position = 2 * 2 * 32 * 4 * 2  # keys and values, heads, values a head, bytes, layers
    assert context.offset == 960
    assert context.nbytes <= (15 + 16 + 2 * buffers.STEP) * per_position


def test_full_layers_grow_with_the_context():
    bound = drafts.drafter().bind(models.llama(layers=4))
    context = bound.make_cache()
    bound.absorb(drafts.taps(700), context)
    assert context.nbytes >= 700 * 2 * 2 * 32 * 4 * 2


@pytest.mark.parametrize("kind", [{}, drafts.MIXED], ids=["full", "mixed"])
def test_copies_of_a_context_go_their_own_ways(kind):
    """What one takes in, written to the same place of the same buffers, is not what the other reads later."""
    bound = drafts.drafter(**kind).bind(models.llama(layers=4))
    context = bound.make_cache()
    bound.absorb(drafts.taps(40), context)
    mx.eval(context.state)
    contexts = [context, context.copy()]
    for seed, each in enumerate(contexts):
        bound.absorb(drafts.taps(4, seed), each)
    found = [bound.propose(2, None, each, 6).logits for each in contexts]
    for seed, logits in enumerate(found):
        alone = bound.make_cache()
        bound.absorb(mx.concatenate([drafts.taps(40), drafts.taps(4, seed)], axis=1), alone)
        _close(logits, bound.propose(2, None, alone, 6).logits)
    assert not np.allclose(*found)


def test_a_block_leaves_nothing_behind():
    """Drafts are not context: a block of any size, drafted or not, changes nothing that follows."""
    bound = drafts.drafter(**drafts.MIXED).bind(models.llama(layers=4))
    context = bound.make_cache()
    bound.absorb(drafts.taps(20), context)
    copy = context.copy()
    for rows in (9, 1, 15):
        mx.eval(bound.propose(rows, None, context, rows).logits)
    _close(
        bound.propose(2, drafts.taps(3), context, 4).logits, bound.propose(2, drafts.taps(3), copy, 4).logits
    )


def test_the_bonus_may_be_an_array():
    bound = drafts.drafter().bind(models.llama(layers=4))
    context = bound.make_cache()
    plain = bound.propose(9, drafts.taps(6), context, 3).logits
    for bonus in (mx.array(9), mx.array([9]), mx.array([[9]])):
        assert mx.array_equal(bound.propose(bonus, None, context, 3).logits, plain)


def test_picks_follow_the_given_rule():
    for kind in ({}, drafts.DFLASH2):
        bound = drafts.drafter(**kind).bind(models.llama(layers=4))
        args = (4, drafts.taps(6), bound.make_cache(), 3)
        drafted = bound.propose(*args, pick=lambda logits: mx.argmin(logits, axis=-1))
        worst = mx.argmin(drafted.logits, axis=-1)
        if drafted.candidates is not None:
            worst = mx.take_along_axis(drafted.candidates, worst[..., None], axis=-1)[..., 0]
        assert drafted.tokens.tolist() == worst.tolist()


def test_quantized_weights_draft_nearly_the_same():
    model, target = drafts.drafter(), models.llama(layers=4)
    bound = model.bind(target)
    exact = bound.propose(4, drafts.taps(6), bound.make_cache(), 3).logits
    nn.quantize(model, group_size=32, bits=8)
    bound = model.bind(target)
    assert not bound.fused.plain
    near = bound.propose(4, drafts.taps(6), bound.make_cache(), 3).logits
    assert 0 < mx.abs(near - exact).max().item() < 0.2


def test_weights_under_an_adapter():
    """One that adds nothing yet: its projections are called, not fused, and give the same."""
    model, target = drafts.drafter(), models.llama(layers=4)
    bound = model.bind(target)
    exact = bound.propose(4, drafts.taps(6), bound.make_cache(), 3).logits
    attention = model.layers[1].self_attn
    attention.k_proj = LoRALinear.from_base(attention.k_proj)
    bound = model.bind(target)
    assert not bound.fused.plain
    _close(bound.propose(4, drafts.taps(6), bound.make_cache(), 3).logits, exact)


def test_weights_changed_after_binding_are_seen_by_the_next_bind():
    model, target = drafts.drafter(), models.llama(layers=4)
    before = model.bind(target)
    other = drafts.drafter(seed=1)
    model.update(other.parameters())
    after = model.bind(target)
    fresh = other.bind(target)
    args = (4, drafts.taps(6))
    expected = fresh.propose(*args, fresh.make_cache(), 3).logits
    assert mx.array_equal(after.propose(*args, after.make_cache(), 3).logits, expected)
    assert before.fused is not after.fused
    assert model.bind(target).fused is after.fused


def test_threads_that_bind_one_drafter_share_its_matrices():
    model, target, ready = drafts.drafter(), models.llama(layers=4), threading.Barrier(4)

    def bind(_):
        ready.wait()
        return model.bind(target)

    with ThreadPoolExecutor(4) as pool:
        bound = list(pool.map(bind, range(4)))
    assert all(each.fused is model.fused() for each in bound)


def test_binding_takes_nothing_of_the_target_and_holds_no_weight_twice():
    model = drafts.drafter()
    before = {name: np.array(x) for name, x in tree.tree_flatten(model.parameters())}
    mx.eval(model.parameters())
    target = models.llama(layers=4)
    mx.eval(target.parameters())
    gc.collect()
    held = mx.get_active_memory()
    bound = model.bind(target)
    after = dict(tree.tree_flatten(model.parameters()))
    assert after.keys() == before.keys()
    assert all(np.array_equal(after[name], before[name]) for name in before)
    grown = mx.get_active_memory() - held  # by the norms of all heads
    assert grown < bound.fused.layers[0].self_attn.k_proj.weight.nbytes


REFUSED = [
    ({"num_target_layers": 6}, "layers 6, this target has 4"),
    ({"hidden_size": 32, "conv_group_size": 0}, "hidden size 32, this target has 64"),
    ({"vocab_size": 100}, "vocabulary 100, this target has 128"),
]


@pytest.mark.parametrize(("changes", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_a_drafter_for_another_target_is_refused(changes, said):
    with pytest.raises(BadInput, match="the drafter is for another target") as caught:
        drafts.drafter(**changes).bind(models.llama(layers=4))
    assert said in caught.value.message
    assert caught.value.fix


def test_what_cannot_be_drafted_is_refused():
    bound = drafts.drafter().bind(models.llama(layers=4))
    context = bound.make_cache()
    with pytest.raises(BadInput, match="0 tokens to draft"):
        bound.propose(1, None, context, 0)
    for wrong in (drafts.taps(3)[..., :64], mx.concatenate([drafts.taps(3)] * 2), drafts.taps(3)[0]):
        with pytest.raises(BadInput, match=r"not \[1, new, 128\]"):
            bound.absorb(wrong, context)
    assert context.offset == 0


def test_drafting_without_any_context():
    bound = drafts.drafter().bind(models.llama(layers=4))
    assert bound.propose(1, None, bound.make_cache(), 3).tokens.shape == (1, 3)


def test_a_quantized_target_is_fitted():
    target = models.llama(layers=4)
    nn.quantize(target, group_size=32, bits=8)
    bound = drafts.drafter().bind(target)
    assert bound.propose(1, drafts.taps(3), bound.make_cache(), 3).tokens.shape == (1, 3)
