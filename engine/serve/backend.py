"""The interface between the HTTP layer and an engine: ``Backend``, which answers jobs on loaded models.

Dialects, formats and routes import this file and no engine. To add an engine, implement ``Backend``, fill in
``Model``, and name the engine in ``engine.serve.main``:

- load a model: ``Backend.load``; its text in tokens and back: ``Model.encode``, ``Model.decode``
- prefill a prompt, and step to the answer's end: ``Backend.submit``. The tokens that a step may choose are the
  rows of the masks of ``options.grammar.start()``
- cancel: ``Job.cancelled`` is read before each step
- memory and statistics: ``Backend.memory``, ``Backend.stats``
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from engine.dflash.kinds import KINDS
from engine.inject import NAME as PACKAGE
from engine.marks import SEPARATOR, Marks
from engine.serve.errors import ApiError, too_long
from engine.serve.formats.template import Template
from engine.serve.grammars.compiled import Compiled, Grammars
from engine.serve.metrics import Metrics
from engine.serve.settings import Settings
from engine.stop_strings import TextSplitter
from engine.tokens import Tokenizer, encode

DRAFTS = ("auto", "none", "lookup", *KINDS, PACKAGE)
ENDING = 10.0  # seconds within which a closed backend should end
STUCK = 60.0  # seconds without a sign of life after which it counts as stuck
SHRINKS = 3  # about how many characters Unicode normalization can turn into one


@dataclass(frozen=True)
class Options:
    """How an answer is decoded."""

    max_tokens: int
    temperature: float = 1.0  # 0 is greedy; the next three as in engine.dflash.sampling.Sampling
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None  # makes sampling repeatable
    stop: tuple[str, ...] = ()  # strings that end the answer
    # A function that creates a splitter, if stop strings count only in some parts of the text; see
    # engine.stop_strings.
    splitter: Callable[[], TextSplitter] | None = None
    cache: str = "raw"  # the cache spec
    boundary: int = 0  # layers left raw at either end
    draft: str = "auto"  # one of DRAFTS
    prefix: bool = True  # whether to use the prefix cache
    token_ids: bool = False  # whether the last piece's report contains the token ids
    bias: dict[int, float] = field(default_factory=dict)  # added to the logits of tokens
    presence: float = 0.0  # subtracted from the logit of each token in the answer
    frequency: float = 0.0  # the same, multiplied by the token's count
    repetition: float = 1.0  # divides the logits of tokens in the prompt or the answer
    logprobs: int | None = None  # alternatives to report with each token; None for no log-probabilities
    grammar: Compiled | None = None  # of the answer
    live: bool = False  # whether each piece contains a report

    @property
    def guided(self) -> bool:
        """Whether logits must be changed or reported."""
        changed = self.bias or self.presence or self.frequency or self.repetition != 1 or self.grammar
        return bool(changed) or self.logprobs is not None

    @property
    def drawn_by_seed(self) -> bool:
        """Whether the same seed must give the same tokens."""
        return self.seed is not None and self.temperature > 0


@dataclass(frozen=True)
class Piece:
    """The output of one round of the request's answer ``index``."""

    index: int
    text: str  # the text that became final
    tokens: int  # number of committed tokens
    # One entry a token: (token, logprob, the likeliest [(token, logprob), ...]); None if not requested.
    logprobs: list[tuple[int, float, list[tuple[int, float]]]] | None = None
    finish_reason: str | None = None  # only in the last piece
    report: dict[str, Any] = field(default_factory=dict)  # in the last piece, and in others if requested


@dataclass(frozen=True)
class Failed:
    """The end of a failed answer."""

    index: int
    error: Exception


@dataclass(eq=False)
class Job:
    """The request's answer ``index``, to be computed from the prompt ``ids``."""

    index: int
    model: str  # the name of a loaded model
    ids: list[int]
    options: Options
    emit: Callable[[Piece | Failed], None]  # called in the engine's thread
    deadline: float  # by time.monotonic
    created: float = field(default_factory=time.monotonic)
    cancelled: bool = False  # the answer ends within one round

    def cancel(self) -> None:
        """Cancel the answer. Any thread may call this at any time."""
        self.cancelled = True

    def fail(self, error: Exception) -> None:
        """End the answer with an error, in the engine's thread."""
        self.emit(Failed(self.index, error))


@dataclass(eq=False)
class Model:
    """A loaded model, as the HTTP layer knows it. Any thread may read it."""

    name: str  # in requests
    tokenizer: Tokenizer  # mlx-lm's wrapper, or an object with its methods
    context: int  # maximum tokens of prompt and answer together
    tokens: int  # number of token ids that it can read
    vocabulary: int  # number of logits per row
    nbytes: int = 0  # of its weights
    layers: int = 0
    caches: tuple[str, ...] = ("raw",)  # the offered cache specs that it can use
    drafted: bool = False  # whether it has a drafter
    # The default sampling settings, by the names of Sampled's fields.
    sampling: Mapping[str, float] = field(default_factory=dict)
    loaded: int = field(default_factory=lambda: int(time.time()))  # Unix time in seconds
    used: float = field(default_factory=time.monotonic)  # when a request last needed it
    lock: threading.Lock = field(default_factory=threading.Lock)  # of the tokenizer, which is not thread-safe
    grammars: Grammars = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Prepare the grammars."""
        self.grammars = Grammars(self.tokenizer, self.vocabulary)

    @cached_property
    def template(self) -> Template:
        """The chat template. The caller must hold the lock."""
        return Template(self.tokenizer)

    @cached_property
    def longest(self) -> int:
        """The most characters of a text that may fit into the context."""
        return SHRINKS * self.context * max(map(len, self.tokenizer.get_vocab()))

    @cached_property
    def marks(self) -> Marks:
        """The tokenizer's marks. The caller must hold the lock."""
        return Marks(self.tokenizer)

    def encode(self, text: str, *, begins: bool = False) -> list[int]:
        """Return the tokens of a text. Its marks become special tokens, except those that were set apart.

        If it ``begins`` a prompt, the tokenizer's opening token is put before it; a chat template writes that itself.

        Raises:
            ApiError: 400, the text cannot fit the context. Encoding it would occupy the tokenizer for seconds.
            BadInput: it begins a prompt and is empty.
        """
        if len(text) > self.longest:
            raise too_long(f"{len(text)} characters", self.context)
        with self.lock:
            if begins and SEPARATOR not in text:
                return encode(self.tokenizer, text)
            return self.marks.encode(text, begins=begins)

    def check(self, ids: Sequence[int], param: str) -> None:
        """Raise ApiError 400 for tokens without an embedding in the model."""
        if not all(0 <= token < self.tokens for token in ids):
            message = f"The prompt holds a token that this model, which has {self.tokens}, does not have."
            raise ApiError(400, message, param=param, code="invalid_value")

    def decode(self, tokens: list[int]) -> str:
        """Return the text of tokens."""
        with self.lock:
            return self.tokenizer.decode(tokens, clean_up_tokenization_spaces=False)


@dataclass(frozen=True)
class Memory:
    """The memory of a backend, in bytes."""

    caches: int = 0  # of the answers that are being decoded
    prefixes: int = 0  # of kept prompts
    # The backend's other measurements, by their names in /v1/kakeya/stats.
    device: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Health:
    """The state of a backend."""

    beat: float = 0.0  # time of its last sign of life, by time.monotonic
    silent: float = 0.0  # seconds since the last sign of life; 0 during work that may take long
    running: bool = True  # whether it has not ended yet
    failure: str | None = None  # why it ended by itself; None if it did not
    trouble: str | None = None  # why no request can be served now; None if nothing is known to be wrong
    loading: str | None = None  # the name of the model that is being loaded
    # Models that are refused for now, or could not be loaded at the last attempt.
    broken: list[str] = field(default_factory=list)
    # Models that could not be loaded at the last attempt, and why.
    unloadable: dict[str, str] = field(default_factory=dict)


class Backend(Protocol):
    """An engine. Any thread may call its methods."""

    name: str  # in /health
    lacks: Collection[str]  # what another backend has and this one does not, in words

    def takes(self, spec: str) -> bool:
        """Return whether it has the caches of a spec."""

    def code_bytes(self, spec: str, dim: int) -> int | None:
        """Return the bytes of the code of a vector of ``dim`` values; None if caches store decoded values."""

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
        """Close the backend, and wait until it has ended. Returns whether it ended in time."""

    def load(self, name: str) -> "Future[Any]":
        """Return a ``Model``, loading it if needed. The future fails with an EngineError or ApiError."""

    def submit(self, jobs: list[Job]) -> None:
        """Queue all answers of a request, or none.

        Each job gets its ``Piece``s, the last one with a ``finish_reason`` and a report with ``cached_tokens``,
        or a ``Failed``. A cancelled job ends within one step, and a late one with an error. ApiError 429 if the
        queue is full, 503 if the server is ending.
        """

    def health(self) -> Health:
        """Return the backend's state."""

    def memory(self) -> Memory:
        """Return the memory in use."""

    def stats(self) -> dict[str, Any]:
        """Return further entries of ``/v1/kakeya/stats``."""


Start = Callable[[Settings, Metrics, Callable[[], None]], Backend]
"""Creates a backend from the settings, the counters, and what to call when jobs have emitted what they had."""
