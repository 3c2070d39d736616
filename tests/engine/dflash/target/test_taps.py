import gc
import threading
from importlib import import_module

import numpy as np
import pytest

from engine.dflash.target.taps import Tapped
from engine.errors import BadInput
from engine.lm import cache as lm_cache
from engine.mx import mx, nn, tree
from tests.engine import small_models as models

TAPS = (1, 3)


def qwen35(layers=4):
    """Recurrent and attention layers in turn, under ``language_model.model``."""
    module = import_module("mlx_lm.models.qwen3_5")
    text = {
        "model_type": "qwen3_5",
        "hidden_size": 64,
        "num_hidden_layers": layers,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "rms_norm_eps": 1e-6,
        "vocab_size": 128,
        "max_position_embeddings": 512,
        "full_attention_interval": 2,
        "linear_num_value_heads": 2,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "tie_word_embeddings": True,
    }
    return models.seeded(module.Model(module.ModelArgs.from_dict(text)))


def gemma4(layers=4):
    return models.gemma4(layers=6)


KINDS = [models.llama, models.gemma2, models.gemma3, gemma4, models.qwen3, qwen35]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def _inner(model):
    return getattr(model, "language_model", model).model


def _output(kind, layer, tokens):
    """What leaves a layer: the model cut behind it, its last norm taken away."""
    model = kind(layers=4)
    caches, inner = lm_cache.make_prompt_cache(model), _inner(model)
    inner.layers = inner.layers[: layer + 1]
    inner.norm = lambda x: x
    return inner(tokens, cache=caches[: layer + 1])


def _apart(mine, theirs):
    """The norm of the difference over that of ``theirs``: one wrong row of 45 makes it 0.1 and more."""
    return (mx.linalg.norm(mine - theirs) / mx.linalg.norm(theirs)).item()


@each_kind
def test_taps_are_the_layers_outputs(kind):
    model, tokens = kind(layers=4), models.tokens(9)
    logits, taps = Tapped(model, TAPS).forward(tokens, lm_cache.make_prompt_cache(model))
    assert mx.array_equal(logits, model(tokens, cache=lm_cache.make_prompt_cache(model)))
    expected = mx.concatenate([_output(kind, layer, tokens) for layer in TAPS], axis=-1)
    np.testing.assert_allclose(np.array(taps), np.array(expected), rtol=0, atol=1e-6)


@each_kind
def test_a_prompt_in_chunks_and_caches_that_wrap(kind):
    """Chunks and single tokens give the logits and taps that one forward gives, past the window of 16."""
    model, tokens = kind(layers=4), models.tokens(45)
    whole_logits, whole = Tapped(model, TAPS).forward(tokens, lm_cache.make_prompt_cache(model))
    tapped, caches = Tapped(model, TAPS), lm_cache.make_prompt_cache(model)
    stock = lm_cache.make_prompt_cache(model)
    pieces, start = [], 0
    for size in (7, 20, 1, 1, 16):
        chunk = tokens[:, start : start + size]
        start += size
        logits, taps = tapped.forward(chunk, caches)
        assert mx.array_equal(logits, model(chunk, cache=stock))
        pieces.append(taps)
    assert _apart(mx.concatenate(pieces, axis=1), whole) < 2e-5
    assert _apart(logits, whole_logits[:, -size:]) < 2e-5


def test_no_cache_is_needed():
    model, tokens = models.qwen3(layers=4), models.tokens(9)
    logits, taps = Tapped(model, TAPS).forward(tokens)
    assert mx.array_equal(logits, model(tokens))
    assert mx.array_equal(taps, Tapped(model, TAPS).forward(tokens, lm_cache.make_prompt_cache(model))[1])


def test_taps_come_in_the_order_asked():
    model, tokens = models.qwen3(layers=4), models.tokens(5)
    separate = [Tapped(model, (i,)).forward(tokens)[1] for i in range(4)]
    for order in ((3, 0), (0, 3), (2, 2), (0, 1, 2, 3)):
        taps = Tapped(model, order).forward(tokens)[1]
        assert mx.array_equal(taps, mx.concatenate([separate[i] for i in order], axis=-1))


def _structure(model):
    """Every module by place, identity, type and attributes."""
    return [
        (name, id(module), type(module), sorted(module), sorted(map(str, vars(module).items())))
        for name, module in model.named_modules()
    ]


@each_kind
def test_the_model_is_left_as_it_was(kind):
    model, tokens = kind(layers=4), models.tokens(6)
    before, weights = _structure(model), {name: id(x) for name, x in tree.tree_flatten(model.parameters())}
    layers, call = list(model.layers), type(model.layers[0]).__call__
    Tapped(model, TAPS).forward(tokens, lm_cache.make_prompt_cache(model))
    assert _structure(model) == before
    assert {name: id(x) for name, x in tree.tree_flatten(model.parameters())} == weights
    assert all(a is b for a, b in zip(model.layers, layers, strict=True))
    assert type(model.layers[0]).__call__ is call


def _generate(model, seed, steps=6):
    """Yield after each step; return the taps of all."""
    tapped, caches = Tapped(model, TAPS), lm_cache.make_prompt_cache(model)
    found, tokens = [], models.tokens(5, seed)
    for _ in range(steps):
        logits, taps = tapped.forward(tokens, caches)
        found.append(taps)
        yield
        tokens = mx.argmax(logits[:, -1:], axis=-1)
    return mx.concatenate(found, axis=1)


def _finish(generation):
    while True:
        try:
            next(generation)
        except StopIteration as done:
            return done.value


@pytest.mark.rows(2)
@each_kind
def test_interleaved_generations_do_not_disturb_each_other(kind):
    model = kind(layers=4)
    alone = [_finish(_generate(model, seed)) for seed in (1, 2)]
    first, second = _generate(model, 1), _generate(model, 2)
    for _ in range(6):
        next(first)
        next(second)
    assert mx.array_equal(_finish(first), alone[0])
    assert mx.array_equal(_finish(second), alone[1])
    assert not mx.array_equal(alone[0], alone[1])


def test_generations_in_threads_do_not_disturb_each_other():
    model = models.qwen3(layers=4)
    alone = [np.array(_finish(_generate(model, seed))) for seed in range(4)]
    found = {}

    def work(seed):
        with mx.stream(mx.new_thread_local_stream(mx.default_device())):
            found[seed] = np.array(_finish(_generate(model, seed)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[seed], alone[seed]) for seed in range(4))


def test_outputs_are_let_go():
    """A recorder that kept its last output would keep a prompt's worth of it alive."""
    model, tokens = models.qwen3(layers=4), models.tokens(500)
    mx.eval(tokens, model(tokens))
    gc.collect()
    before = mx.get_active_memory()
    tapped = Tapped(model, TAPS)
    mx.eval(tapped.forward(tokens))
    assert mx.get_active_memory() <= before


def test_weights_are_shared_as_they_change():
    model, tokens = models.qwen3(layers=4), models.tokens(5)
    tapped = Tapped(model, TAPS)
    model.model.embed_tokens.weight = model.model.embed_tokens.weight * 2
    model.layers[1].mlp.up_proj.weight = mx.zeros((64, 64))
    assert mx.array_equal(tapped.forward(tokens)[0], model(tokens))


@pytest.mark.parametrize("ids", [(0, 4), (-1,), (99,), ()])
def test_layers_that_do_not_exist_are_refused(ids):
    with pytest.raises(BadInput, match="the model has layers 0 to 3") as caught:
        Tapped(models.qwen3(layers=4), ids)
    assert caught.value.fix


class Hidden(nn.Module):
    """Its layers are made when asked for, so that none can stand in for them."""

    def __init__(self):
        super().__init__()
        self.block = nn.Linear(4, 4)

    @property
    def layers(self):
        return [self.block] * 3


@pytest.mark.parametrize("model", [Hidden(), nn.Linear(4, 4), object()], ids=["made", "none", "no module"])
def test_a_model_without_layers_is_refused(model):
    with pytest.raises(BadInput, match="are not found") as caught:
        Tapped(model, (0,))
    assert caught.value.fix
