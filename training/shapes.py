"""The shapes of the bundled family: deep rather than wide, because depth is what speculation saves."""

from typing import Any

from training.tokenizer import CHAT_MARKS, SPECIAL, VOCABULARY

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 256, 8, 4, 2, 64
POSITIONS = 4096
WINDOW, PATTERN = 128, 4  # the hybrid's sliding window; every fourth layer sees everything
BLOCK = 8

COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 2 * HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": POSITIONS,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "bos_token_id": None,
    "eos_token_id": [SPECIAL.index("<|endoftext|>"), SPECIAL.index("<|im_end|>")],
    "pad_token_id": SPECIAL.index("<|endoftext|>"),
}

QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    **COMMON,
    "hidden_act": "silu",
    "rope_theta": 10_000.0,
    "use_sliding_window": False,
}

GEMMA3: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    **COMMON,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": HEAD_DIM,
    "rope_theta": 10_000.0,
    "rope_local_base_freq": 10_000.0,
    "sliding_window": WINDOW,
    "sliding_window_pattern": PATTERN,
    "layer_types": [
        "full_attention" if (i + 1) % PATTERN == 0 else "sliding_attention" for i in range(LAYERS)
    ],
    "final_logit_softcapping": None,
    "attn_logit_softcapping": None,
}

# Six layers are enough for short turns. It starts from the first six of the other Qwen3 target.
CHAT = {**QWEN3, "vocab_size": VOCABULARY + len(CHAT_MARKS), "num_hidden_layers": 6}

TARGETS = {"tiny": QWEN3, "tiny-hybrid": GEMMA3, "tiny-chat": CHAT}
