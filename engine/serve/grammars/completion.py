"""Finds the fewest tokens that complete an answer, so that its token limit never cuts JSON that could be whole.

The search goes from the answer's position, cheapest completion first. It has no tables of formats: whatever a grammar
allows, such as a unit at the end of a duration, is found token by token.
"""

import time
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import llguidance
import numpy as np

MOST_POSITIONS = 1500  # of one search
MOST_SECONDS = 0.2  # CPU seconds of one search
RANK = 12  # the later of many allowed tokens are tried later: as if there were one token more for each of so many
AMPLE = 64  # with so many tokens more than twice the last completion, an answer goes on without a known one
FEW = 64  # if a position allows no more tokens, the search tries all of them
AGAIN = 16  # tokens after which an unsuccessful search is repeated
FILLERS = 6  # the longest tokens of letters or digits, which fill up texts with a least length


class Context(NamedTuple):
    """The position of a text in its JSON, by brackets and quotes."""

    depth: int = 0  # open brackets
    text: bool = False  # in a string
    escape: bool = False  # after a backslash

    def after(self, data: bytes) -> "Context":
        """Return the context after more bytes."""
        depth, text, escape = self
        for byte in data:
            if escape:
                escape = False
            elif byte in b'"':
                text = not text
            elif text:
                escape = byte in b"\\"
            elif byte in b"{[":
                depth += 1
            elif byte in b"}]":
                depth = max(0, depth - 1)
        return Context(depth, text, escape)

    @property
    def open(self) -> int:
        """The number of characters that close everything, if nothing else is missing."""
        return self.depth + self.text


@dataclass(eq=False)
class Vocabulary:
    """The tokens of a tokenizer, of which the model has ``size``. ``marks`` are tokens that end thoughts and calls."""

    tokenizer: llguidance.LLTokenizer
    size: int
    marks: list[int]

    def bytes_of(self, token: int) -> bytes:
        """Return a token's bytes; none for a special token, which is no text."""
        data = self.tokenizer.decode_bytes([token])
        return b"" if data[:1] == b"\xff" else data

    @cached_property
    def candidates(self) -> list[int]:
        """The tokens to try if many are allowed: closing ones, single characters, and the longest tokens of letters."""
        closing, single, filling = [], [], []
        for token in range(min(self.size, self.tokenizer.vocab_size)):
            data = self.bytes_of(token)
            if data and not data.strip(b'"]}'):
                closing.append((-len(data), token))
            elif len(data) == 1 and b" " <= data < b"\x7f":
                single.append((data.isalpha(), data.isdigit(), token))
            elif data.isalnum():
                filling.append((-len(data), token))
        return [
            *self.marks,
            *(token for _, token in sorted(closing)),
            *(token for _, token in sorted(filling)[:FILLERS]),
            *(token for _, _, token in sorted(single)),
        ]

    def row(self, bitmask: bytes) -> np.ndarray:
        """Return which tokens a matcher's bitmask allows, ``[size]``."""
        bits = np.frombuffer(bitmask, np.uint8)
        return np.unpackbits(bits, bitorder="little")[: self.size].astype(bool)


def completes(matcher: llguidance.LLMatcher, tokens: list[int]) -> bool:
    """Return whether these tokens complete an answer."""
    if tokens and matcher.validate_tokens(tokens) < len(tokens):
        return False
    ahead = matcher.deep_copy()
    return (not tokens or bool(ahead.consume_tokens(tokens))) and _is_whole(ahead)


def _is_whole(matcher: llguidance.LLMatcher) -> bool:
    return not matcher.is_error() and bool(matcher.is_accepting() or matcher.is_stopped())


def search(
    matcher: llguidance.LLMatcher, context: Context, vocabulary: Vocabulary, most: int
) -> list[int] | None:
    """Return tokens that complete an answer, about as few as possible; None if no ``most`` are found to do so."""
    return _Search(vocabulary, most).run(matcher, context)


class _Search:
    def __init__(self, vocabulary: Vocabulary, most: int) -> None:
        self._vocabulary, self._most = vocabulary, most
        self._order = count()
        self._seen: set[tuple[int, Context, int]] = set()
        # Positions to reach: how soon to try them (by choices, open brackets and the token's rank), order, choices so
        # far, matcher before the last token, tokens, context.
        self._waiting: list[tuple[int, int, int, llguidance.LLMatcher, list[int], Context]] = []

    def run(self, matcher: llguidance.LLMatcher, context: Context) -> list[int] | None:
        end = time.thread_time() + MOST_SECONDS
        reached = self._reach(matcher.deep_copy(), [], context, 0)
        for _ in range(MOST_POSITIONS):
            if reached is not None or not self._waiting or time.thread_time() > end:
                break
            _, _, choices, before, path, here = heappop(self._waiting)
            ahead = before.deep_copy()
            if ahead.consume_token(path[-1]):
                reached = self._reach(ahead, path, here, choices)
        return reached

    def _reach(
        self, ahead: llguidance.LLMatcher, path: list[int], here: Context, choices: int
    ) -> list[int] | None:
        """Return the completion if the position is one; otherwise add the positions that follow it."""
        if forced := ahead.compute_ff_tokens():
            if not ahead.consume_tokens(forced):
                return None
            path = [*path, *forced]
            here = here.after(b"".join(map(self._vocabulary.bytes_of, forced)))
        if len(path) > self._most:
            return None
        if _is_whole(ahead):
            return path
        self._expand(ahead, path, here, choices)
        return None

    def _expand(self, ahead: llguidance.LLMatcher, path: list[int], here: Context, choices: int) -> None:
        bitmask = ahead.compute_bitmask()
        # Positions at the same length that allow the same tokens are taken for the same.
        key = (hash(bitmask), here, len(path))
        if key in self._seen or len(path) == self._most:
            return
        self._seen.add(key)
        allowed = self._vocabulary.row(bitmask)
        tokens = np.flatnonzero(allowed).tolist() if allowed.sum() <= FEW else self._vocabulary.candidates
        for rank, token in enumerate(token for token in tokens if allowed[token]):
            there = here.after(self._vocabulary.bytes_of(token))
            soon = choices + 1 + there.open + rank // RANK
            heappush(self._waiting, (soon, next(self._order), choices + 1, ahead, [*path, token], there))


class Completion:
    """The shortest known completion of an answer, which follows the answer token by token.

    ``tokens`` are the completion; None if none is known within the limit.
    """

    def __init__(
        self, matcher: llguidance.LLMatcher, context: Context, vocabulary: Vocabulary, room: int
    ) -> None:
        self._matcher, self._context, self._vocabulary = matcher.deep_copy(), context, vocabulary
        self.tokens = search(matcher, context, vocabulary, room)
        self._wait = AGAIN

    def follow(self, token: int, room: int) -> bool:
        """Advance by an allowed token. Returns False instead if that would leave no completion in ``room`` tokens."""
        ahead = self._matcher.deep_copy()
        ahead.consume_token(token)
        context = self._context.after(self._vocabulary.bytes_of(token))
        completion = self._known(ahead, token, room)
        self._wait -= 1
        if completion is None and (self.tokens is not None or self._wait <= 0):
            completion, self._wait = search(ahead, context, self._vocabulary, room), AGAIN
        if completion is None and self.tokens is not None and room < AMPLE + 2 * len(self.tokens):
            # Search again, so that the closing text does not depend on the way to this position.
            self.tokens = search(self._matcher, self._context, self._vocabulary, room + 1) or self.tokens
            return False
        self._matcher, self._context, self.tokens = ahead, context, completion
        return True

    def _known(self, ahead: llguidance.LLMatcher, token: int, room: int) -> list[int] | None:
        """Return what of the last completion completes the answer behind a token; None if nothing does."""
        if self.tokens is None:
            return None
        if self.tokens[:1] == [token]:
            return self.tokens[1:]
        rests = (self.tokens[i:] for i in range(len(self.tokens) + 1))
        return next((rest for rest in rests if len(rest) <= room and completes(ahead, rest)), None)
