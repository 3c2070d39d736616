"""The prompt-lookup drafter: what followed the last few tokens when they were last seen.

It costs no forward pass, and is right where text repeats: edits of code, quotations, loops.
"""

from collections.abc import Iterable

NGRAM = 3


class Lookup:
    """An index over the committed tokens, O(1) a token.

    A match is a place in the past that reads like the present. It is found by its last ``ngram`` tokens, and
    kept for as long as the tokens that come are those that stood there.

    Args:
        ngram: how many tokens have to agree before anything is proposed.

    Attributes:
        tokens: all that was fed.
        length: how many of the last tokens agree with the match, as far as is known; 0 without one.
    """

    def __init__(self, ngram: int = NGRAM) -> None:
        self.ngram = ngram
        self.tokens: list[int] = []
        self.length = 0
        self._next = 0  # where the match goes on
        self._after: dict[int, int] = {}  # hash of an n-gram -> the position after its last occurrence

    def feed(self, tokens: Iterable[int]) -> None:
        """Append committed tokens."""
        for token in tokens:
            if self.length and self.tokens[self._next] == token:
                self._next, self.length = self._next + 1, self.length + 1
            else:
                self.length = 0
            self.tokens.append(token)
            self._index()

    def propose(self, n: int) -> list[int]:
        """Return up to ``n`` tokens that may follow; none without a match.

        A match that reaches the end goes on with what it proposes, so a loop is continued for any length.
        """
        if not self.length:
            return []
        back = len(self.tokens) - self._next
        drafts: list[int] = []
        for i in range(n):
            drafts.append(self.tokens[self._next + i] if i < back else drafts[i - back])
        return drafts

    def _index(self) -> None:
        if len(self.tokens) < self.ngram:
            return
        gram = self.tokens[-self.ngram :]
        key, end = hash(tuple(gram)), len(self.tokens)
        at = self._after.get(key)
        self._after[key] = end
        # Tuples of integers can share a hash.
        if not self.length and at is not None and self.tokens[at - self.ngram : at] == gram:
            self._next, self.length = at, self.ngram
