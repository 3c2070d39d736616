"""How much a model can read, whatever its configuration calls it; and that no way to decode reads past it."""

from types import SimpleNamespace

import pytest

from engine.dflash import stream_generate
from engine.dflash.target.context import NAMES, check_context, context_of, note_context, room, tokens_of
from engine.errors import BadInput
from engine.live_bytes import live_bytes
from engine.lm import cache as lm_cache
from engine.mx import nn
from tests.engine import architectures, small_models


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("nested", [False, True])
def test_a_configuration_states_the_context_by_any_name(name, nested):
    model, stated = nn.Module(), {name: 300}
    note_context(model, {"text_config": stated} if nested else stated)
    assert context_of(model) == 300


@pytest.mark.parametrize(
    ("config", "context"),
    [
        ({}, None),
        ({"n_positions": None, "n_ctx": 64}, 64),
        ({"max_position_embeddings": True, "seq_length": 64}, 64),
        ({"max_position_embeddings": 0, "seq_length": "64"}, None),
        ({"n_positions": 32, "text_config": {"n_positions": 64}}, 64),
    ],
)
def test_what_is_no_context_is_passed_over(config, context):
    model = nn.Module()
    note_context(model, config)
    assert context_of(model) == context


def test_a_model_says_it_if_its_configuration_does_not():
    model = nn.Module()
    model.args = SimpleNamespace(text_config={"n_positions": 2048})
    note_context(model, {})
    assert context_of(model) == 2048


def test_a_table_of_positions_is_the_limit_whatever_the_configuration_says():
    model = architectures.build("gpt2")
    note_context(model, {"max_position_embeddings": 4096})
    assert context_of(model) == 512


def test_a_prompt_that_does_not_fit_is_refused_and_an_answer_ends_with_the_context():
    model = architectures.build("gpt2")
    with pytest.raises(BadInput, match="512 tokens, and the model reads 512"):
        stream_generate(model, None, None, [1] * 512, max_tokens=1)
    steps = list(stream_generate(model, None, None, [1] * 510, max_tokens=9, stop_tokens=()))
    assert sum(len(step.tokens) for step in steps) == 2
    assert steps[-1].finish_reason == "length"
    with pytest.raises(BadInput, match="513 tokens are more than the 512"):
        check_context(model, "gpt2", 513)


def test_what_the_caches_hold_counts():
    model, caches = architectures.build("gpt2"), None
    caches = lm_cache.make_prompt_cache(model)
    list(stream_generate(model, None, None, [1] * 500, max_tokens=1, caches=caches, stop_tokens=()))
    with pytest.raises(BadInput, match="the model reads 512"):
        stream_generate(model, None, None, [1] * 20, max_tokens=1, caches=caches)
    assert room(model, 500) == 12


@pytest.mark.parametrize("token", [-1, 128, 1 << 20])
def test_a_token_without_an_embedding_is_refused(token):
    model = small_models.llama()
    assert tokens_of(model) == 128
    with pytest.raises(BadInput, match=f"no token {token}"):
        stream_generate(model, None, None, [1, token], max_tokens=1)


def test_caches_that_hold_nothing_take_no_memory():
    empty = [lm_cache.QuantizedKVCache(), lm_cache.KVCache(), lm_cache.ArraysCache(2)]
    assert live_bytes([*empty, lm_cache.CacheList(*empty)]) == 0
