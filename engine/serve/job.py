"""One answer to be made: what the HTTP side asks of the engine's thread, and what comes back."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

DRAFTS = ("auto", "none", "lookup", "dflash")


@dataclass(frozen=True)
class Options:
    """How an answer is decoded.

    Attributes:
        max_tokens: the most tokens.
        temperature: 0 is greedy; the next three as in :class:`engine.dflash.sampling.Sampling`.
        seed: makes sampling repeatable.
        stop: strings that end the answer.
        cache: the cache spec.
        boundary: layers left raw at either end.
        draft: one of :data:`DRAFTS`.
        bias: added to the logits of tokens.
        presence: taken off the logit of each token that the answer holds.
        frequency: the same, times how often it does.
        repetition: divides the logits of tokens that prompt or answer hold.
        logprobs: how many alternatives to report with each token; None for no log-probabilities.
        prefix: whether to look for, and keep, the beginning of the prompt.
        grammar: what the answer has to follow, as :mod:`engine.serve.grammar` writes it.
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
    bias: dict[int, float] = field(default_factory=dict)
    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    logprobs: int | None = None
    grammar: str | None = None

    @property
    def guided(self) -> bool:
        """Whether logits are changed or reported on the way to a token."""
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
    """What one round adds to an answer.

    Attributes:
        index: which of the request's answers.
        text: what is final now.
        tokens: how many tokens were committed.
        logprobs: of these tokens: ``(token, logprob, [(token, logprob), ...])`` each; None if not asked for.
        finish_reason: in the last piece.
        report: how the answer was made, in the last piece; empty in the others.
    """

    index: int
    text: str
    tokens: int
    logprobs: list[tuple[int, float, list[tuple[int, float]]]] | None = None
    finish_reason: str | None = None
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed:
    """The end of an answer that could not be made."""

    index: int
    error: Exception


@dataclass(eq=False)
class Job:
    """One answer.

    Attributes:
        index: which of the request's answers it is.
        model: the name of a loaded model.
        ids: the prompt.
        options: see :class:`Options`.
        emit: takes :class:`Piece` and :class:`Failed`, from the engine's thread.
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
        """Ask for its end within one round; from any thread, at any time."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._cancelled.is_set()
