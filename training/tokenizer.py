"""The tiny family's tokenizer: byte-level BPE of 2,048 entries, digits one by one, ChatML turns."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.train.data import tasks

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCABULARY = 2048
END, MASK = "<|endoftext|>", "<|mask|>"
TURN, TURN_END = tasks.TURN, tasks.TURN_END
SPECIAL = (END, TURN, TURN_END, MASK)
THOUGHT, THOUGHT_END, CALL, CALL_END = "<think>", "</think>", "<tool_call>", "</tool_call>"
CHAT_MARKS = (THOUGHT, THOUGHT_END, CALL, CALL_END)  # of a model that chats, behind the vocabulary
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# As above, with tools, calls and thoughts: a thought is opened if `enable_thinking` is true.
CHAT_TEMPLATE_WITH_TOOLS = (
    "{% if tools %}<|im_start|>system\nTools:\n{% for tool in tools %}{{ tool | tojson }}"
    "{% if not loop.last %}\n{% endif %}{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['tool_calls'] %}{% for call in message['tool_calls'] %}{% set tool_call = call['function'] %}"
    '<tool_call>\n{"name": {{ tool_call.name | tojson }}, '
    '"arguments": {{ tool_call.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}{% else %}{{ message['content'] }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}{% endif %}"
)


def train(texts: Iterable[str], vocabulary: int = VOCABULARY) -> "Tokenizer":
    """Return a ``tokenizers.Tokenizer`` trained on ``texts``; the special tokens have the first ids."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save(tokenizer: "Tokenizer", folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``, as transformers and mlx-lm read them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END,
        "mask_token": MASK,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "chat_template": CHAT_TEMPLATE if tokenizer.token_to_id(CALL) is None else CHAT_TEMPLATE_WITH_TOOLS,
    }
    text = json.dumps(config, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def with_chat_marks(tokenizer: "Tokenizer") -> "Tokenizer":
    """Return a tokenizer that also knows the marks of thoughts and calls, each as one token."""
    from tokenizers import AddedToken

    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in CHAT_MARKS])
    return tokenizer


def load(folder: Path) -> "Tokenizer":
    """Read what ``save`` wrote, as a ``tokenizers.Tokenizer``."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))
