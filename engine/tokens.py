"""The interface that the engine requires of a tokenizer, which mlx-lm's wrapper has."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol, overload

from engine.errors import BadInput
from engine.marks import Marks


class Tokenizer(Protocol):
    """From text to token ids and back."""

    eos_token_id: int  # the token that ends a text
    eos_token_ids: Collection[int]  # the tokens that end an answer
    has_chat_template: bool  # whether `apply_chat_template` has a template
    think_start: str | None  # what begins a thought; None for a model without thoughts
    think_end: str | None  # what ends a thought; None for a model without thoughts
    think_end_tokens: Sequence[int] | None  # the tokens that end a thought
    tool_call_start: str | None  # what begins a call of a tool; None for a model whose calls are not known
    tool_call_end: str | None  # what ends a call of a tool; empty if only the end of the answer does
    # The parser of a call's text, given the tools or None: returns one call or a list of them.
    tool_parser: Callable[[str, Any], Any] | None

    def encode(self, text: str, **options: Any) -> list[int]:
        """Return the ids of a text."""

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        """Return the text of ids."""

    @overload
    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, tokenize: Literal[False], **options: Any
    ) -> str: ...
    @overload
    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]: ...
    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int] | str:
        """Return the ids, or the text, of messages as the model was trained to read them."""

    def get_vocab(self) -> Mapping[str, int]:
        """Return each token's id."""


def encode_chat(tokenizer: Tokenizer, turns: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
    """Return the token ids of a conversation whose next turn the model has to write. Marks in its texts are plain text.

    Raises:
        BadInput: there is no chat template, it refuses the conversation, or a text cannot be written in UTF-8.
    """
    if not tokenizer.has_chat_template:
        raise BadInput("the model has no chat template", "leave out --chat")
    for text in (text for turn in turns for text in turn.values() if isinstance(text, str)):
        _refuse_bytes(text)
    marks = Marks(tokenizer)
    apart = [marks.turn(turn) for turn in turns]
    try:
        text = tokenizer.apply_chat_template(apart, tokenize=False, add_generation_prompt=True, **options)
    except Exception as error:
        reason = f"the model's chat template refuses this: {error}"
        raise BadInput(reason, "leave out --system, or the template: --raw or --no-chat") from error
    return marks.encode(text)


def encode(tokenizer: Tokenizer | None, prompt: str | Sequence[int]) -> list[int]:
    """Return the prompt's token ids. A text that begins with the tokenizer's opening token does not get a second one.

    Raises:
        BadInput: the prompt is empty, cannot be written in UTF-8, or is text without a tokenizer.
    """
    if isinstance(prompt, str):
        if tokenizer is None:
            raise BadInput("the prompt is text, and there is no tokenizer", "give token ids")
        _refuse_bytes(prompt)
        opening = getattr(tokenizer, "bos_token", None)
        twice = opening is not None and opening != "" and prompt.startswith(opening)
        prompt = tokenizer.encode(prompt, add_special_tokens=not twice)
    ids = [int(token) for token in prompt]
    if not ids:
        raise BadInput("the prompt is empty", "give at least one token")
    return ids


def _refuse_bytes(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput("the prompt holds an invalid character", "it has to be text in UTF-8") from error
