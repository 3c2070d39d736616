"""Grammars that an answer has to follow, by llguidance: JSON, a JSON schema, or the call of a tool.

Grammars come from strangers: llguidance bounds what they may cost, and what it refuses is a refused request.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import llguidance
import numpy as np

from engine.serve.errors import ApiError
from engine.tokens import Tokenizer

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions  # its stubs alone have it

NEAR = 256  # tokens before the limit from which on the way to a complete answer is looked at
SPARE = 24  # tokens by which the shortest way to a complete answer may grow with one more token
LONGEST = 192  # tokens of the shortest way that are looked for
# What closes an open value first: the tokens of these are preferred, in this order.
CLOSING = ('"}', '"]', '"', "}", "]", "0", "null", "true", "{", "[", ":", ",")
COMPACT: "JsonCompileOptions" = {"whitespace_flexible": False}


def of_schema(schema: Any) -> str:
    """Return the grammar of a JSON schema; raises ApiError if it is none."""
    try:
        return llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=COMPACT)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"The JSON schema cannot be read: {error}", param="response_format") from error


def of_tools(tools: Sequence[dict[str, Any]]) -> str:
    """Return the grammar of a call of one of these functions: ``{"name":"...","arguments":{...}}``."""
    calls = []
    for tool in tools:
        name = json.dumps(json.dumps(tool["name"]))[1:-1]
        schema = tool.get("parameters") or {"type": "object"}
        given = json.dumps({"x-guidance": COMPACT, **schema})
        calls.append(f'"{{\\"name\\":{name},\\"arguments\\":" %json {given} "}}"')
    return llguidance.LLMatcher.grammar_from_lark("start: " + "\n  | ".join(calls))


class Grammars:
    """The grammars of one tokenizer.

    Args:
        tokenizer: mlx-lm's wrapper.
        vocabulary: how many logits a row has.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        self._wrapper, self._vocabulary = tokenizer, vocabulary
        self._tokenizer: llguidance.LLTokenizer | None = None

    @property
    def tokenizer(self) -> llguidance.LLTokenizer:
        """The tokenizer as llguidance has it; made when it is first needed."""
        if self._tokenizer is None:
            from llguidance import hf

            inner = getattr(self._wrapper, "_tokenizer", self._wrapper)
            self._tokenizer = hf.from_tokenizer(
                inner, n_vocab=self._vocabulary, eos_token=sorted(self._wrapper.eos_token_ids)
            )
        return self._tokenizer

    def check(self, grammar: str, param: str) -> None:
        """Refuse a grammar that is too complex or says nothing (ApiError)."""
        wrong, messages = llguidance.LLMatcher.validate_grammar_with_warnings(grammar, self.tokenizer)
        if wrong:
            said = " ".join(" ".join(messages).split())[:500].rstrip(".")
            raise ApiError(400, f"The schema cannot be enforced: {said}.", param=param, code="invalid_schema")

    def walk(self, grammar: str) -> "Walk":
        """Return a walk through a grammar, from its beginning."""
        matcher = llguidance.LLMatcher(self.tokenizer, grammar, log_level=0)
        if matcher.is_error():
            said = " ".join(matcher.get_error().split())[:500].rstrip(".")
            raise ApiError(400, f"The schema cannot be enforced: {said}.", code="invalid_schema")
        return Walk(matcher, self.tokenizer)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that a token stands for."""
        return self.tokenizer.decode_bytes([token])


class Walk:
    """Where an answer is in its grammar.

    Args:
        matcher: llguidance's.
        tokenizer: llguidance's.

    Attributes:
        landed: whether the end of the answer was forced by its limit.
    """

    def __init__(self, matcher: llguidance.LLMatcher, tokenizer: llguidance.LLTokenizer) -> None:
        self._matcher, self._tokenizer = matcher, tokenizer
        self.landed = False
        self._forced_rows: list[bool] = []
        self._preferred = [ids[0] for text in CLOSING if len(ids := tokenizer.tokenize_str(text)) == 1]

    @property
    def ended(self) -> bool:
        """Whether nothing more may follow."""
        return bool(self._matcher.is_stopped())

    def accepts(self, tokens: list[int]) -> int:
        """Return how many of these tokens may follow, from the first on."""
        return int(self._matcher.validate_tokens(tokens)) if tokens else 0

    def length(self, tokens: list[int]) -> int:
        """Return how many allowed tokens there are up to the end of the grammar; all if it does not end."""
        read = 0
        while read < len(tokens) and not self._matcher.is_stopped():
            if not self._matcher.consume_token(tokens[read]):
                raise RuntimeError(f"the grammar refused a token of its own: {self._matcher.get_error()}")
            read += 1
        if read:
            self._matcher.rollback(read)
        return max(read, 1)

    def masks(self, drafts: list[int], vocabulary: int, room: int) -> np.ndarray:
        """Return which tokens may stand in each row, ``[drafts + 1, vocabulary]``; the drafts are allowed ones."""
        found = np.zeros((len(drafts) + 1, vocabulary), bool)
        read, self._forced_rows = 0, []
        for i in range(len(drafts) + 1):
            found[i] = self._row(self._matcher, vocabulary)
            forced = self._forced(self._matcher, room - i)
            # A token that is the only one allowed would have come without a limit too.
            self._forced_rows.append(forced is not None and bool(found[i].sum() > 1))
            if forced is not None:
                found[i] = False
                found[i, forced] = True
            if i < len(drafts):
                if self._matcher.is_stopped() or not self._matcher.consume_token(drafts[i]):
                    break
                read += 1
        found[read + 1 :] = True  # behind the end of the grammar, where nothing is read
        if read:
            self._matcher.rollback(read)
        return found

    def commit(self, tokens: list[int]) -> None:
        """Go on by these tokens, which the last masks allowed."""
        self.landed = self.landed or any(self._forced_rows[: len(tokens)])
        for token in tokens:
            if self._matcher.is_stopped():
                return
            if not self._matcher.consume_token(token):
                raise RuntimeError(f"the grammar refused a token of its own: {self._matcher.get_error()}")

    def _row(self, matcher: llguidance.LLMatcher, vocabulary: int) -> np.ndarray:
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(bits, bitorder="little")[:vocabulary].astype(bool)

    def _forced(self, matcher: llguidance.LLMatcher, room: int) -> int | None:
        """Return the token that has to come if the answer is to be complete within ``room`` more tokens."""
        if room > NEAR or matcher.is_accepting():
            return None
        way = self._way(matcher, room)
        if way is None or len(way) + SPARE < room:
            return None
        return way[0]

    def _way(self, matcher: llguidance.LLMatcher, most: int) -> list[int] | None:
        """Return a short way to a complete answer; None if none is found within ``most`` tokens."""
        ahead = matcher.deep_copy()
        way: list[int] = []
        while not ahead.is_accepting():
            if len(way) >= min(most, LONGEST):
                return None
            if forced := ahead.compute_ff_tokens():
                token = forced[0]
            else:
                allowed = self._row(ahead, self._tokenizer.vocab_size)
                token = next((t for t in self._preferred if allowed[t]), int(allowed.argmax()))
            if not ahead.consume_token(token):
                return None
            way.append(token)
        return way or None
