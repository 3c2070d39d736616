"""Grammars for answers, with llguidance: JSON, a JSON schema, or a tool call.

Clients supply the grammars. What they cost is limited: compiling by ``engine.serve.formats.trial``, a mask by
llguidance, and all masks of an answer by ``GrammarState``. A request whose grammar exceeds a limit is refused.
"""

import asyncio
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import llguidance
import numpy as np

from engine.serve.errors import ApiError, unsupported
from engine.serve.formats import trial
from engine.serve.formats.calls import form_of
from engine.tokens import Tokenizer

NEAR = 256  # completions are searched for once at most this many tokens are left
SPARE = 24  # the most tokens by which one more token may lengthen the shortest completion
PREFERRED = 16  # the most tokens of a completion after a preferred token
COMPILED = 16  # compiled grammars to keep between a request's check and its answers
COMPILED_BYTES = 256 << 20  # the most bytes of all compiled grammars
LONGEST = 192  # the most tokens of a completion
AGAIN = 16  # tokens after which an unsuccessful search is repeated
ALLOWANCE, PER_ROW = 4.0, 0.005  # CPU seconds for the masks of an answer: a basis, and more for each row
# Texts that close an open value. Their first tokens are preferred, in this order. Among the formats, a time ends
# with a Z, and an address needs an @.
CLOSING = ('"}', '"]', '"', "}", "]", "Z", "@", ":", "0", "null", "true", "{", "[", ",")
COMPACT = {"whitespace_flexible": False}
SPACED = {**COMPACT, "item_separator": ", ", "key_separator": ": "}  # as models write calls
# A function without this field takes no arguments, as in OpenAI's API.
NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
TOO_COMPLEX = re.compile(r"too (many|complex)", re.IGNORECASE)
# Llguidance's messages about missing features, and the names of these features here.
MISSING = (
    (re.compile(r"Unimplemented keys: \[([^\]]*)\]"), "the JSON schema keyword {}"),
    (re.compile(r"Unknown format: ([^\s.]*)"), "the JSON schema format {}"),
    (re.compile(r"(look-around|backreferences)\b.*not supported"), "patterns with {}"),
    (re.compile(r"(oneOf) constraints are"), "the JSON schema keyword {} with alternatives that overlap"),
)

T = TypeVar("T")
# Few threads, so that slow grammars delay only other grammars.
_POOL = ThreadPoolExecutor(2, thread_name_prefix="grammar")


async def run_in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call a function that may compile grammars, in a thread for such calls.

    If the task is cancelled, a waiting call never begins; in a running call, the event in its argument ``cancelled`` is
    set.
    """
    cancelled = threading.Event()
    try:
        return await asyncio.wrap_future(_POOL.submit(function, *args, cancelled=cancelled))
    finally:
        cancelled.set()


def schema_grammar(schema: Any) -> str:
    """Return the grammar of a JSON schema; raises ApiError if the schema is invalid."""
    try:
        return llguidance.LLMatcher.grammar_from_json_schema(json.dumps(_ours(schema)))
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"The JSON schema cannot be read: {error}", param="response_format") from error


def _ours(schema: Any) -> Any:
    """Return a schema with our options for llguidance: a client's own options could disable its checks."""
    schema = {} if schema is True else schema
    return {**schema, "x-guidance": COMPACT} if isinstance(schema, dict) else schema


def after_thought(grammar: str, end: Sequence[int]) -> str:
    """Return a grammar, of ``schema_grammar`` or ``tools_grammar``, after the tokens that ``end`` a thought."""
    mark = " ".join(f"<[{token}]>" for token in end)
    if grammar.startswith("{"):
        rules = f"answer: %json {json.dumps(_schema_of(grammar))}"
    else:
        rules = grammar.replace("start:", "answer:", 1)
    lark = f"start: thought {mark} gap answer\nthought: /(?s:.*)/\ngap: /\\n{{0,2}}/\n{rules}"
    return llguidance.LLMatcher.grammar_from_lark(lark)


def with_calls(answer: str, start: "Mark", end: "Mark", tools: Sequence[dict[str, Any]] | None) -> str:
    """Return a grammar of an answer (``schema_grammar``), or of calls in the model's own form instead.

    The form is ``{"name": ..., "arguments": ...}`` between two marks. Without ``tools``, a call's text is free.
    """
    if tools is None:
        body, behind = _free("body", end)
    else:
        calls = [
            {
                "type": "object",
                "properties": {"name": {"const": tool["name"]}, "arguments": _parameters(tool)},
                "required": ["name", "arguments"],
                "additionalProperties": False,
                "x-guidance": SPACED,
            }
            for tool in tools
        ]
        body = "body: " + " | ".join(f"%json {json.dumps(call)}" for call in calls)
        behind = f"line {end.rule}"
    return llguidance.LLMatcher.grammar_from_lark(
        "start: formatted | call+\n"
        f"formatted: %json {json.dumps(_schema_of(answer))}\n"
        f"call: {start.rule} line body {behind} line\n"
        f"{body}\n"
        "line: /\\n{0,2}/"
    )


def on_channels(answer: str, mark: "Callable[[str], Mark]", tools: Sequence[dict[str, Any]]) -> str:
    """Return a grammar of an answer (``schema_grammar``) or a call in the harmony format, after other messages.

    ``mark`` returns a text as a mark of the tokenizer.
    """
    names = ("channel", "message", "start", "constrain")
    channel, message, start, constrain = (mark(f"<|{name}|>").rule for name in names)
    text, behind = _free("text", mark("<|end|>"))
    calls = []
    for tool in tools:
        name, arguments = json.dumps(f" to=functions.{tool['name']}"), json.dumps(_ours(_parameters(tool)))
        heads = f'{channel} "commentary" {name} | {name} {channel} "commentary"'
        calls.append(f"({heads}) kind {message} %json {arguments}")
    return llguidance.LLMatcher.grammar_from_lark(
        "start: other* (formatted | call)\n"
        f'other: {channel} ("analysis" | "commentary") {message} text {behind} {start} "assistant"\n'
        f'formatted: {channel} "final" kind {message} %json {json.dumps(_schema_of(answer))}\n'
        f"call: {' | '.join(calls)}\n"
        f'kind: (" "? {constrain}? "json")?\n'
        f"{text}"
    )


def _free(name: str, end: "Mark") -> tuple[str, str]:
    """Return the rule of a free text up to a mark, and what stands behind it: a mark without a token is part of it."""
    suffix = f"[suffix={json.dumps(end.text)}]" if end.text and end.token is None else ""
    return f"{name}{suffix}: /(?s:.*)/", end.rule if end.token is not None else ""


@dataclass(frozen=True)
class Mark:
    """A text before or after a call."""

    text: str
    token: int | None  # its token, if it has one of its own

    @property
    def rule(self) -> str:
        """The mark in a grammar."""
        return json.dumps(self.text) if self.token is None else f"<[{self.token}]>"


def _schema_of(grammar: str) -> Any:
    """Return the schema of a grammar by ``schema_grammar``."""
    return json.loads(grammar)["grammars"][0]["json_schema"]


def _parameters(tool: dict[str, Any]) -> Any:
    return tool.get("parameters", NO_PARAMETERS) or {"type": "object"}


def tools_grammar(tools: Sequence[dict[str, Any]]) -> str:
    """Return the grammar of a call to one of these functions: ``{"name":"...","arguments":{...}}``."""
    calls = []
    for tool in tools:
        name = json.dumps(json.dumps(tool["name"]))[1:-1]
        schema = json.dumps(_ours(_parameters(tool)))
        calls.append(f'"{{\\"name\\":{name},\\"arguments\\":" %json {schema} "}}"')
    return llguidance.LLMatcher.grammar_from_lark("start: " + "\n  | ".join(calls))


class Grammars:
    """The grammars of one tokenizer, for rows of ``vocabulary`` logits."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        self._wrapper, self._vocabulary = tokenizer, vocabulary
        self._compiled: OrderedDict[str, tuple[llguidance.LLMatcher, int]] = OrderedDict()
        self._lock = threading.Lock()  # for the compiled grammars

    @cached_property
    def tokenizer(self) -> llguidance.LLTokenizer:
        """The tokenizer in llguidance's form."""
        from llguidance import hf
        from transformers import PreTrainedTokenizerFast

        wrapped = not isinstance(self._wrapper, PreTrainedTokenizerFast)
        inner = getattr(self._wrapper, "_tokenizer", self._wrapper) if wrapped else self._wrapper
        # A tokenizer may have tokens that the model lacks: masks are cut to the logits.
        count = max(self._vocabulary, 1 + max(self._wrapper.get_vocab().values()))
        return hf.from_tokenizer(inner, n_vocab=count, eos_token=sorted(self._wrapper.eos_token_ids))

    def check(self, grammar: str, param: str, cancelled: threading.Event | None = None) -> None:
        """Raise ApiError for a grammar that is too complex or invalid."""
        matcher = self.compiled(grammar, param, cancelled)
        if matcher.is_accepting() or matcher.is_stopped():  # at once: the empty text is not JSON
            raise _refusal("no JSON satisfies it", param)

    def compiled(
        self, grammar: str, param: str | None = None, cancelled: threading.Event | None = None
    ) -> llguidance.LLMatcher:
        """Return a matcher at a grammar's beginning; ApiError if it is too complex, invalid or ``cancelled``.

        Compiling can take seconds. So do it first outside of the engine's thread, where all answers would wait.
        """
        with self._lock:
            if grammar in self._compiled:
                self._compiled.move_to_end(grammar)
                return self._compiled[grammar][0].deep_copy()
        if (cost := trial.cost(grammar, cancelled)) is None:
            raise _refusal("it is too complex", param)
        limits = trial.limits()
        matcher = llguidance.LLMatcher(self.tokenizer, grammar, log_level=0, limits=limits)
        if matcher.is_error():  # validation gives a better message
            _, messages = matcher.validate_grammar_with_warnings(grammar, self.tokenizer, limits=limits)
            raise _refusal(" ".join(" ".join(messages or [matcher.get_error()]).split()), param)
        matcher.compute_bitmask()
        with self._lock:
            self._compiled[grammar] = matcher, cost
            costs = [cost for _, cost in self._compiled.values()]  # oldest first
            while len(costs) > COMPILED or sum(costs) > COMPILED_BYTES:
                self._compiled.popitem(last=False)
                del costs[0]
            return matcher.deep_copy()

    def start(self, grammar: str) -> "GrammarState":
        """Return the state at a grammar's beginning."""
        preferred = list(self._wrapper.think_end_tokens or ())
        if (end := self.marks()[1]).token is not None:
            preferred.append(end.token)
        preferred += [ids[0] for text in CLOSING if (ids := self.tokenizer.tokenize_str(text))]
        return GrammarState(self.compiled(grammar), self._vocabulary, preferred)

    def marks(self) -> tuple[Mark, Mark]:
        """Return the text before and after a call of this tokenizer's model."""
        start, end, _ = form_of(self._wrapper)
        return self.mark(start), self.mark(end)

    def mark(self, text: str) -> Mark:
        """Return a text as a mark, with its token if it has one."""
        tokens = self.tokenizer.tokenize_bytes(text.encode(), parse_special=True)
        return Mark(text, tokens[0] if len(tokens) == 1 and text.strip() else None)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of a token."""
        return self.tokenizer.decode_bytes([token])


def _refusal(message: str, param: str | None) -> ApiError:
    """Return the error for a refused schema: ``unsupported`` if llguidance lacks something."""
    for pattern, noun in MISSING:
        if match := pattern.search(message):
            return unsupported(noun.format(match[1].replace('"', "")[:100]), param)
    message = message[:500].rstrip(".")
    return ApiError(400, f"The schema cannot be enforced: {message}.", param=param, code="invalid_schema")


def _too_complex(reason: str) -> ApiError:
    return ApiError(400, f"The schema is too complex to enforce: {reason}.", code="invalid_schema")


class GrammarState:
    """An answer's position in its grammar, for rows of ``vocabulary`` logits.

    To complete the answer, the ``preferred`` tokens are tried first: the ends of a thought, of a call and of values.
    """

    def __init__(self, matcher: llguidance.LLMatcher, vocabulary: int, preferred: list[int]) -> None:
        self._matcher, self._vocabulary, self._preferred = matcher, vocabulary, preferred
        self.forced_to_end = False  # whether the token limit forced the answer to end
        self._spent, self._began, self._rows = 0.0, 0.0, 0  # CPU seconds: so far, at this call's start; rows
        self._read = self._clear = 0  # tokens so far; and up to which number the limit can force none
        self._forced_rows: list[bool] = []

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

    def masks(self, drafts: list[int], room: int) -> np.ndarray:
        """Return the allowed tokens of each row, ``[drafts + 1, vocabulary]``. The drafts must be allowed tokens."""
        self._began = time.thread_time()
        try:
            return self._masks(drafts, room)
        finally:
            self._spent += time.thread_time() - self._began

    def _masks(self, drafts: list[int], room: int) -> np.ndarray:
        masks = np.zeros((len(drafts) + 1, self._vocabulary), bool)
        read, self._forced_rows = 0, []
        for i in range(len(drafts) + 1):
            self._rows += 1
            masks[i] = self._row(self._matcher)
            if self._matcher.is_error():
                raise self._failed()
            forced = self._forced(self._matcher, room - i, i)
            # If only one token is allowed anyway, the limit does not force it.
            self._forced_rows.append(forced is not None and bool(masks[i].sum() > 1))
            if forced is not None:
                masks[i] = False
                masks[i, forced] = True
            if i < len(drafts):
                if self._matcher.is_stopped() or not self._matcher.consume_token(drafts[i]):
                    break
                read += 1
        masks[read + 1 :] = True  # after the grammar's end, where rows are not used
        if read:
            self._matcher.rollback(read)
        return masks

    def commit(self, tokens: list[int]) -> None:
        """Advance by these tokens, which the last masks allowed."""
        self.forced_to_end = self.forced_to_end or any(self._forced_rows[: len(tokens)])
        self._read += len(tokens)
        for token in tokens:
            if self._matcher.is_stopped():
                return
            if not self._matcher.consume_token(token):
                raise self._failed()

    def _row(self, matcher: llguidance.LLMatcher) -> np.ndarray:
        spent = self._spent + time.thread_time() - self._began
        if spent > ALLOWANCE + PER_ROW * self._rows:
            raise _too_complex(f"its masks have taken {spent:.1f} s of CPU time")
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(bits, bitorder="little")[: self._vocabulary].astype(bool)

    def _forced(self, matcher: llguidance.LLMatcher, room: int, row: int) -> int | None:
        """Return the token that must come next for the answer to be complete within ``room`` more tokens."""
        if room > NEAR or self._read + row < self._clear or matcher.is_accepting():
            return None
        completion = self._shortest_completion(matcher, room) or self._completion_by_preference(matcher, room)
        spare = 0 if completion is None else room - len(completion) - SPARE
        if completion is not None and spare <= 0:
            return completion[0]
        if row == 0:  # results for later rows hold only if their drafts are accepted
            # Each token uses up one of the remaining tokens, and may lengthen the completion.
            self._clear = self._read + (AGAIN if completion is None else 1 + (spare - 1) // (SPARE + 1))
        return None

    def _completion_by_preference(self, matcher: llguidance.LLMatcher, most: int) -> list[int] | None:
        """Return the shortest completion that begins with any of the preferred tokens.

        In a string, a preferred token such as a brace is an ordinary character, and could be preferred forever.
        """
        allowed, shortest = self._row(matcher), []
        for token in self._preferred:
            ahead = matcher.deep_copy()
            if allowed[token] and ahead.consume_token(token):
                most_behind = min(most - 1, PREFERRED)
                rest = [] if ahead.is_accepting() else self._shortest_completion(ahead, most_behind)
                if rest is not None:
                    shortest.append([token, *rest])
        return min(shortest, key=len, default=None)

    def _shortest_completion(self, matcher: llguidance.LLMatcher, most: int) -> list[int] | None:
        """Return a short completion of the answer; None if there is none within ``most`` tokens."""
        ahead = matcher.deep_copy()
        completion: list[int] = []
        while not ahead.is_accepting():
            if len(completion) >= min(most, LONGEST):
                return None
            if forced := ahead.compute_ff_tokens():
                token = forced[0]
            else:
                allowed = self._row(ahead)
                token = next((t for t in self._preferred if allowed[t]), int(allowed.argmax()))
            if not ahead.consume_token(token):
                return None
            completion.append(token)
        return completion or None
