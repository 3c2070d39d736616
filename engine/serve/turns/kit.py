"""The interface between the thread and an engine: models, answers, and their memory. Each backend has a ``Kit``."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from engine.dflash.step import Stats, Step, ratio
from engine.dflash.stops import Stops
from engine.serve.backend import Job, Memory, Model, Options, Piece


class LoadedModel(Model):
    """A loaded model, whose memory can be released."""

    def limit(self, context: int | None, block_size: int | None) -> None:  # noqa: ARG002 - for drafters
        """Limit the context and the blocks of a model that was just loaded."""
        if context is not None:
            self.context = min(self.context, context)

    def release(self) -> None:
        """Drop the weights. The tokenizer stays, because running requests may need it."""


class Answer(ABC):
    """An answer in progress: what it has given so far. Each backend computes the rest in turns."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.prefilling = True  # whether it still reads its prompt
        self.done = False
        self.stats = Stats()
        self.cached = 0  # prompt tokens from the prefix cache
        self.predicted = 0  # bytes of memory that are reserved for the answer
        self.alone = True  # whether no other answer is being decoded; the caller sets this and the next three
        self.together = 1  # the largest number of concurrent answers, including this one
        self.joint = 0  # rounds whose forward pass was shared with other answers
        self.joint_drafts = 0  # rounds whose drafts were shared
        self.fallback: str | None = None
        self._tokens: list[int] = []
        self._digest = hashlib.sha256()  # of the tokens

    @property
    def steps(self) -> int:
        """The number of pieces that the answer has given."""
        return self.stats.steps

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The bytes of the answer's caches."""

    @abstractmethod
    def turn(self, output: Any = None) -> Piece | Any | None:
        """Read a chunk of the prompt, or decode a round. Returns a new piece, or what the round waits for."""

    @abstractmethod
    def close(self) -> None:
        """Release the caches."""

    @abstractmethod
    def _own_report(self) -> Mapping[str, Any]:
        """Return the entries of the report that only this backend knows."""

    def _add(self, step: Step, logprobs: list[Any] | None, stops: Stops) -> Piece:
        """Count a step, and return its piece."""
        self.stats.add(step)
        self._tokens += step.tokens
        self._digest.update("".join(f"{token}," for token in step.tokens).encode())
        self.done = step.finish_reason is not None
        report = self._report(stops) if self.done or self.job.options.live else {}
        if logprobs is not None and step.tokens and step.tokens[-1] in stops.tokens:
            logprobs = logprobs[:-1]
        return Piece(self.job.index, step.text, len(step.tokens), logprobs, step.finish_reason, report)

    def _report(self, stops: Stops) -> dict[str, Any]:
        options = self.job.options
        report = {
            "draft": "+".join(sorted(self.stats.by_drafter.keys() - {"none"})) or "none",
            "cache": f"{options.cache}-b{options.boundary}" if options.boundary else options.cache,
            "rounds": self.stats.verify_steps,
            "proposed": self.stats.proposed,
            "accepted": self.stats.accepted,
            "accept_length": ratio(self.stats.accepted, self.stats.verify_steps),
            "cached_tokens": self.cached,
            "cache_bytes": self.nbytes,
            "together": self.together,
            "joint_rounds": self.joint,
            "joint_drafts": self.joint_drafts,
            "injection": None,
            "stop": stops.matched,
            "closed_early": False,
            "token_digest": f"sha256:{self._digest.hexdigest()}",
            "prefill_seconds": self.stats.prefill,
            "decode_seconds": self.stats.seconds,
            "fallback": self.fallback,
            # Whether the model's blocks give the results of single rows, if the answer may have used blocks.
            "agreement": None,
            **({"token_ids": self._tokens} if self.done and options.token_ids else {}),
        }
        return {**report, **self._own_report()}


class Kit(Protocol):
    """An engine. Except for ``memory`` and ``stats``, only the thread calls it."""

    name: str  # in /health

    def prepare(self) -> None:
        """Set the device and the limits of memory, in the thread."""

    def load(self, name: str) -> LoadedModel:
        """Load a model by name, folder or hub id; BadInput if it is missing or incomplete."""

    def expected(self, name: str) -> int:
        """Return the bytes that a model's weights will take."""

    def runs(self, model: LoadedModel) -> bool:
        """Return whether a model can still run a token."""

    def unloaded(self, name: str) -> None:
        """Drop all data about a model that was unloaded."""

    def predicted(self, model: LoadedModel, options: Options, prompt: int) -> int:
        """Return the maximum memory in bytes of an answer to ``prompt`` tokens, without the weights."""

    def begin(self, job: Job, model: LoadedModel) -> Answer:
        """Begin an answer."""

    def room(self, nbytes: int) -> None:
        """Keep at most this many bytes beside weights and answers."""

    def count(self, answer: Answer) -> None:
        """Record a complete answer in the metrics."""

    def memory(self) -> Memory:
        """Return the memory in use, without the answers' caches."""

    def stats(self) -> dict[str, Any]:
        """Return further entries of ``/v1/kakeya/stats``."""

    def end(self) -> None:
        """Finish pending writes, at the end of the thread."""
