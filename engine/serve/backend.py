"""What the HTTP layer knows of an engine: :class:``Backend``, which answers jobs on loaded models.

Dialects, formats and routes import this file and no engine. A second engine implements :class:``Backend``, fills in
:class:``Model``, and is named in :mod:``engine.serve.main``:

- load a model: :meth:``Backend.load``; its text in tokens and back: :meth:``Model.encode``, :meth:``Model.decode``
- prefill a prompt, and step to the answer's end: :meth:``Backend.submit``. The tokens that a step may choose are the
  rows of :meth:``Grammars.start``'s masks for ``options.grammar``
- cancel: :attr:``Job.cancelled`` is read before each step
- memory and statistics: :meth:``Backend.memory``, :meth:``Backend.stats``
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from engine.inject import NAME as PACKAGE
from engine.serve.errors import ApiError
from engine.serve.formats.grammar import Grammars
from engine.serve.formats.template import Template
from engine.serve.metrics import Metrics
from engine.serve.settings import Settings
from engine.tokens import Tokenizer, encode

DRAFTS = ("auto", "none", "lookup", "dflash", PACKAGE)
ENDING = 10.0  # seconds in which a backend should end once it is closed
STUCK = 60.0  # seconds without a sign of life after which it counts as stuck
SHRINKS = 3  # how many characters Unicode normalization can turn into one, by and large


@dataclass(frozen=True)
class Options:
    """How an answer is decoded.

    Attributes:
        max_tokens: the most tokens.
        temperature: 0 is greedy; the next three as in :class:``engine.dflash.sampling.Sampling``.
        seed: makes sampling repeatable.
        stop: strings that end the answer.
        cache: the cache spec.
        boundary: layers left raw at either end.
        draft: one of :data:``DRAFTS``.
        bias: added to the logits of tokens.
        presence: subtracted from the logit of each token in the answer.
        frequency: the same, multiplied by the token's count.
        repetition: divides the logits of tokens in the prompt or the answer.
        logprobs: how many alternatives to report with each token; None for no log-probabilities.
        prefix: whether to use the prefix cache.
        token_ids: whether the last piece's report contains the token ids.
        live: whether each piece contains a report.
        grammar: the grammar of the answer, from :mod:``engine.serve.formats.grammar``.
    """

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    cache: str = "raw"
    boundary: int = 0
    draft: str = "auto"
    prefix: bool = True
    token_ids: bool = False
    bias: dict[int, float] = field(default_factory=dict)
    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    logprobs: int | None = None
    grammar: str | None = None
    live: bool = False

    @property
    def guided(self) -> bool:
        """Whether logits must be changed or reported."""
        return bool(
            self.bias
            or self.presence
            or self.frequency
            or self.repetition != 1
            or self.logprobs is not None
            or self.grammar
        )


@dataclass(frozen=True)
class Piece:
    """The output of one round.

    Attributes:
        index: which of the request's answers.
        text: the text that is final now.
        tokens: number of committed tokens.
        logprobs: for each of these tokens ``(token, logprob, [(token, logprob), ...])``; None if not requested.
        finish_reason: only in the last piece.
        report: how the answer was generated; in the last piece, and in the others if requested.
    """

    index: int
    text: str
    tokens: int
    logprobs: list[tuple[int, float, list[tuple[int, float]]]] | None = None
    finish_reason: str | None = None
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed:
    """The end of a failed answer."""

    index: int
    error: Exception


@dataclass(eq=False)
class Job:
    """One answer.

    Attributes:
        index: which of the request's answers it is.
        model: the name of a loaded model.
        ids: the prompt.
        options: see :class:``Options``.
        emit: takes :class:``Piece`` and :class:``Failed``, from the engine's thread.
        deadline: when it has to be done, by ``time.monotonic``.
    """

    index: int
    model: str
    ids: list[int]
    options: Options
    emit: Callable[[Piece | Failed], None]
    deadline: float
    created: float = field(default_factory=time.monotonic)
    _cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """Cancel the answer; it ends within one round. Any thread may call this at any time."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        """Whether the answer was cancelled."""
        return self._cancelled.is_set()


@dataclass(eq=False)
class Model:
    """A loaded model, as the HTTP layer knows it. Any thread may read it.

    Attributes:
        name: its name in requests.
        tokenizer: mlx-lm's wrapper, or what has its methods.
        context: maximum tokens of prompt and answer together.
        tokens: number of token ids that it can read.
        vocabulary: number of logits per row.
        nbytes: bytes of its weights.
        layers: number of its layers.
        caches: the specs of those offered that it can use.
        drafted: whether it has a drafter.
        loaded: when it was loaded, as Unix time in seconds.
        used: when a request last needed it, by ``time.monotonic``.
        lock: protects the tokenizer, which is not thread-safe.
        grammars: the grammars for its tokenizer.
    """

    name: str
    tokenizer: Tokenizer
    context: int
    tokens: int
    vocabulary: int
    nbytes: int = 0
    layers: int = 0
    caches: tuple[str, ...] = ("raw",)
    drafted: bool = False
    loaded: int = field(default_factory=lambda: int(time.time()))
    used: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)
    grammars: Grammars = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Prepare the grammars."""
        self.grammars = Grammars(self.tokenizer, self.vocabulary)

    @cached_property
    def template(self) -> Template:
        """The chat template, for whoever holds the lock."""
        return Template(self.tokenizer)

    @cached_property
    def longest(self) -> int:
        """The most characters that a text can have and still fit the context."""
        return SHRINKS * self.context * max(map(len, self.tokenizer.get_vocab()))

    def encode(self, text: str, *, begins: bool = False) -> list[int]:
        """Return the tokens of a text that may contain special tokens.

        Args:
            text: the text.
            begins: whether the tokenizer's opening token goes before it, as in ``kakeya-engine generate``. A chat
                template writes that token itself.

        Raises:
            ApiError: 400, the text cannot fit the context. Encoding it would occupy the tokenizer for seconds.
            BadInput: it begins a prompt and is empty.
        """
        if len(text) > self.longest:
            message = f"A text of {len(text)} characters does not fit the {self.context} tokens that {self.name} reads."
            raise ApiError(400, message, param="messages", code="context_length_exceeded")
        with self.lock:
            if begins:
                return encode(self.tokenizer, text)
            return [int(token) for token in self.tokenizer.encode(text, add_special_tokens=False)]

    def check(self, ids: Sequence[int], param: str) -> None:
        """Refuse tokens for which the model has no embedding (ApiError 400)."""
        if not all(0 <= token < self.tokens for token in ids):
            message = f"The prompt holds a token that this model, which has {self.tokens}, does not have."
            raise ApiError(400, message, param=param, code="invalid_value")

    def decode(self, tokens: list[int]) -> str:
        """Return the text of tokens."""
        with self.lock:
            return self.tokenizer.decode(tokens, clean_up_tokenization_spaces=False)


@dataclass(frozen=True)
class Memory:
    """The memory of a backend, in bytes.

    Attributes:
        caches: of the answers that are being decoded.
        prefixes: of kept prompts.
        device: what else the backend measures, by its name in ``/v1/kakeya/stats``.
    """

    caches: int = 0
    prefixes: int = 0
    device: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Health:
    """The state of a backend.

    Attributes:
        beat: time of its last sign of life, by ``time.monotonic``.
        silent: seconds since then; 0 while something runs that may take long.
        running: whether it has not ended yet.
        failure: why it ended by itself; None if it did not.
        trouble: why no request can be served now; None if nothing is known to be wrong.
        loading: the name of the model that is being loaded.
        broken: models that are refused for now, or could not be loaded at the last attempt.
        unloadable: models that could not be loaded at the last attempt, and why.
    """

    beat: float = 0.0
    silent: float = 0.0
    running: bool = True
    failure: str | None = None
    trouble: str | None = None
    loading: str | None = None
    broken: list[str] = field(default_factory=list)
    unloadable: dict[str, str] = field(default_factory=dict)


class Backend(Protocol):
    """An engine. Any thread may call its methods.

    Attributes:
        name: in ``/health``.
    """

    name: str

    @property
    def models(self) -> Mapping[str, Model]:
        """The loaded models, by name."""

    @property
    def active(self) -> Collection[object]:
        """The answers that are being decoded."""

    @property
    def waiting(self) -> int:
        """Number of queued answers."""

    def start(self) -> None:
        """Begin to take jobs."""

    def close(self) -> None:
        """Take no more jobs; all answers end with an error after the current step."""

    def stop(self) -> bool:
        """Close, and wait until it has ended. Returns whether it did so in time."""

    def load(self, name: str) -> "Future[Any]":
        """Return a :class:``Model``, loading it if needed. The future fails with an EngineError or ApiError."""

    def submit(self, jobs: list[Job]) -> None:
        """Queue all answers of a request, or none.

        Each job gets its :class:``Piece``s, the last one with a ``finish_reason`` and a report with ``cached_tokens``,
        or a :class:``Failed``. A cancelled job ends within one step, and a late one with an error.

        Raises:
            ApiError: 429, the queue is full; 503, the server is ending.
        """

    def health(self) -> Health:
        """Return its state."""

    def memory(self) -> Memory:
        """Return the memory in use."""

    def stats(self) -> dict[str, Any]:
        """Return further entries of ``/v1/kakeya/stats``."""


Start = Callable[[Settings, Metrics, Callable[[], None]], Backend]
"""Creates a backend from the settings, the counters, and what to call when jobs have emitted what they had."""
