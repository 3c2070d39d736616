"""An answer's position in its grammar."""

import re
import time

import llguidance
import numpy as np

from engine.serve.errors import ApiError
from engine.serve.grammars.completion import Completion, Context, Vocabulary

NEAR = 256  # completions are searched for once at most this many tokens are left, and a token for each of the grammar's
FARTHEST = 4096  # characters, but no more than this
ALLOWANCE, PER_ROW = 4.0, 0.005  # CPU seconds for the masks of an answer: a basis, and more for each row
TOO_COMPLEX = re.compile(r"too (many|complex)", re.IGNORECASE)


def _too_complex(reason: str) -> ApiError:
    return ApiError(400, f"The schema is too complex to enforce: {reason}.", code="invalid_schema")


class GrammarState:
    """An answer's position in a grammar of ``length`` characters, for rows of the vocabulary's logits."""

    def __init__(self, matcher: llguidance.LLMatcher, vocabulary: Vocabulary, length: int) -> None:
        self._matcher, self._vocabulary = matcher, vocabulary
        self._near = min(NEAR + length, FARTHEST)
        self.forced_to_end = False  # whether the token limit forced the answer to end
        self._spent, self._rows = 0.0, 0  # CPU seconds for masks, and their rows
        self._searching = 0.0  # CPU seconds for completions
        self._context = Context()
        self._completion: Completion | None = None

    @property
    def ended(self) -> bool:
        """Whether the grammar allows no further token."""
        return bool(self._matcher.is_stopped())

    def _failed(self) -> Exception:
        """Return the error for a matcher that stopped before its grammar's end."""
        message = " ".join(self._matcher.get_error().split("<state>")[0].split())[:300]
        if TOO_COMPLEX.search(message):  # noticed only during the answer, as with an endless recursion
            return _too_complex(message)
        return RuntimeError(f"the grammar refused a token of its own: {message}")

    def accepted_length(self, tokens: list[int]) -> int:
        """Return the length of the longest allowed prefix of these tokens."""
        return int(self._matcher.validate_tokens(tokens)) if tokens else 0

    def length(self, tokens: list[int]) -> int:
        """Return the number of these allowed tokens up to the grammar's end; all of them if it does not end."""
        read = 0
        while read < len(tokens) and not self._matcher.is_stopped():
            if not self._matcher.consume_token(tokens[read]):
                raise self._failed()
            read += 1
        if read:
            self._matcher.rollback(read)
        return max(read, 1)

    def masks(self, drafts: list[int]) -> np.ndarray:
        """Return the allowed tokens of each row, ``[drafts + 1, vocabulary]``. The drafts must be allowed tokens."""
        masks = np.zeros((len(drafts) + 1, self._vocabulary.size), bool)
        read = 0
        for i in range(len(drafts) + 1):
            masks[i] = self._row()
            if i < len(drafts):
                if self._matcher.is_stopped() or not self._matcher.consume_token(drafts[i]):
                    break
                read += 1
        masks[read + 1 :] = True  # after the grammar's end, where rows are not used
        if read:
            self._matcher.rollback(read)
        return masks

    def _row(self) -> np.ndarray:
        if self._spent > ALLOWANCE + PER_ROW * self._rows:
            raise _too_complex(f"its masks have taken {self._spent:.1f} s of CPU time")
        began = time.thread_time()
        bitmask = self._matcher.compute_bitmask()
        self._spent, self._rows = self._spent + time.thread_time() - began, self._rows + 1
        if self._matcher.is_error():
            raise self._failed()
        return self._vocabulary.row(bitmask)

    def fit(self, tokens: list[int], room: int, end: int | None) -> list[int]:
        """Return the next tokens, of which ``room`` are left, so that the answer can still be completed.

        The first one behind which it could not be gives way to the next token of a completion (if nothing is missing,
        to the ``end`` token), and those behind it are left out. The tokens are allowed ones.
        """
        began = time.thread_time()
        try:
            return self._fit(tokens, room, end)
        finally:
            self._searching += time.thread_time() - began

    def _fit(self, tokens: list[int], room: int, end: int | None) -> list[int]:
        if room > self._near or self._searching > ALLOWANCE + PER_ROW * self._rows:
            self._completion = None
            return tokens
        if self._completion is None:
            self._completion = Completion(self._matcher, self._context, self._vocabulary, room)
        for i, token in enumerate(tokens):
            if not self._completion.follow(token, room - i - 1):
                self.forced_to_end = True
                rest = self._completion.tokens or ([end] if end is not None else [])
                if rest and rest[0] != end:
                    self._completion.follow(rest[0], room - i - 1)
                return [*tokens[:i], *rest[:1]] or tokens[:1]
        return tokens

    def commit(self, tokens: list[int]) -> None:
        """Advance by these tokens, which the last masks allowed."""
        for token in tokens:
            if self._matcher.is_stopped():
                return
            if not self._matcher.consume_token(token):
                raise self._failed()
            self._context = self._context.after(self._vocabulary.bytes_of(token))
