"""Model folders as they lie on disk: random weights in the published shapes, and a real tokenizer."""

import json

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engine.models import load
from engine.mx import mx
from engine.restore.cache import restored_layers
from engine.restore.weights import save_restorer, target_digest
from engine.train.restorer.fit import fit

VOCAB = 320
MASK = 319
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 96,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCAB,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 0,
}
GEMMA3 = {
    **QWEN3,
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "query_pre_attn_scalar": 64,
    "sliding_window": 16,
    "sliding_window_pattern": 2,
}
DRAFT = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "intermediate_size": 96,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "block_size": 8,
    "num_target_layers": 4,
    "layer_types": ["full_attention"],
    "tie_word_embeddings": False,
    "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [1, 2]},
}


def write_target(folder, config=None, *, seed=0, dtype="float16"):
    """Write a target with random weights and a tokenizer of bytes."""
    config = {**QWEN3, **(config or {})}
    hidden, heads, kv, dim = (
        config[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    )
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    gemma = config["model_type"] == "gemma3_text"
    norms = ("pre_feedforward_layernorm", "post_feedforward_layernorm") if gemma else ()
    for layer in range(config["num_hidden_layers"]):
        shapes |= _block(f"model.layers.{layer}", hidden, heads, kv, dim, config["intermediate_size"])
        shapes |= {f"model.layers.{layer}.{name}.weight": (hidden,) for name in norms}
    _write(folder, config, shapes, seed, dtype, unit_norm=0.0 if gemma else 1.0)
    write_tokenizer(folder)
    return folder


def write_draft(folder, config=None, *, seed=1, dtype="float16"):
    """Write a drafter with random weights under the published names."""
    config = {**DRAFT, **(config or {})}
    hidden, taps = config["hidden_size"], len(config["dflash_config"]["target_layer_ids"])
    shapes = {"fc.weight": (hidden, taps * hidden), "hidden_norm.weight": (hidden,), "norm.weight": (hidden,)}
    for layer in range(config["num_hidden_layers"]):
        heads = (config["num_attention_heads"], config["num_key_value_heads"])
        shapes |= _block(f"layers.{layer}", hidden, *heads, config["head_dim"], config["intermediate_size"])
    _write(folder, config, shapes, seed, dtype)
    return folder


def write_walker(folder, period=20):
    """Write a pair whose target follows every token by the next of its group of ``period``, by a wide margin.

    The drafter knows nothing of it.
    """
    write_target(folder / "target", {"tie_word_embeddings": False, "num_hidden_layers": 2})
    taps = {"mask_token_id": MASK, "target_layer_ids": [0, 1]}
    write_draft(folder / "draft", {"num_target_layers": 2, "dflash_config": taps})
    groups = np.arange(VOCAB).reshape(-1, period)
    before = np.roll(groups, 1, axis=1).reshape(-1)

    def change(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"][mx.array(before)]
        for name in tensors:
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                tensors[name] = 0.1 * tensors[name]

    change_tensors(folder / "target", change)
    return folder


def write_pair(folder, target=None, draft=None, **options):
    """Write a folder that holds a pair."""
    write_target(folder / "target", target, **options)
    write_draft(folder / "draft", draft, **options)
    return folder


def write_restorer(pair, folder):
    """Fit a restorer of a pair's sliding layers, which reads its drafter, and write it into a folder of its own."""
    loaded = load(pair)
    layers = restored_layers(loaded.target, sliding=True)
    digests = (target_digest(pair / "target"), target_digest(pair / "draft"))
    rows = [np.random.default_rng(i).integers(1, MASK, 64).tolist() for i in range(3)]
    save_restorer(
        fit(loaded.target, loaded.draft.bind(loaded.target), layers, rows, rank=16, digests=digests), folder
    )
    return folder


def write_tokenizer(folder, tokens=VOCAB):
    """Write a tokenizer of single bytes, an end of text and as many unused tokens as it takes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    unused = [f"<unused{i}>" for i in range(tokens - len(alphabet) - 1)]
    vocabulary = {token: i for i, token in enumerate(["<|end|>", *alphabet, *unused])}
    made = Tokenizer(models.BPE(vocabulary, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_tensors(folder, change):
    """Let ``change`` edit the dictionary of tensors, and write the file anew."""
    path = folder / "model.safetensors"
    tensors = mx.load(str(path))
    mx.eval(tensors)
    change(tensors)
    mx.save_safetensors(str(path), tensors)


def _block(name, hidden, heads, kv, dim, inner):
    return {
        f"{name}.input_layernorm.weight": (hidden,),
        f"{name}.post_attention_layernorm.weight": (hidden,),
        f"{name}.self_attn.q_proj.weight": (heads * dim, hidden),
        f"{name}.self_attn.k_proj.weight": (kv * dim, hidden),
        f"{name}.self_attn.v_proj.weight": (kv * dim, hidden),
        f"{name}.self_attn.o_proj.weight": (hidden, heads * dim),
        f"{name}.self_attn.q_norm.weight": (dim,),
        f"{name}.self_attn.k_norm.weight": (dim,),
        f"{name}.mlp.gate_proj.weight": (inner, hidden),
        f"{name}.mlp.up_proj.weight": (inner, hidden),
        f"{name}.mlp.down_proj.weight": (hidden, inner),
    }


def _write(folder, config, shapes, seed, dtype, unit_norm=1.0):
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {
        name: mx.full(shape, unit_norm)
        if len(shape) == 1
        else mx.array((rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32))
        for name, shape in shapes.items()
    }
    kind = getattr(mx, dtype)
    mx.save_safetensors(str(folder / "model.safetensors"), {k: v.astype(kind) for k, v in tensors.items()})
