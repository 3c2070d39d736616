"""Small random models of mlx-lm's own classes, and data for attention."""

from importlib import import_module
from itertools import pairwise

import numpy as np

from engine.lm import mlx_lm  # noqa: F401 - its models come after it
from engine.mx import mx, tree

SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 128,
    "rms_norm_eps": 1e-6,
}


def llama(layers=2, head_dim=64, heads=4, kv_heads=2, vocab=128):
    changes = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab}
    return _make("llama", layers, head_dim=head_dim, **changes)


def qwen3(layers=2, vocab=128):
    rest = {"rope_theta": 10000.0, "max_position_embeddings": 4096, "tie_word_embeddings": True}
    return _make("qwen3", layers, vocab_size=vocab, **rest)


def qwen3_5(layers=4):
    """Gated delta layers, every second one of attention."""
    module = import_module("mlx_lm.models.qwen3_5")
    args = module.TextModelArgs(
        **SHAPE,
        num_hidden_layers=layers,
        linear_num_value_heads=2,
        linear_num_key_heads=1,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        full_attention_interval=2,
    )
    return seeded(module.TextModel(args))


def gemma3(layers=4, window=16):
    return _make(
        "gemma3_text", layers, num_key_value_heads=1, sliding_window=window, sliding_window_pattern=2
    )


def gemma2(layers=2):
    return _make("gemma2", layers)


def gemma4(layers=6):
    """Sliding and full layers of unequal head sizes, the last two sharing earlier ones' keys and values."""
    return _make(
        "gemma4_text",
        layers,
        num_key_value_heads=1,
        global_head_dim=128,
        vocab_size_per_layer_input=128,
        num_kv_shared_layers=2,
        hidden_size_per_layer_input=16,
        sliding_window=16,
        sliding_window_pattern=2,
    )


def gpt_oss():
    """Attention sinks, and a window."""
    return _make("gpt_oss", 2, num_local_experts=2, num_experts_per_tok=1, sliding_window=16)


def tokens(n, seed=0, vocab=128):
    return mx.array(np.random.default_rng(seed).integers(0, vocab, (1, n)))


def read(model, caches, tokens, chunk):
    """Read a prompt in chunks and its last three tokens one at a time; return the last logits."""
    cuts = [*range(0, tokens.shape[1] - 3, chunk), *range(tokens.shape[1] - 3, tokens.shape[1] + 1)]
    for start, stop in pairwise(cuts):
        logits = model(tokens[:, start:stop], cache=caches)
        mx.eval(logits, [cache.state for cache in caches])
    return logits[0, -1]


def seeded(model):
    """Fill a model with random weights, the same for the same shapes."""
    rng = np.random.default_rng(0)

    def fill(path, leaf):
        if leaf.ndim < 2:
            return mx.ones(leaf.shape)
        return mx.array((rng.standard_normal(leaf.shape) / np.sqrt(leaf.shape[-1])).astype(np.float32))

    model.update(tree.tree_map_with_path(fill, model.parameters()))
    return model.eval()


def _make(kind, layers, **changes):
    module = import_module(f"mlx_lm.models.{kind}")
    args = module.ModelArgs(**{"model_type": kind, "num_hidden_layers": layers, **SHAPE, **changes})
    return seeded(module.Model(args))
