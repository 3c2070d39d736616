"""Compiles grammars, and caches them: the only module of the server that compiles.

Clients supply the grammars. What they cost is limited: compiling by ``engine.serve.grammars.trial``, a mask by
llguidance, and all masks of an answer by ``GrammarState``. A request whose grammar exceeds a limit is refused. The
engine gets a ``Compiled`` grammar with each answer, and cannot compile one itself.
"""

import asyncio
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import llguidance

from engine.serve.errors import ApiError, unsupported
from engine.serve.formats.call_forms import form_of
from engine.serve.grammars import trial
from engine.serve.grammars.completion import Vocabulary
from engine.serve.grammars.grammar import Mark
from engine.serve.grammars.position import GrammarState
from engine.tokens import Tokenizer

MOST_KEPT = 16  # compiled grammars to keep for later requests
KEPT_BYTES = 256 << 20  # the most bytes of these
MOST_BYTES = 1 << 30  # the most bytes of all compiled grammars, also those of waiting answers
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


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled grammar, from ``Grammars.compiled``. Any thread may use it."""

    text: str = field(repr=False)
    nbytes: int  # about
    vocabulary: Vocabulary = field(repr=False)
    _matcher: llguidance.LLMatcher = field(repr=False)

    def matcher(self) -> llguidance.LLMatcher:
        """Return a matcher at the grammar's beginning."""
        return self._matcher.deep_copy()

    def start(self) -> GrammarState:
        """Return the state of an answer at the grammar's beginning."""
        return GrammarState(self.matcher(), self.vocabulary, len(self.text))


class Grammars:
    """The grammars of one tokenizer, for rows of ``vocabulary`` logits."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        self._wrapper, self._logits = tokenizer, vocabulary
        self._kept: OrderedDict[str, Compiled] = OrderedDict()  # by the text that was compiled; oldest first
        self._live: WeakValueDictionary[str, Compiled] = WeakValueDictionary()
        self._lock = threading.Lock()  # for these two

    @cached_property
    def tokenizer(self) -> llguidance.LLTokenizer:
        """The tokenizer in llguidance's form."""
        from llguidance import hf
        from transformers import PreTrainedTokenizerFast

        wrapped = not isinstance(self._wrapper, PreTrainedTokenizerFast)
        inner = getattr(self._wrapper, "_tokenizer", self._wrapper) if wrapped else self._wrapper
        # A tokenizer may have tokens that the model lacks: masks are cut to the logits.
        count = max(self._logits, 1 + max(self._wrapper.get_vocab().values()))
        return hf.from_tokenizer(inner, n_vocab=count, eos_token=sorted(self._wrapper.eos_token_ids))

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens that complete answers."""
        marks = list(self._wrapper.think_end_tokens or ())
        if (end := self.marks()[1]).token is not None:
            marks.append(end.token)
        return Vocabulary(self.tokenizer, self._logits, marks)

    def compiled(self, text: str, param: str, cancelled: threading.Event | None = None) -> Compiled:
        """Return a grammar of ``engine.serve.grammars.grammar``; ApiError if it is too complex or invalid.

        Compiling can take seconds, so call this in a thread of its own.
        """
        with self._lock:
            if (known := self._live.get(text)) is not None:
                self._keep(known)
                return known
        tried = trial.outcome(text, self.tokenizer.vocab_size, cancelled)
        if tried is None:
            raise _refusal("it is too complex", param)
        if tried.error:
            raise _refusal(tried.error, param)
        with self._lock:
            if sum(each.nbytes for each in self._live.values()) + tried.nbytes > MOST_BYTES:
                self._kept.clear()
            if sum(each.nbytes for each in self._live.values()) + tried.nbytes > MOST_BYTES:
                message = "The schemas of waiting answers take too much memory. Try again in a few seconds."
                raise ApiError(429, message, param=param, code="queue_full", headers={"Retry-After": "5"})
        matcher = llguidance.LLMatcher(self.tokenizer, text, log_level=0, limits=trial.limits())
        matcher.compute_bitmask()
        if matcher.is_error():
            raise _refusal(matcher.get_error(), param)
        _ = self.vocabulary.candidates  # found here once, and not in the engine's thread
        grammar = Compiled(text, tried.nbytes, self.vocabulary, matcher)
        with self._lock:
            self._live[text] = grammar
            self._keep(grammar)
        return grammar

    def _keep(self, grammar: Compiled) -> None:
        self._kept[grammar.text] = grammar
        self._kept.move_to_end(grammar.text)
        while len(self._kept) > MOST_KEPT or sum(each.nbytes for each in self._kept.values()) > KEPT_BYTES:
            self._kept.popitem(last=False)

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


def _refusal(message: str, param: str) -> ApiError:
    """Return the error for a refused schema: ``unsupported`` if llguidance lacks something."""
    # Behind its message, llguidance dumps its state.
    message, _, _ = " ".join(message.split()).partition(" <state>")
    for pattern, noun in MISSING:
        if match := pattern.search(message):
            return unsupported(noun.format(match[1].replace('"', "")[:100]), param)
    message = message[:500].rstrip(".")
    return ApiError(400, f"The schema cannot be enforced: {message}.", param=param, code="invalid_schema")
