"""What the engine asks of a tokenizer: mlx-lm's wrapper has it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol


class Tokenizer(Protocol):
    """From text to token ids and back."""

    @property
    def eos_token_id(self) -> int:
        """The token that ends a text."""

    @property
    def eos_token_ids(self) -> Collection[int]:
        """The tokens that end an answer."""

    @property
    def has_chat_template(self) -> bool:
        """Whether :meth:`apply_chat_template` has a template."""

    def encode(self, text: str, **options: Any) -> list[int]:
        """Return the ids of a text."""

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        """Return the text of ids."""

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]], **options: Any) -> list[int]:
        """Return the ids of messages as the model was trained to read them."""

    def get_vocab(self) -> Mapping[str, int]:
        """Return each token's id."""
