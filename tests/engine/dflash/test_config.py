import json
import struct
from fnmatch import fnmatch
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest

from engine.dflash.config import DraftConfig
from engine.dflash.drafter import weights as on_disk
from engine.dflash.drafter.load import load_draft
from engine.dflash.drafter.weights import save_draft
from engine.errors import BadInput
from engine.mx import mx, nn, tree
from tests.engine import drafts

# The keys of a published drafter, for a Gemma 4 target.
PUBLISHED = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 2816,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 5632,
    "vocab_size": 262144,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "max_position_embeddings": 262144,
    "block_size": 16,
    "num_target_layers": 30,
    "final_logit_softcapping": 30.0,
    "layer_types": ["sliding_attention"] * 4 + ["full_attention"],
    "sliding_window": 2048,
    "use_sliding_window": True,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "attention_bias": False,
    "dflash_config": {"mask_token_id": 4, "target_layer_ids": [1, 6, 11, 17, 22, 27]},
}


def _with(*without, **changes):
    """The published keys, changed; a dotted name is within dflash_config."""
    data = json.loads(json.dumps(PUBLISHED))
    for name, value in changes.items():
        if name.startswith("dflash_"):
            data["dflash_config"][name.removeprefix("dflash_")] = value
        else:
            data[name] = value
    for name in without:
        data["dflash_config" if name == "dflash_config" else name] = None
    return data


def test_published_keys_are_read():
    config = DraftConfig.from_json(PUBLISHED)
    assert config.target_layer_ids == (1, 6, 11, 17, 22, 27)
    assert config.taps_size == 6 * 2816
    assert config.mask_token_id == 4
    assert config.final_logit_softcapping == 30.0
    assert [config.window(i) for i in range(5)] == [2048] * 4 + [None]
    assert [config.causal(i) for i in range(5)] == [True] * 4 + [False]
    assert not config.is_dflash2


def test_keys_that_stand_elsewhere():
    moved = _with("block_size", "rope_theta", "final_logit_softcapping", "layer_types", "is_causal")
    moved["dflash_config"] |= {"block_size": 8, "final_logit_softcapping": 20.0, "output_multiplier": 0.5}
    moved["rope_parameters"] = {"rope_type": "default", "rope_theta": 5e5}
    config = DraftConfig.from_json(moved)
    assert (config.block_size, config.final_logit_softcapping, config.rope_theta) == (8, 20.0, 5e5)
    assert config.layer_types == ("full_attention",) * 5
    assert config.output_multiplier == 0.5


@pytest.mark.parametrize("kind", [{}, drafts.MIXED, drafts.DFLASH2, {"rope_scaling": {"type": "linear"}}])
def test_what_is_written_is_read_back(kind):
    config = drafts.config(**kind)
    assert DraftConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


BAD = {
    "not an object": ([], "no dflash_config"),
    "another model": (_with("dflash_config"), "no dflash_config"),
    "missing": (_with("head_dim", "vocab_size"), "no head_dim, vocab_size"),
    "no mask": (_with(dflash_mask_token_id=None), "no mask_token_id"),
    "no taps": (_with(dflash_target_layer_ids=None), "no target_layer_ids"),
    "empty taps": (_with(dflash_target_layer_ids=[]), "target_layer_ids is [], not a list of layers"),
    "taps of text": (_with(dflash_target_layer_ids=["1"]), "target_layer_ids is ['1']"),
    "negative tap": (_with(dflash_target_layer_ids=[-1]), "target_layer_ids is [-1]"),
    "tap beyond": (_with(dflash_target_layer_ids=[1, 30]), "[1, 30] reaches beyond 30 layers"),
    "tap twice": (_with(dflash_target_layer_ids=[1, 1]), "[1, 1] repeats a layer"),
    "mask beyond": (_with(dflash_mask_token_id=262144), "mask_token_id is 262144, with 262144 tokens"),
    "size of text": (_with(hidden_size="2816"), "hidden_size is '2816', not a whole number of at least 1"),
    "size zero": (_with(hidden_size=0), "hidden_size is 0"),
    "boolean size": (_with(head_dim=True), "head_dim is True"),
    "endless": (_with(rope_theta=float("inf")), "rope_theta is inf, not a number"),
    "cap of text": (_with(final_logit_softcapping="30"), "final_logit_softcapping is '30', not a number"),
    "odd head": (_with(head_dim=127), "head_dim is 127"),
    "heads": (_with(num_key_value_heads=5), "32 heads are no multiple of 5"),
    "unknown layer": (_with(layer_types=["linear_attention"] * 5), "linear_attention: neither"),
    "too few layers": (_with(layer_types=["full_attention"]), "1 entries for 5 layers"),
    "no window": (_with("sliding_window"), "there is no sliding_window"),
    "two block sizes": (_with(dflash_block_size=8), "block_size is 16 at the top, 8 in dflash_config"),
    "two caps": (_with(dflash_final_logit_softcapping=20.0), "final_logit_softcapping is 30.0 at the top"),
    "two bases": (_with(rope_parameters={"rope_theta": 1.0}), "rope_theta is 1000000.0, and 1.0"),
    "ropes": (_with(rope_scaling={"full_attention": {}}), "not one object for all layers"),
    "causal": (_with(is_causal="no"), "is_causal is 'no', not true or false"),
    "architecture": (_with(architectures=["Qwen3ForCausalLM"]), "architectures is ['Qwen3ForCausalLM']"),
    "quantized": (_with(quantization={"bits": 4}), "the weights are quantized"),
    "activation": (_with(hidden_act="gelu"), "hidden_act is 'gelu', drafters have 'silu'"),
    "biases": (_with(attention_bias=True), "attention_bias is True"),
    "half a DFlash2": (_with(architectures=["DFlash2DraftModel"]), "no conv_kernel_size, conv_group_size"),
}


@pytest.mark.parametrize(("data", "said"), BAD.values(), ids=BAD)
def test_a_bad_configuration_is_refused(data, said):
    with pytest.raises(BadInput) as caught:
        DraftConfig.from_json(data, "the-file")
    assert caught.value.message.startswith("the-file: ")
    assert said in caught.value.message
    assert caught.value.fix


KINDS = {"full": {}, "mixed": drafts.MIXED, "dflash2": drafts.DFLASH2}


@pytest.mark.parametrize("kind", [*KINDS.values(), drafts.DSPARK], ids=[*KINDS, "dspark"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_drafter_saved_and_loaded(kind, dtype, tmp_path):
    made = drafts.drafter(**kind)
    save_draft(made, tmp_path / "new" / "draft", dtype)
    back = load_draft(str(tmp_path / "new" / "draft"))
    assert back.config == made.config
    want = dict(tree.tree_flatten(made.parameters()))
    for name, x in tree.tree_flatten(back.parameters()):
        assert x.dtype == on_disk.DTYPES[dtype]
        assert mx.array_equal(x, want[name].astype(x.dtype)), name
    save_draft(back, tmp_path / "again", dtype)
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "new" / "draft" / name).read_bytes()
    in_float = load_draft(tmp_path / "new" / "draft", dtype=mx.float32)
    assert {x.dtype for _, x in tree.tree_flatten(in_float.parameters())} == {mx.float32}
    assert sorted(x.name for x in (tmp_path / "new" / "draft").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_package_loads_what_is_written_here(kind, tmp_path, monkeypatch):
    made = drafts.drafter(**kind)
    theirs = drafts.in_package(made, tmp_path, monkeypatch)
    ours = {name.removesuffix(".weight"): x for name, x in tree.tree_flatten(made.parameters())}
    for name, x in tree.tree_flatten(theirs.parameters()):
        assert mx.array_equal(x, ours.pop(name.removesuffix(".weight"))), name
    assert ours == {}
    assert theirs.config.target_layer_ids == made.config.target_layer_ids


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_the_package_holds_is_loaded_here(kind, tmp_path, monkeypatch):
    """The package's parameters, under the names of the published files, with another seed's values."""
    theirs = drafts.in_package(drafts.drafter(**kind), tmp_path, monkeypatch)
    codebooks = ("predecessor_codebook.weight", "successor_codebook.weight")
    held = {
        name.removesuffix(".weight") if name.endswith(codebooks) else name: x * 2
        for name, x in tree.tree_flatten(theirs.parameters())
    }
    mx.save_safetensors(str(tmp_path / "model.safetensors"), held)
    back = load_draft(tmp_path)
    for name, x in tree.tree_flatten(back.parameters()):
        assert mx.array_equal(x, held.pop(name)), name
    assert held == {}


def test_weights_in_several_files(tmp_path):
    made = drafts.drafter()
    save_draft(made, tmp_path, "float32")
    whole = mx.load(str(tmp_path / "model.safetensors"))
    names = sorted(whole)
    (tmp_path / "model.safetensors").unlink()
    for i in range(3):
        shard = {name: whole[name] for name in names[i::3]}
        mx.save_safetensors(str(tmp_path / f"model-{i}-of-3.safetensors"), shard)
    back = dict(tree.tree_flatten(load_draft(tmp_path).parameters()))
    assert all(mx.array_equal(back[name], whole[name]) for name in names)


def _change(folder, change):
    file = folder / "model.safetensors"
    held = mx.load(str(file))
    mx.eval(held)
    change(held)
    mx.save_safetensors(str(file), held)


def _cut(folder, size):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])


def _second_file(folder):
    mx.save_safetensors(str(folder / "model-more.safetensors"), {"norm.weight": mx.ones((64,))})


def _of_integers(folder):
    _change(folder, lambda held: held.update({"norm.weight": mx.ones((64,), mx.int32)}))


def _header_of_a_list(folder):
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"[]")


def _of_another_shape(folder):
    file = folder / "model.safetensors"
    data = file.read_bytes()
    at = data.index(b'"shape":[64]', data.index(b'"norm.weight"'))
    file.write_bytes(data[:at] + b'"shape":[65]' + data[at + 12 :])


def _config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


DAMAGE = {
    "no configuration": (
        lambda f: (f / "config.json").unlink(),
        "has no config.json",
        "the folder of a model",
    ),
    "no JSON": (lambda f: (f / "config.json").write_text("{"), "config.json cannot be read", "again"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "holds no model*.safetensors", "again"),
    "pickles only": (
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
        "holds no model*.safetensors",
        "writes safetensors",
    ),
    "missing tensor": (
        lambda f: _change(f, lambda held: held.pop("layers.1.self_attn.k_norm.weight")),
        "lack layers.1.self_attn.k_norm.weight",
        "same checkpoint",
    ),
    "missing tensors": (
        lambda f: _change(f, lambda held: [held.pop(x) for x in list(held) if "mlp" in x]),
        "lack layers.0.mlp.down_proj.weight and 5 more",
        "same checkpoint",
    ),
    "extra tensor": (
        lambda f: _change(f, lambda held: held.update({"lm_head.weight": mx.ones((128, 64))})),
        "model.safetensors holds lm_head.weight, for which config.json has no use",
        "same checkpoint",
    ),
    "wrong shape": (
        lambda f: _change(f, lambda held: held.update({"fc.weight": mx.ones((64, 64))})),
        "model.safetensors: fc.weight is [64, 64], config.json says [64, 128]",
        "same checkpoint",
    ),
    "integers": (_of_integers, "model.safetensors: norm.weight is I32", "same checkpoint"),
    "twice": (_second_file, "norm.weight is in", "same checkpoint"),
    "cut in the data": (lambda f: _cut(f, -5), "is cut short", "again"),
    "cut in the header": (lambda f: _cut(f, 100), "cut short within its header", "again"),
    "cut in the length": (lambda f: _cut(f, 5), "is not a safetensors file, or is cut short", "again"),
    "empty": (lambda f: _cut(f, 0), "is not a safetensors file, or is cut short", "again"),
    "another format": (_header_of_a_list, "has a damaged header", "again"),
    "shorter than its shape": (_of_another_shape, "norm.weight is not as long as its shape says", "again"),
    "another architecture": (
        lambda f: _config(f, architectures=["LlamaForCausalLM"]),
        "architectures is ['LlamaForCausalLM']",
        "same checkpoint",
    ),
    "fewer layers": (
        lambda f: _config(f, num_hidden_layers=1, layer_types=None),
        "holds layers.1.input_layernorm.weight and 10 more",
        "same checkpoint",
    ),
}


@pytest.mark.parametrize(("damage", "said", "fix"), DAMAGE.values(), ids=DAMAGE)
def test_a_bad_folder_is_refused(damage, said, fix, tmp_path):
    save_draft(drafts.drafter(), tmp_path, "float32")
    damage(tmp_path)
    with pytest.raises(BadInput) as caught:
        load_draft(tmp_path)
    assert said in caught.value.message
    assert str(tmp_path) in caught.value.message
    assert fix in caught.value.fix


@pytest.mark.parametrize("name", ["/no/such/folder", "nothing", "./a/b", Path("a/b"), "a/b/c"])
def test_what_is_neither_folder_nor_hub_name_asks_nobody(name, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("asked"))
    with pytest.raises(BadInput, match="there is no folder"):
        load_draft(name)


def test_the_hub_is_asked_for_no_code_and_no_pickles(tmp_path, monkeypatch):
    asked = []
    save_draft(drafts.drafter(), tmp_path)
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, **more: asked.append((name, more)) or str(tmp_path)
    )
    assert load_draft("owner/name").config == drafts.config()
    ((name, more),) = asked
    assert (name, list(more)) == ("owner/name", ["allow_patterns"])
    for file in ("config.json", "model.safetensors"):
        assert any(fnmatch(file, pattern) for pattern in more["allow_patterns"])
    for file in ("modeling.py", "pytorch_model.bin", "model.pt"):
        assert not any(fnmatch(file, pattern) for pattern in more["allow_patterns"])


def test_a_hub_that_does_not_answer(monkeypatch):
    def fail(*args, **more):
        raise OSError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(BadInput, match="owner/name cannot be fetched: no route"):
        load_draft("owner/name")


def test_what_cannot_be_saved_is_refused_and_leaves_the_old(tmp_path):
    made = drafts.drafter()
    save_draft(made, tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    with pytest.raises(BadInput, match="no dtype 'int8'"):
        save_draft(made, tmp_path, "int8")
    nn.quantize(made, group_size=32, bits=8)
    with pytest.raises(BadInput, match="not those of its configuration"):
        save_draft(made, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot write"):
        save_draft(drafts.drafter(), tmp_path / "file" / "below")
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert np.array_equal(
        sorted(x.name for x in tmp_path.iterdir()), ["config.json", "file", "model.safetensors"]
    )
