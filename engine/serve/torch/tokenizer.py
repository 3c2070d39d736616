"""Transformers' tokenizers with the interface of ``engine.tokens.Tokenizer``."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from engine.checkpoints import files, settings
from engine.errors import BadInput
from engine.serve.formats.call_parsers import XTML, parser_for

# Tokens that enclose a thought: the first pair that the vocabulary has.
THOUGHTS = (
    ("<think>", "</think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|think:start|>", "<|think:end|>"),
)
# Pairs of several tokens each, and the tokens that must both be in the vocabulary.
CHANNELS = ("<|channel>thought", "<channel|>"), ("<|channel>", "<channel|>")


class TorchTokenizer:
    """A tokenizer of transformers. Other attributes are its own."""

    def __init__(self, inner: Any, ends: Collection[int]) -> None:
        self._tokenizer = inner
        self.eos_token_id: int = inner.eos_token_id
        self.has_chat_template: bool = inner.chat_template is not None
        self._vocabulary: dict[str, int] = inner.get_vocab()
        parser = parser_for(inner.chat_template, self._vocabulary, inner.init_kwargs.get("tool_parser_type"))
        self.tool_parser: Callable[[str, Any], Any] | None = parser
        self.tool_call_start: str | None = parser.start if parser is not None else None
        self.tool_call_end: str | None = parser.end if parser is not None else None
        self.eos_token_ids: Collection[int] = {*ends, *({inner.eos_token_id} - {None})}
        self.think_start: str | None = None
        self.think_end: str | None = None
        self.think_end_tokens: Sequence[int] | None = None
        pairs = [pair for pair in THOUGHTS if {*pair} <= self._vocabulary.keys()]
        if not pairs and {*CHANNELS[1]} <= self._vocabulary.keys():
            pairs = [CHANNELS[0]]
        if not pairs and {*XTML} <= self._vocabulary.keys():
            pairs = [("<|open|>think<|sep|>", "<|close|>think<|sep|>")]
        if pairs:
            self.think_start, self.think_end = pairs[0]
            self.think_end_tokens = tuple(self.encode(pairs[0][1], add_special_tokens=False))

    def encode(self, text: str, **options: Any) -> list[int]:
        """Return the ids of a text."""
        return list(self._tokenizer.encode(text, **options))

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        """Return the text of ids."""
        return str(self._tokenizer.decode(list(ids), **options))

    def apply_chat_template(self, messages: Sequence[Any], *, tokenize: bool = True, **options: Any) -> Any:
        """Return the ids, or the text, of messages. A model thinks, if it can, unless ``enable_thinking`` is off."""
        options.setdefault("enable_thinking", self.think_start is not None)
        if tokenize:
            options["return_dict"] = False
        return self._tokenizer.apply_chat_template(messages, tokenize=tokenize, **options)

    def get_vocab(self) -> dict[str, int]:
        """Return each token's id."""
        return self._vocabulary

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of transformers' tokenizer."""
        if name.startswith("__") or name == "_tokenizer":
            raise AttributeError(name)
        return getattr(self._tokenizer, name)


def load_tokenizer(folder: Path, config: dict[str, Any]) -> TorchTokenizer:
    """Return the tokenizer in a model's folder. Code in the folder is never run.

    Raises:
        BadInput: the tokenizer is missing or cannot be read.
    """
    path = files.vocabulary_file(folder)
    try:
        inner = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, **settings.chat_template(folder)
        )
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise BadInput(f"the tokenizer {path} cannot be read: {reason}", files.AGAIN) from error
    ends = config.get("eos_token_id")
    return TorchTokenizer(inner, () if ends is None else [ends] if isinstance(ends, int) else ends)
