"""The interface between the thread and an engine: models, answers, and their memory. Each backend has a ``Kit``."""

from typing import Any, Protocol

from engine.serve.backend import Job, Memory, Model, Options, Piece


class LoadedModel(Model):
    """A loaded model, whose memory can be released."""

    def limit(self, context: int | None, block_size: int | None) -> None:  # noqa: ARG002 - for drafters
        """Limit the context and the blocks of a model that was just loaded."""
        if context is not None:
            self.context = min(self.context, context)

    def release(self) -> None:
        """Drop the weights. The tokenizer stays, because running requests may need it."""


class Answer(Protocol):
    """An answer in progress."""

    job: Job
    prefilling: bool  # whether it still reads its prompt
    done: bool
    predicted: int  # bytes of memory that are reserved for it
    alone: bool  # whether no other answer is being decoded; the caller sets this and the next
    together: int  # the largest number of concurrent answers, including this one

    @property
    def steps(self) -> int:
        """The number of pieces that the answer has given."""

    @property
    def nbytes(self) -> int:
        """The bytes of the answer's caches."""

    def turn(self, output: Any = None) -> Piece | Any | None:
        """Read a chunk of the prompt, or decode a round. Returns a new piece, or what the round waits for."""

    def close(self) -> None:
        """Release the caches."""


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
