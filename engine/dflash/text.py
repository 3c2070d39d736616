"""Converts tokens to text incrementally. A character is returned once it is complete, and never retracted."""

from collections.abc import Sequence

from engine.tokens import Tokenizer

UNFINISHED = "\ufffd"
PENDING = 3  # the most U+FFFD that one unfinished character shows as: a byte each, of four
CONTEXT, LONG = 8, 32


class Detokenizer:
    """Decodes a stream of tokens with any tokenizer that has ``decode``.

    The last few tokens are decoded anew with each addition, since what a token reads as can depend on the ones
    before it (leading spaces, the bytes of one character). How tokens are grouped makes no difference.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._given = 0  # characters of the window's text that were given out

    def add(self, tokens: Sequence[int]) -> str:
        """Return the text that these tokens complete."""
        self._window.extend(tokens)
        text = self._decode()
        complete = len(text.rstrip(UNFINISHED))
        new = self._give(text, max(complete, len(text) - PENDING))
        if len(self._window) > LONG:
            waiting = len(text) - self._given
            self._window = self._window[-CONTEXT:]
            self._given = len(self._decode()) - waiting
        return new

    def flush(self) -> str:
        """Return what still waits, at the end of the stream."""
        text = self._decode()
        return self._give(text, len(text))

    def _give(self, text: str, end: int) -> str:
        new = text[self._given : end]
        self._given = max(self._given, end)
        return new

    def _decode(self) -> str:
        found: str = self._tokenizer.decode(self._window, clean_up_tokenization_spaces=False)
        return found
