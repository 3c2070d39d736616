"""Earlier answers, in which prompt lookup finds what a new answer repeats: a file that is written again, a plan.

Only their tokens are kept, in memory, and at most a number of them. Nothing of them reaches another answer but as
drafts, which the target verifies. A draft that is right makes an answer faster, so whoever may time answers can guess
what others were told: keep answers only of clients that trust each other.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

# Sizes of the n-grams that are indexed. Fewer tokens than the last agree by chance; as many as the first are rare in
# one file, and common in its versions.
NGRAMS = (12, 4)
LONGEST = 64  # tokens that are compared; longer matches count as equal
NEWEST = 8  # occurrences of an n-gram, in one text or one in each of several, that are compared
SURE = 16  # after as many tokens that agree, a longer match is not more often right


Occurrence = tuple[tuple[int, ...], int]  # an answer, and a position in it


class Match(NamedTuple):
    """A place in a text whose preceding tokens equal the newest ones of another."""

    text: Sequence[int]
    next: int  # the position in ``text`` that is expected next
    length: int  # how many tokens before it agree, at most ``LONGEST``


def agreeing(text: Sequence[int], end: int, tokens: Sequence[int]) -> int:
    """Return how many tokens of ``text`` before ``end`` equal the last ones of ``tokens``, at most ``LONGEST``."""
    most = min(end, len(tokens), LONGEST)
    return next((n for n in range(most) if text[end - 1 - n] != tokens[-1 - n]), most)


class Answers:
    """Tokens of the newest answers, at most ``most`` in all, and an index of the first of equal n-grams in each."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = 0  # tokens
        self._answers: deque[tuple[int, ...]] = deque()
        self._after: dict[tuple[int, ...], list[Occurrence]] = {}  # of the n-grams of all sizes

    def add(self, tokens: Sequence[int]) -> None:
        """Keep an answer; forget the oldest ones that exceed the limit. Too long a one is kept from its end."""
        answer = tuple(tokens[-self.most :]) if self.most else ()
        if len(answer) <= NGRAMS[-1]:
            return
        self._answers.append(answer)
        self.size += len(answer)
        for gram, at in _grams(answer):
            places = self._after.get(gram, [])
            if (
                not places or places[-1][0] is not answer
            ):  # more follows the first one, if the answer is a loop
                self._after[gram] = [*places[1 - NEWEST :], (answer, at)]
        while self.size > self.most:
            self._forget(self._answers.popleft())

    def find(self, tokens: Sequence[int]) -> Match | None:
        """Return the longest match of the newest tokens, the newest among equals; None without one."""
        for n in NGRAMS:
            if places := self._after.get(tuple(tokens[-n:])):
                matches = [Match(answer, at, agreeing(answer, at, tokens)) for answer, at in reversed(places)]
                return max(matches, key=lambda match: match.length)
        return None

    def _forget(self, oldest: tuple[int, ...]) -> None:
        self.size -= len(oldest)
        for gram, _ in _grams(oldest):
            if others := [each for each in self._after.pop(gram, []) if each[0] is not oldest]:
                self._after[gram] = others


def _grams(answer: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
    """Return the n-grams that a token follows, and its position."""
    return [(answer[at - n : at], at) for n in NGRAMS for at in range(n, len(answer))]
