"""Finds the end of an answer: stop tokens and stop strings.

A stop string can begin in one token and end in another, and a block can go beyond it. So tokens are examined one
by one, as in plain decoding: the answer ends with the token that completes a stop, and text that may still become
a stop string is held back.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from engine.dflash.text import Detokenizer
from engine.errors import BadInput
from engine.stop_strings import StopStrings, TextSplitter
from engine.tokens import Tokenizer


@dataclass(frozen=True)
class Cut:
    """What is left of some tokens."""

    tokens: tuple[int, ...]  # those up to and with the one that completes a stop; all where none does
    text: str  # that is final now
    stopped: bool  # whether a stop was complete


class Stops:
    """Cuts a stream of tokens at the first stop, and turns it into text.

    Args:
        tokenizer: what decodes; None gives no text, and takes no stop strings.
        tokens: stop tokens; None takes the tokenizer's own ends. They end an answer and are not in its text.
        strings: stop strings; the text ends before the first.
        splitter: finds stop strings instead, if they count in some parts of the text only. The text is then not cut:
            the reader splits it in the same way, and knows where the stop is.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        tokens: Collection[int] | None = None,
        strings: Sequence[str] = (),
        splitter: TextSplitter | None = None,
    ) -> None:
        if isinstance(strings, str):
            strings = (strings,)
        if not all(strings):
            raise BadInput("a stop string is empty", "leave it out")
        if strings and tokenizer is None:
            raise BadInput("stop strings need a tokenizer", "give one, or stop tokens instead")
        self.tokens = frozenset(ends_of(tokenizer) if tokens is None else tokens)
        self.strings = tuple(strings)
        self._text = Detokenizer(tokenizer) if tokenizer is not None else None
        self._found, self._splitter = StopStrings(strings), splitter

    @property
    def matched(self) -> str | None:
        """The stop string that ended the answer, if one did."""
        return self._found.matched if self._splitter is None else self._splitter.stopped

    def take(self, tokens: Sequence[int]) -> Cut:
        """Return the next tokens up to the first stop."""
        end = next((i for i, token in enumerate(tokens) if token in self.tokens), len(tokens))
        stopped, text = end < len(tokens), ""
        if not self.strings and self._text and end:
            text = self._text.add(tokens[:end])
        for i, token in enumerate(tokens[:end] if self.strings else ()):
            text += self._take(self._text.add([token])) if self._text else ""
            if self.matched is not None:
                self._text = None
                return Cut(tuple(tokens[: i + 1]), text, stopped=True)
        return Cut(tuple(tokens[: end + stopped]), text + (self.flush() if stopped else ""), stopped)

    def flush(self) -> str:
        """At the end of the answer, return the text that was held back; nothing after a stop string."""
        if self._text is None:
            return ""
        return self._take(self._text.flush()) + self._found.flush()

    def _take(self, text: str) -> str:
        if self._splitter is None:
            return self._found.add(text)
        self._splitter.add(text)
        return text


def ends_of(tokenizer: Tokenizer | None) -> frozenset[int]:
    """Return the tokens that end an answer according to the tokenizer, which has one or several."""
    ids = getattr(tokenizer, "eos_token_ids", None)
    if ids is None:
        ids = getattr(tokenizer, "eos_token_id", None)
    return frozenset(() if ids is None else [ids] if isinstance(ids, int) else ids)
