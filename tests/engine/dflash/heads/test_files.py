"""Heads on disk: the published forms that are read, and what is refused with a reason."""

import json

import numpy as np
import pytest

from engine.checkpoints import files
from engine.dflash.drafter.load import load_draft
from engine.dflash.heads.weights import save_eagle3
from engine.dflash.kinds import is_drafter_alone, kind_of
from engine.errors import BadInput
from engine.models.fit import check_fit
from engine.mx import load, mx, nn, tree
from tests.engine import heads
from tests.engine import small_models as models

IDS = "eagle_aux_hidden_state_layer_ids"


def _stored(folder):
    (path,) = files.weight_files(folder)
    return {name: mx.array(np.array(x)) for name, x in load(path).items()}


def _write(folder, data, tensors, **metadata):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(data))
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, metadata)
    return folder


def _eagle3(folder, changes=None, nested=None, without=(), tensors=None, **kind):
    """Write a head in SpecForge's form with changes; a tensor that is None is left out."""
    save_eagle3(heads.eagle3(**kind), folder, "float32")
    data = json.loads((folder / "config.json").read_text())
    data["eagle_config"].update(nested or {})
    data = {**data, **(changes or {})}
    for key in without:
        data.pop(key, None)
        data["eagle_config"].pop(key, None)
    stored = {**_stored(folder), **(tensors or {})}
    return _write(folder, data, {name: x for name, x in stored.items() if x is not None})


def _same(a, b):
    flat = dict(tree.tree_flatten(b.parameters()))
    return all(mx.array_equal(x, flat[name]).item() for name, x in tree.tree_flatten(a.parameters()))


@pytest.mark.parametrize("kind", [{}, {"fc_norm": True}, {"qk_norm": True, "own_embeddings": True}], ids=str)
def test_what_is_written_is_read_again(kind, tmp_path):
    head = heads.eagle3(**kind)
    save_eagle3(head, tmp_path, "float32")
    back = load_draft(tmp_path)
    assert (back.config, back.ids) == (head.config, head.ids)
    assert _same(back, head)
    assert load_draft(tmp_path, mx.float16).fc.weight.dtype == mx.float16
    assert np.array(_stored(tmp_path)["d2t"]).tolist() == [x - i for i, x in enumerate(heads.IDS)]


def test_the_form_of_speculators(tmp_path):
    head = heads.eagle3(norm_before_residual=True, own_embeddings=True)
    save_eagle3(head, tmp_path, "float32")
    data = json.loads((tmp_path / "config.json").read_text())
    body = {
        key: data[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    }
    body |= {key: data[key] for key in ("intermediate_size", "vocab_size", "rms_norm_eps", "rope_theta")}
    speculators = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": {"model_type": "llama", **body},
        "draft_vocab_size": 48,
        "target_hidden_size": None,
        "norm_before_residual": True,
        "norm_output": False,
        IDS: [1, 2, 4],  # boundaries before layers
        "speculators_config": {"proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}]},
    }
    renamed = {name.replace("midlayer.", "layers.0."): x for name, x in _stored(tmp_path).items()}
    back = load_draft(_write(tmp_path / "other", speculators, renamed))
    assert (back.config.layer_ids, back.config.verified_rows) == ((0, 1, 3), 4)
    assert _same(back, head)


@pytest.mark.parametrize(
    ("ids", "layers", "found"),
    [
        (None, 30, (1, 14, 26)),  # what all implementations take
        ([1, 14, 26], 30, (1, 14, 26)),  # the same, as SpecForge writes it
        ([2, 15, 27], 30, (1, 14, 26)),  # the same, as vLLM and SGLang write it
    ],
)
def test_layers_that_only_one_convention_explains(ids, layers, found, tmp_path):
    folder = _eagle3(tmp_path, nested={IDS: ids}, without=["layer_ids_count"])
    head = load_draft(folder, layers=layers)
    assert (head.config.layer_ids or head.config.default_layer_ids(layers)) == found


RANDOM = mx.array(np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32))
REFUSED = {
    "no convention": ({"without": ["layer_ids_count"]}, "own numbers or boundaries"),
    "another convention": ({"nested": {"layer_ids_count": "inputs"}}, "layer_ids_count is 'inputs'"),
    "the embeddings": ({"nested": {"layer_ids_count": "boundaries"}}, "reaches the embeddings"),
    "layers twice": ({"nested": {IDS: [1, 1, 2]}}, "not a list of different layers"),
    "layers at two levels": ({"changes": {IDS: [1, 2, 3]}}, "at another"),
    "no d2t": ({"tensors": {"d2t": None, "t2d": None}}, "no d2t says which"),
    "d2t of ids": ({"tensors": {"d2t": mx.array(heads.IDS, mx.int64)}}, "differences of ids"),
    "a shorter d2t": ({"tensors": {"d2t": mx.zeros((4,), mx.int64)}}, "d2t is I64"),
    "another t2d": ({"tensors": {"t2d": mx.ones((128,), mx.bool_)}}, "different tokens"),
    "no lm_head": ({"tensors": {"lm_head.weight": None}}, "drafts are random"),
    "no norm": ({"tensors": {"norm.weight": None}}, "lack norm.weight"),
    "an unknown tensor": ({"tensors": {"verifier_norm.weight": mx.ones((64,))}}, "verifier_norm.weight"),
    "another shape": ({"tensors": {"fc.weight": mx.ones((64, 128))}}, r"fc.weight is \[64, 128\]"),
    "another vocabulary": ({"changes": {"draft_vocab_size": 40}}, r"lm_head.weight is \[48, 64\]"),
    "an output norm": ({"changes": {"norm_output": True}}, "SpecForge changed what it means"),
    "no output norm": ({"changes": {"norm_output": False}}, "SpecForge changed what it means"),
    "both norms": ({"changes": {"norm_before_fc": True, "fc_norm": True}}, "exclude each other"),
    "a norm without tensors": ({"changes": {"norm_before_fc": True}}, "lack input_norm.weight"),
    "tensors without their norm": (
        {"tensors": {f"fc_norm.{i}.weight": mx.ones((64,)) for i in range(3)}}, "fc_norm.0.weight and 2 more",
    ),
    "no taps": ({"nested": {"use_aux_hidden_state": False}}, "use_aux_hidden_state is False"),
    "drafts in parallel": ({"nested": {"parallel_draft_step": 4}}, "parallel_draft_step is 4"),
    "an unknown key": ({"nested": {"use_tree": True}}, "eagle_config has use_tree"),
    "two layers": ({"changes": {"num_hidden_layers": 2}}, "num_hidden_layers is 2"),
    "another activation": ({"changes": {"hidden_act": "gelu"}}, "hidden_act is 'gelu'"),
    "quantized": ({"changes": {"quantization": {"bits": 4}}}, "quantized"),
    "no size": ({"without": ["intermediate_size"]}, "intermediate_size is None"),
    "EAGLE-1": (
        {"changes": {"architectures": ["LlamaForCausalLMEagle"], "eagle_config": None}}, "none of the kinds"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("case", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_unknown_or_ambiguous_is_refused(case, message, tmp_path):
    with pytest.raises(BadInput, match=message):
        load_draft(_eagle3(tmp_path, **case))


def test_eagle_3_1_can_be_said(tmp_path):
    assert load_draft(_eagle3(tmp_path, {"norm_feedback": True})).config.norm_feedback


def _mtp_tensors(prefix, less, **kind):
    head = heads.mtp(**kind)
    weights = dict(tree.tree_flatten(head.parameters()))
    return head, {
        prefix + name: x - 1 if less and x.ndim == 1 and "norm" in name else x for name, x in weights.items()
    }


NAMES = {
    "published": ("mtp.", True, {"format": "pt"}),
    "published, of text and images": ("model.language_model.mtp.", True, {"format": "pt"}),
    "converted": ("language_model.mtp.", False, {"format": "mlx"}),
}


@pytest.mark.parametrize(("prefix", "less", "metadata"), NAMES.values(), ids=NAMES)
def test_the_head_in_its_targets_files(prefix, less, metadata, tmp_path):
    """Published norms are stored less one, which is added exactly once."""
    head, tensors = _mtp_tensors(prefix, less)
    rest = {
        "model.norm.weight": mx.ones((64,)),
        "model.layers.0.linear_attn.conv1d.weight": mx.ones((8, 1, 4)),
    }
    if not less:
        rest["model.layers.0.linear_attn.conv1d.weight"] = mx.ones((8, 4, 1))
    folder = _write(tmp_path, {**heads.QWEN, "mtp_num_hidden_layers": 1}, {**tensors, **rest}, **metadata)
    back = load_draft(folder)
    flat = dict(tree.tree_flatten(head.parameters()))
    for name, x in tree.tree_flatten(back.parameters()):
        np.testing.assert_allclose(x, flat[name], atol=1e-6)
    back.bind(models.qwen3_5())


def test_a_head_that_was_split_off_and_one_beside_its_target(tmp_path):
    head, tensors = _mtp_tensors("", less=False)
    split = {
        "model_type": "qwen3_5_mtp",
        "text_config": {**heads.QWEN, "model_type": "qwen3_5_text"},
        "block_size": 3,
    }
    back = load_draft(_write(tmp_path / "split", split, tensors, format="mlx"))
    assert _same(back, head)
    assert back.config.verified_rows == 3
    beside = _write(tmp_path / "beside", heads.QWEN, {"model.norm.weight": mx.ones((64,))}, format="mlx")
    _, tensors = _mtp_tensors("mtp.", less=True)
    mx.save_safetensors(str(beside / "mtp.safetensors"), tensors, {"format": "pt"})
    found = load_draft(beside)
    assert found.config.verified_rows == 4
    np.testing.assert_allclose(found.norm.weight, head.norm.weight, atol=1e-6)


@pytest.mark.parametrize("fused", [False, True])
def test_experts(fused, tmp_path):
    head, tensors = _mtp_tensors("mtp.", less=True, **heads.MOE)
    inside = "mtp.layers.0.mlp."
    parts = {
        part: tensors.pop(f"{inside}switch_mlp.{part}.weight")
        for part in ("gate_proj", "up_proj", "down_proj")
    }
    if fused:
        both = mx.concatenate([parts["gate_proj"], parts["up_proj"]], axis=1)
        tensors |= {f"{inside}experts.gate_up_proj": both, f"{inside}experts.down_proj": parts["down_proj"]}
    else:
        tensors |= {f"{inside}experts.{e}.{part}.weight": x[e] for part, x in parts.items() for e in range(4)}
    back = load_draft(_write(tmp_path, {**heads.QWEN, **heads.MOE}, tensors, format="pt"))
    name = "gate_proj"
    ours, theirs = (each.layers[0].mlp.switch_mlp[name].weight for each in (back, head))
    assert mx.array_equal(ours, theirs).item()


def test_a_quantized_head(tmp_path):
    head, _ = _mtp_tensors("", less=False)
    nn.quantize(
        head,
        group_size=32,
        bits=4,
        class_predicate=lambda path, m: hasattr(m, "to_quantized") and path != "fc",
    )
    tensors = {f"mtp.{name}": x for name, x in tree.tree_flatten(head.parameters())}
    data = {**heads.QWEN, "quantization": {"group_size": 32, "bits": 4}}
    back = load_draft(_write(tmp_path, data, tensors, format="mlx"), mx.float32)
    assert _same(back, head)
    with pytest.raises(BadInput, match="does not say how"):
        load_draft(_write(tmp_path, heads.QWEN, tensors, format="mlx"))


MTP_REFUSED = {
    "stripped": ({}, {"mtp.": None}, "holds no MTP head"),
    "deeper": ({"mtp_num_hidden_layers": 2}, {}, "mtp_num_hidden_layers is 2"),
    "own embeddings": ({"mtp_use_dedicated_embeddings": True}, {}, "embeddings of its own"),
    "another layer": ({}, {"mtp.layers.1.mlp.up_proj.weight": mx.ones((64, 64))}, "layers.1.mlp"),
    "no norm": ({}, {"mtp.norm.weight": None}, "lack norm.weight"),
    "another shape": ({}, {"mtp.fc.weight": mx.ones((64, 64))}, r"fc.weight is \[64, 64\]"),
    "halves": ({}, {"model.layers.0.linear_attn.conv1d.weight": mx.ones((8, 4, 1))}, "cannot be told"),
    "a family that is not known": ({"model_type": "deepseek_v3_mtp"}, {}, "no MTP head is known"),
}


@pytest.mark.parametrize(("changes", "tensors", "message"), MTP_REFUSED.values(), ids=MTP_REFUSED)
def test_mtp_heads_that_are_refused(changes, tensors, message, tmp_path):
    _, stored = _mtp_tensors("mtp.", less=True)
    stored = {"model.norm.weight": mx.ones((64,)), **stored, **tensors}
    left_out = [key for key, x in tensors.items() if x is None]
    stored = {name: x for name, x in stored.items() if not any(name.startswith(key) for key in left_out)}
    with pytest.raises(BadInput, match=message):
        load_draft(_write(tmp_path, {**heads.QWEN, **changes}, stored, format="pt"))


def test_a_target_without_a_known_head_is_refused(tmp_path):
    folder = _write(tmp_path, {**heads.QWEN, "model_type": "llama"}, {"model.norm.weight": mx.ones((64,))})
    with pytest.raises(BadInput, match="no MTP head is known for the model type llama"):
        load_draft(folder, kind="mtp")


def test_which_configurations_are_drafters(tmp_path):
    eagle3 = json.loads((_eagle3(tmp_path) / "config.json").read_text())
    assert kind_of(eagle3) == "eagle3"
    assert is_drafter_alone(eagle3)
    assert kind_of(heads.QWEN) == "mtp"
    assert not is_drafter_alone(heads.QWEN)
    assert kind_of({"model_type": "llama"}) is None
    with pytest.raises(BadInput, match="holds a drafter"):
        check_fit({}, eagle3)
    with pytest.raises(BadInput, match="128 tokens"):
        check_fit(eagle3, {**heads.QWEN, "vocab_size": 256})
    check_fit({**eagle3, "hidden_size": 32, "target_hidden_size": 64}, heads.QWEN)
