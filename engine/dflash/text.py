"""Converts tokens to text incrementally. A character is returned once it is complete, and never retracted."""

import codecs
import re
from collections.abc import Sequence
from itertools import groupby

from engine.tokens import Tokenizer

UNFINISHED = "\ufffd"
PENDING = 3  # an unfinished character of four bytes is decoded to at most this many U+FFFD, one per byte
CONTEXT, LONG = 8, 32
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # the name of a token for one byte in SentencePiece's vocabularies


class Detokenizer:
    """Decodes a stream of tokens with any tokenizer that has ``decode``.

    The last few tokens are decoded again with each addition, because a token's text can depend on the tokens before it
    (leading spaces, the bytes of one character). The grouping of tokens makes no difference.

    Tokens that stand for one byte each are decoded here. Tokenizers turn a whole run of such tokens into U+FFFD while
    its last character is unfinished, even the complete characters before.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._given = 0  # characters of the window's text that were already returned
        # The byte of each token so far; None for tokens that stand for no byte.
        self._bytes: dict[int, int | None] = {}
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._in_bytes = False  # whether the last token stands for a byte

    def add(self, tokens: Sequence[int]) -> str:
        """Return the text that these tokens complete."""
        new = ""
        for are_bytes, run in groupby(tokens, lambda token: self._byte(token) is not None):
            if are_bytes != self._in_bytes:
                new += self.flush()
                self._in_bytes = are_bytes
            new += (self._add_bytes if are_bytes else self._add_text)(list(run))
        return new

    def flush(self) -> str:
        """Return the text that was held back, at the end of the stream."""
        text = self._decode()
        if not self._in_bytes:
            return self._give(text, len(text))
        self._given = len(text)
        last = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return last

    def _add_bytes(self, tokens: list[int]) -> str:
        self._window = [*self._window, *tokens][-LONG:]
        return self._utf8.decode(bytes(byte for token in tokens if (byte := self._byte(token)) is not None))

    def _add_text(self, tokens: list[int]) -> str:
        self._window.extend(tokens)
        text = self._decode()
        complete = len(text.rstrip(UNFINISHED))
        new = self._give(text, max(complete, len(text) - PENDING))
        if len(self._window) > LONG:
            waiting = len(text) - self._given
            self._window = self._window[-CONTEXT:]
            self._given = len(self._decode()) - waiting
        return new

    def _byte(self, token: int) -> int | None:
        """Return the byte of a token, or None."""
        if token not in self._bytes:
            name = getattr(self._tokenizer, "convert_ids_to_tokens", lambda _: None)(token)
            match = BYTE.fullmatch(name) if isinstance(name, str) else None
            # A vocabulary without such bytes may contain the name as ordinary text.
            ordinary = match is None or self._decode([token]) == name
            self._bytes[token] = None if match is None or ordinary else int(match[1], 16)
        return self._bytes[token]

    def _give(self, text: str, end: int) -> str:
        new = text[self._given : end]
        self._given = max(self._given, end)
        return new

    def _decode(self, tokens: Sequence[int] | None = None) -> str:
        shown = self._window if tokens is None else tokens
        text: str = self._tokenizer.decode(shown, clean_up_tokenization_spaces=False)
        return text
