"""The prompt-lookup drafter: proposes what followed the last few tokens at an earlier occurrence.

It costs no forward pass, and is right if text repeats: edits of code, quotations, loops.
"""

from collections.abc import Iterable, Sequence

from engine.dflash.propose.answers import NEWEST, SURE, Answers, agreeing

NGRAM = 3
BLOCK = 16  # rows to verify at once without a draft model


class Lookup:
    """An index over the committed tokens, with O(1) cost per token.

    A match is an earlier position whose preceding tokens equal the newest ones. It is searched with ``ngram`` tokens,
    then with fewer; the longest agreement counts, then the latest. It is kept while it predicts the next token
    correctly, and replaced by one that agrees for longer. ``answers`` are searched too.

    A short match is often wrong; the caller decides whether to propose what follows it.
    """

    def __init__(self, ngram: int = NGRAM, answers: Answers | None = None) -> None:
        self.tokens: list[int] = []  # all that were given to `feed`
        self.length = 0  # how many of the last tokens agree with the match, as far as is known; 0 without one
        self._text: Sequence[int] = self.tokens  # that holds the match
        self._next = 0  # the position in it that the match predicts next
        self._answers = answers
        # For each size, the longest first: the positions after the last occurrences of each n-gram.
        self._after: dict[int, dict[tuple[int, ...], tuple[int, ...]]] = {n: {} for n in range(ngram, 0, -1)}

    def feed(self, tokens: Iterable[int]) -> list[tuple[int, bool]]:
        """Append committed tokens; return for each one with a match the match's length, and whether it was right."""
        met = []
        for token in tokens:
            if self.length:
                right = self._text[self._next] == token
                met.append((self.length, right))
                self.length, self._next = (self.length + 1, self._next + 1) if right else (0, 0)
            self.tokens.append(token)
            if self._next == len(self._text):  # an earlier answer has ended
                self.length = 0
            self._index()
        if self._answers is not None and self.length < SURE:
            match = self._answers.find(self.tokens)
            if match and match.length > self.length:
                self._text, self._next, self.length = match
        return met

    def propose(self, n: int) -> list[int]:
        """Return up to ``n`` tokens that may follow; none without a match.

        A match that reaches the end continues with its own proposals, so it can follow a loop of any length.
        """
        if not self.length:
            return []
        if self._text is not self.tokens:
            return list(self._text[self._next : self._next + n])
        back = len(self.tokens) - self._next
        drafts: list[int] = []
        for i in range(n):
            drafts.append(self.tokens[self._next + i] if i < back else drafts[i - back])
        return drafts

    def _index(self) -> None:
        """Index the n-grams that end here. A longer earlier occurrence of them replaces the current match."""
        end = len(self.tokens)
        for n, after in self._after.items():
            if n > end:
                continue
            gram = tuple(self.tokens[-n:])
            places = after.get(gram, ())
            if places and n > self.length:
                lengths = [(agreeing(self.tokens, at, self.tokens), at) for at in places]
                self.length, self._next = max(lengths)
                self._text = self.tokens
            after[gram] = (*places[1 - NEWEST :], end)
