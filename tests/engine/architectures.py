"""A small model of random weights for each architecture of mlx-lm that can be built so."""

import inspect
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from engine.lm import mlx_lm
from engine.mx import mx, tree

# Why an architecture of mlx-lm is not among them.
NOT_BUILT = {
    "bitnet": "its kernels need Metal",
    "deepseek_v41": "its caches are of a class of its own, for which no rollback is offered",
    "muse_spark": "its kernels need Metal",
    "olmo": "it needs the package ai2-olmo",
    "phi3small": "mlx-lm's own loop crashes in it on a CPU: block_masked_mm",
    "prism_hadamard_qwen35": "it is a packed form of qwen3_5",
}
# No rollback takes their caches back: our loop refuses them before it reads the prompt.
NOT_OFFERED = {"llama4": "ChunkedKVCache"}

VOCAB = 128
SLIDING = ["full_attention", "sliding_attention"] * 2
ROPE = {"rope_theta": 10000.0, "rope_type": "default"}
YARN = {"type": "yarn", "factor": 1.0, "mscale_all_dim": 0, "original_max_position_embeddings": 512}
LLAMA4 = {**ROPE, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 512, "factor": 1.0}
KDA = {
    "kda_layers": [1, 3],
    "full_attn_layers": [2, 4],
    "num_heads": 4,
    "head_dim": 16,
    "short_conv_kernel_size": 4,
}
SPARSE = {
    "sparse_num_index_heads": 2,
    "sparse_index_dim": 16,
    "sparse_block_size": 4,
    "sparse_topk_blocks": 2,
    "sparse_local_block": 1,
    "sparse_attention_freq": [0, 1, 0, 1],
}
ACTIVE = {"ffn_mult": 1.0}
NAS = [
    {"attention": {"n_heads_in_group": 2}, "ffn": ACTIVE},
    {"attention": {"no_op": True}, "ffn": ACTIVE},
    {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}},
    {"attention": {"n_heads_in_group": 2}, "ffn": ACTIVE},
]

# Fields by the value that they get in every architecture that has them.
COMMON = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCAB),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "model_max_length"), 512),
    **dict.fromkeys(
        ("hidden_size", "n_embd", "d_model", "model_dim", "embedding_size", "dim_model_base"), 64
    ),
    **dict.fromkeys(("intermediate_size", "intermediate_size_mlp", "n_inner", "hidden_dim"), 64),
    **dict.fromkeys(("ffn_hidden_size", "mlp_hidden_size", "block_dim", "mamba_d_ssm"), 64),
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size", "shared_intermediate_size"), 32),
    **dict.fromkeys(("shared_expert_intermediate_size",), 32),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_transformer_layers"), 4),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "mamba_num_heads"), 4),
    **dict.fromkeys(("swa_num_attention_heads", "linear_num_value_heads", "mamba_n_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "n_kv_heads", "num_kv_heads", "swa_num_key_value_heads"), 2),
    **dict.fromkeys(("linear_num_key_heads", "num_attention_groups", "index_n_heads"), 2),
    **dict.fromkeys(("head_dim", "v_head_dim", "qk_nope_head_dim", "swa_head_dim", "swa_v_head_dim"), 16),
    **dict.fromkeys(
        ("global_head_dim", "linear_key_head_dim", "linear_value_head_dim", "index_head_dim"), 16
    ),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "hidden_size_per_layer_input", "mamba_head_dim"), 16),
    **dict.fromkeys(
        ("state_size", "ssm_state_size", "mamba_d_state", "mamba_d_head", "mamba_chunk_size"), 16
    ),
    **dict.fromkeys(("qk_rope_head_dim", "rotary_dim", "a_low_rank_dim", "v_low_rank_dim"), 8),
    **dict.fromkeys(("gate_low_rank_dim", "decay_low_rank_dim", "block_multiple_of"), 8),
    **dict.fromkeys(("sliding_window", "sliding_window_size", "attention_window_size"), 8),
    "attention_chunk_size": 8,
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("conv_kernel", "linear_conv_kernel_dim", "mamba_d_conv", "conv1d_width"), 4),
    **dict.fromkeys(("index_topk", "time_step_rank"), 4),
    "conv_L_cache": 3,
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "zero_expert_num", "num_kv_reuse_layers"), 2),
    **dict.fromkeys(("conv_window", "sliding_window_pattern", "attn_layer_period", "expert_layer_period"), 2),
    **dict.fromkeys(("mamba_expand", "interleave_moe_layer_step", "layer_group_size", "expand"), 2),
    **dict.fromkeys(("num_kv_shared_layers", "full_attention_interval", "cla_share_factor"), 2),
    **dict.fromkeys(("first_k_dense_replace", "n_shared_experts", "num_shared_experts", "n_group"), 1),
    **dict.fromkeys(("topk_group", "decoder_sparse_step", "group_norm_size", "n_groups"), 1),
    **dict.fromkeys(("moe_layer_freq", "num_shared_expert", "attn_layer_offset", "expert_layer_offset"), 1),
    **dict.fromkeys(("num_dense_layers", "mamba_n_groups"), 1),
    **dict.fromkeys(("rms_norm_eps", "norm_eps", "layer_norm_eps", "layer_norm_epsilon"), 1e-5),
    "layernorm_epsilon": 1e-5,
    **dict.fromkeys(("rope_theta", "swa_rope_theta"), 10000.0),
    "rotary_emb_base": 10000,
    **dict.fromkeys(("partial_rotary_factor", "rotary_pct"), 0.5),
    "attention_multiplier": 0.25,
    "scale_depth": 1.4,
    **dict.fromkeys(("routed_scaling_factor", "logits_scaling", "embedding_multiplier"), 1.0),
    **dict.fromkeys(("residual_multiplier", "scale_emb", "block_ffn_dim_multiplier"), 1.0),
    "logits_soft_cap": 30.0,
    "time_step_limit": (0.001, 100.0),
    **dict.fromkeys(("norm_topk_prob", "use_qk_norm", "use_conv_bias", "conv_bias", "use_expert_bias"), True),
    **dict.fromkeys(("mla_scale_q_lora", "mla_scale_kv_lora", "use_mixed_mlp_moe", "use_qkv_bias"), True),
    "linear_allow_neg_eigval": True,
    **dict.fromkeys(("attention_bias", "tie_word_embeddings", "use_bias", "mlp_bias", "use_cla"), False),
    **dict.fromkeys(("block_auto_adjust_ff_dim", "mamba_proj_bias"), False),
    "mlp_only_layers": [],
    "sliding_window_layers": [1, 3],
    "block_size": 128,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "attention_method": "MLA",
    "zero_expert_type": "identity",
    "hidden_act": "silu",
}
GEMMA4 = {"num_hidden_layers": 6, "global_head_dim": 32}
CONV = {"layer_types": ["conv", "full_attention"] * 2}
BOTH = {"full_attention": ROPE, "sliding_attention": ROPE}
# What an architecture needs beside or instead.
OWN = {
    "afmoe": {"layer_types": SLIDING},
    "apertus": {"post_norm": True, "qk_norm": True},
    "dbrx": {
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
    },
    "deepseek_v2": {"rope_scaling": YARN, "topk_method": "greedy", "scoring_func": "softmax"},
    "exaone4": {"rope_scaling": {"rope_type": "default"}, "sliding_window_pattern": "LG"},
    "exaone_moe": {"layer_types": SLIDING, "is_moe_layer": [False, True] * 2},
    "gear": {"layer_types": ["conv_mixer", "full_attention", "sliding_attention", "conv_mixer"]},
    "gemma3n": {
        "rope_local_base_freq": 10000.0,
        "final_logit_softcapping": 30.0,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "num_hidden_layers": 6,
        "intermediate_size": [64] * 6,
        "activation_sparsity_pattern": [0.0] * 6,
        "altup_num_inputs": 2,
        "altup_coef_clip": 120.0,
        "altup_correct_scale": True,
        "altup_active_idx": 0,
        "laurel_rank": 8,
    },
    "gemma4": GEMMA4,
    "gemma4_text": GEMMA4,
    "glm4_moe": {"rope_scaling": None},
    "glm_moe_dsa": {"rope_parameters": ROPE},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2, "mamba_conv_bias": True},
    "hunyuan": {"rope_scaling": {"alpha": 1.0, "factor": 1.0, "type": "dynamic"}},
    "kimi_k3": {
        "hidden_act": "situ",
        "linear_attn_config": KDA,
        "activation_situ_beta": 1.0,
        "activation_situ_linear_beta": 1.0,
        "num_experts_per_token": 2,
    },
    "kimi_linear": {"linear_attn_config": KDA, "num_experts_per_token": 2},
    "lfm2": CONV,
    "lfm2-vl": CONV,
    "lfm2_moe": CONV,
    "llama4": {"rope_scaling": None, "num_experts_per_tok": 1},
    "llama4_text": {"no_rope_layers": [1, 0, 1, 0]},
    "mellum": {"layer_types": SLIDING, "rope_parameters": BOTH},
    "mimo_v2_flash": {
        "hybrid_layer_pattern": [0, 1, 0, 1],
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "moe_layer_freq": [0, 1, 1, 1],
    },
    "minicpm3": {
        "rope_scaling": {
            "short_factor": 1.0, "long_factor": 1.0, "original_max_position_embeddings": 512
        }
    },
    "minimax_m3_vl": {
        "moe_layer_freq": [0, 1, 1, 1], "sparse_attention_config": SPARSE, "dense_intermediate_size": 64
    },
    "ministral3": {"rope_parameters": LLAMA4, "layer_types": SLIDING},
    "mistral4": {"rope_parameters": LLAMA4},
    "nemotron-nas": {"block_configs": NAS},
    "nemotron_h": {"hybrid_override_pattern": list("M*-E"), "moe_shared_expert_intermediate_size": 32},
    "openelm": {
        "num_query_heads": [4] * 4, "num_kv_heads": [2] * 4, "ffn_dim_divisor": 8, "ffn_multipliers": [1.0] * 4
    },
    "plamo": {"n_shared_head": 2},
    "qwen": {"kv_channels": 16},
    "recurrent_gemma": {"block_types": ["recurrent", "recurrent", "attention"], "num_hidden_layers": 6},
    "spark2_5": {"rope_parameters": BOTH, "layer_types": SLIDING, "hidden_act": "gelu"},
    "step3p5": {
        "moe_top_k": 2,
        "share_expert_dim": 32,
        "layer_types": SLIDING,
        "attention_other_setting": {"num_attention_heads": 4, "num_attention_groups": 2},
    },
}  # fmt: skip


def names():
    """Return the architectures that mlx-lm has, but for those in NOT_BUILT."""
    folder = Path(mlx_lm.__file__).parent / "models"
    texts = {path.stem: path.read_text() for path in folder.glob("*.py")}
    found = {name for name, text in texts.items() if "class Model(" in text or "import Model" in text}
    return sorted(found - NOT_BUILT.keys())


def cases(sample):
    """Return the architectures as parameters of a test: those in the sample run always, the others in the sweep."""
    marks = {True: pytest.mark.rows(1), False: pytest.mark.sweep}
    return [pytest.param(name, marks=marks[name in sample]) for name in names()]


def build(name, **changes):
    """Return the architecture with four layers or six, and random weights."""
    module = import_module(f"mlx_lm.models.{name}")
    wanted = {"model_type": name, **COMMON, **OWN.get(name, {}), **changes}
    known = inspect.signature(module.ModelArgs).parameters
    if "text_config" in known:
        wanted = {"model_type": name, "vocab_size": VOCAB, "text_config": wanted}
    args = module.ModelArgs.from_dict({key: value for key, value in wanted.items() if key in known})
    return _seeded(module.Model(args))


def _seeded(model):
    rng = np.random.default_rng(0)

    def fill(_, leaf):
        if not mx.issubdtype(leaf.dtype, mx.floating) or not leaf.size:
            return leaf
        values = rng.standard_normal(leaf.shape)
        values = 1 + values / 10 if leaf.ndim < 2 else values / np.sqrt(leaf.shape[-1])
        return mx.array(values.astype(np.float32))

    model.update(tree.tree_map_with_path(fill, model.parameters()))
    return model.eval()
