"""A pass whose layers are computed as soon as they are built gives what the model gives."""

from types import SimpleNamespace

import numpy as np
import pytest

from engine import dflash
from engine.dflash.target import cpu_fast_path
from engine.dflash.target.cpu_fast_path import ROWS, with_early_eval
from engine.lm import cache as lm_cache
from engine.mx import mx, nn, on_cpu, tree
from tests.engine import small_models as models
from tests.engine.dflash.target.test_taps import each_kind

pytestmark = pytest.mark.skipif(not on_cpu(), reason="a GPU is left alone")


@pytest.fixture
def started(monkeypatch):
    """What the device was given before the whole pass was built: the number of rows, each time."""
    rows = []

    def noted(hidden):
        rows.append(hidden.shape[-2])
        mx.async_eval(hidden)

    monkeypatch.setattr(cpu_fast_path, "mx", SimpleNamespace(async_eval=noted))
    return rows


@each_kind
def test_logits_and_caches_are_the_models_own(kind):
    model, tokens = kind(layers=4), models.tokens(45)
    mine, theirs = lm_cache.make_prompt_cache(model), lm_cache.make_prompt_cache(model)
    early, start = with_early_eval(model), 0
    for size in (7, 20, 1, 1, 16):
        chunk = tokens[:, start : start + size]
        start += size
        assert mx.array_equal(early(chunk, cache=mine), model(chunk, cache=theirs))
    states = [
        [leaf for _, leaf in tree.tree_flatten([one.state for one in caches])] for caches in (mine, theirs)
    ]
    for a, b in zip(*states, strict=True):
        np.testing.assert_array_equal(np.array(a), np.array(b))


def test_each_layer_but_the_last_is_begun_where_there_are_few_rows(started):
    early = with_early_eval(models.qwen3(layers=4))
    early(models.tokens(ROWS))
    assert started == [ROWS] * 3
    early(models.tokens(ROWS + 1))
    assert started == [ROWS] * 3


def test_the_model_is_left_as_it_is():
    model = models.qwen3(layers=4)
    before = [*map(type, model.layers)]
    early = with_early_eval(model)
    assert [*map(type, model.layers)] == before
    assert early.layers[0].self_attn is model.layers[0].self_attn
    with pytest.raises(AttributeError):
        early.layers[0].missing  # noqa: B018 - reading it is the test


def test_a_model_without_layers_and_a_gpu_are_left_alone(monkeypatch):
    model = nn.Linear(4, 4)
    assert with_early_eval(model) is model
    monkeypatch.setattr(cpu_fast_path, "on_cpu", lambda: False)
    model = models.qwen3(layers=4)
    assert with_early_eval(model) is model


def test_one_graph_is_one_graph(started):
    """The fused loop is there to be compared with, and so nothing of it begins early."""
    ids = [5, 6, 7] * 8
    for loop in ("fused", "lazy"):
        stream = dflash.stream_generate(
            models.qwen3(layers=4), None, None, ids, max_tokens=12, stop_tokens=(), loop=loop
        )
        assert [*stream]
        assert bool(started) == (loop == "lazy")
