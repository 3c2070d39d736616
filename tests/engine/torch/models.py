"""Small models of transformers with random weights."""

import torch
import transformers

torch.set_num_threads(1)  # the models are small, and several tests run at once

SIZES = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2,
}  # fmt: skip


def llama(**more):
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SIZES, "head_dim": 64, **more})).eval()


def gemma(**more):
    """Return a model with sliding layers."""
    torch.manual_seed(0)
    config = transformers.Gemma3TextConfig(**{**SIZES, "head_dim": 64, "sliding_window": 16, **more})
    return transformers.Gemma3ForCausalLM(config).eval()


def prompt(tokens=30, rows=1):
    return torch.randint(3, 128, (rows, tokens), generator=torch.Generator().manual_seed(7))
