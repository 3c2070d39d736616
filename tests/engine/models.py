"""Small random models of mlx-lm's own classes, and data for attention."""

from importlib import import_module

import numpy as np

from engine.lm import mlx_lm  # noqa: F401 - its models come after it
from engine.mx import mx, tree


def llama(layers=2, head_dim=64, heads=4, kv_heads=2, vocab=128):
    module = import_module("mlx_lm.models.llama")
    args = module.ModelArgs(
        model_type="llama",
        hidden_size=64,
        num_hidden_layers=layers,
        intermediate_size=64,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        rms_norm_eps=1e-5,
        vocab_size=vocab,
        head_dim=head_dim,
    )
    return _seeded(module.Model(args))


def qwen3(layers=2, vocab=128):
    module = import_module("mlx_lm.models.qwen3")
    args = module.ModelArgs(
        model_type="qwen3",
        hidden_size=64,
        num_hidden_layers=layers,
        intermediate_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-6,
        vocab_size=vocab,
        head_dim=64,
        rope_theta=10000.0,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    return _seeded(module.Model(args))


def qwen3_5(layers=4):
    """Gated delta layers, every second one of attention."""
    module = import_module("mlx_lm.models.qwen3_5")
    args = module.TextModelArgs(
        hidden_size=64,
        num_hidden_layers=layers,
        intermediate_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        vocab_size=128,
        linear_num_value_heads=2,
        linear_num_key_heads=1,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        full_attention_interval=2,
    )
    return _seeded(module.TextModel(args))


def gemma3(layers=4, window=16):
    module = import_module("mlx_lm.models.gemma3_text")
    args = module.ModelArgs(
        model_type="gemma3_text",
        hidden_size=64,
        num_hidden_layers=layers,
        intermediate_size=64,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=64,
        rms_norm_eps=1e-6,
        vocab_size=128,
        sliding_window=window,
        sliding_window_pattern=2,
    )
    return _seeded(module.Model(args))


def gemma2(layers=2):
    module = import_module("mlx_lm.models.gemma2")
    args = module.ModelArgs(
        model_type="gemma2",
        hidden_size=64,
        num_hidden_layers=layers,
        intermediate_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        rms_norm_eps=1e-6,
        vocab_size=128,
    )
    return _seeded(module.Model(args))


def gemma4(layers=6):
    """Sliding and full layers of unequal head sizes, the last two sharing earlier ones' keys and values."""
    module = import_module("mlx_lm.models.gemma4_text")
    args = module.ModelArgs(
        hidden_size=64,
        num_hidden_layers=layers,
        intermediate_size=64,
        num_attention_heads=4,
        head_dim=64,
        global_head_dim=128,
        vocab_size=128,
        vocab_size_per_layer_input=128,
        num_kv_shared_layers=2,
        hidden_size_per_layer_input=16,
        sliding_window=16,
        sliding_window_pattern=2,
    )
    return _seeded(module.Model(args))


def gpt_oss():
    """Attention sinks, and a window."""
    module = import_module("mlx_lm.models.gpt_oss")
    args = module.ModelArgs(
        num_hidden_layers=2,
        num_local_experts=2,
        num_experts_per_tok=1,
        vocab_size=128,
        hidden_size=64,
        intermediate_size=64,
        head_dim=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=16,
    )
    return _seeded(module.Model(args))


def tokens(n, seed=0, vocab=128):
    return mx.array(np.random.default_rng(seed).integers(0, vocab, (1, n)))


def _seeded(model):
    rng = np.random.default_rng(0)

    def fill(path, leaf):
        if leaf.ndim < 2:
            return mx.ones(leaf.shape)
        return mx.array((rng.standard_normal(leaf.shape) / np.sqrt(leaf.shape[-1])).astype(np.float32))

    model.update(tree.tree_map_with_path(fill, model.parameters()))
    return model.eval()
