"""One answer to generate: the data that the HTTP side and the engine's thread exchange."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engine.inject.package import NAME as PACKAGE

DRAFTS = ("auto", "none", "lookup", "dflash", PACKAGE)


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
