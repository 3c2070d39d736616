"""A model that says a given text after a prompt of ``PROMPT`` tokens: a GPT-2 whose position decides the next token.

Its tokens are bytes, so a character beyond ASCII takes several.
"""

import json

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engine.mx import mx

PROMPT, POSITIONS = 640, 1536
END = "<|im_end|>"
MARKS = ["<|endoftext|>", "<|im_start|>", END, "<think>", "</think>", "<tool_call>", "</tool_call>"]


def tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({character: i for i, character in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    return made


def write_parrot(folder, text, template):
    """Write the model's folder."""
    folder.mkdir(parents=True)
    made = tokenizer()
    made.save(str(folder / "tokenizer.json"))
    end, size = made.token_to_id(END), made.get_vocab_size()
    width = -(-size // 64) * 64
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({**about, "clean_up_tokenization_spaces": False})
    )
    shape = {
        "n_embd": width,
        "n_head": width // 64,
        "n_layer": 2,
        "n_ctx": POSITIONS,
        "n_positions": POSITIONS,
    }
    config = {
        "model_type": "gpt2",
        "layer_norm_epsilon": 1e-5,
        "vocab_size": size,
        "eos_token_id": end,
        **shape,
    }
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": POSITIONS}))
    tokens = made.encode(text, add_special_tokens=False).ids
    following = [*[end] * (PROMPT - 1), *tokens, *[end] * (POSITIONS - PROMPT + 1 - len(tokens))]
    eye = mx.eye(width)
    weights = {"model.wte.weight": eye[:size], "model.wpe.weight": 10 * eye[mx.array(following)]}
    for name in ("model.ln_f", *(f"model.h.{i}.ln_{j}" for i in range(2) for j in (1, 2))):
        weights[f"{name}.weight"], weights[f"{name}.bias"] = mx.ones(width), mx.zeros(width)
    sizes = {"attn.c_attn": (3, 1), "attn.c_proj": (1, 1), "mlp.c_fc": (4, 1), "mlp.c_proj": (1, 4)}
    for i in range(2):
        for name, (rows, columns) in sizes.items():
            weights[f"model.h.{i}.{name}.weight"] = mx.zeros((rows * width, columns * width))
            weights[f"model.h.{i}.{name}.bias"] = mx.zeros(rows * width)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
