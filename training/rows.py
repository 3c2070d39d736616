"""Training rows: windows of source text, and generated tasks packed end to end."""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.train.data import tasks
from engine.train.data.corpus import File
from training.tokenizer import END

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHORT = 120  # tokens that one task fills
WHOLE = 1.0  # the weight of every token of a row that is text alone
# The mix for a target that has learnt the other kinds: mostly the hardest kind.
HARD: tasks.Mix = (
    (tasks.named_values, 0.12),
    (tasks.notes, 0.15),
    (tasks.needles_in_code, 0.7),
    (tasks.copying, 0.03),
)


class Batches(ABC):
    """An endless, seeded stream of batches of rows; two streams with one seed are the same, batch for batch."""

    def __init__(self, tokenizer: "Tokenizer", seed: int) -> None:
        self.tokenizer, self.seed = tokenizer, seed
        end = tokenizer.token_to_id(END)
        if end is None:
            raise ValueError(f"the tokenizer does not know {END}")
        self.end = end

    def batch(self, step: int, rows: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return tokens ``[rows, length + 1]`` int64 and the loss weights of their successors ``[rows, length]``."""
        rng = random.Random(f"{self.seed}/{step}")
        made = [self._row(rng, length + 1) for _ in range(rows)]
        tokens, weights = (np.stack(part) for part in zip(*made, strict=True))
        return tokens.astype(np.int64), weights[:, 1:].astype(np.float32)

    @abstractmethod
    def _row(self, rng: random.Random, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of a row and their loss weights."""


class Rows(Batches):
    """Batches of source text and generated tasks.

    Args:
        tokenizer: a ``tokenizers.Tokenizer``.
        files: the training files.
        seed: see ``Batches``.
        task_share: the share of rows that hold generated tasks.
        library_share: the share of source rows taken from the standard library.
        mix: the kinds of tasks.

    Attributes:
        own: rows ``[count, length]`` that a target wrote, or None.
        own_share: the share of rows that are taken from those.
    """

    def __init__(
        self,
        tokenizer: "Tokenizer",
        files: Sequence[File],
        seed: int,
        *,
        task_share: float = 0.28,
        library_share: float = 0.5,
        mix: tasks.Mix = tasks.TASKS,
    ) -> None:
        super().__init__(tokenizer, seed)
        self.task_share, self.library_share, self.mix = task_share, library_share, mix
        self.own: np.ndarray | None = None
        self.own_share = 0.0
        self.lines = [line for file in files for line in file.text.splitlines() if line.strip()]
        library = [file for file in files if file.source == "python"]
        others = [file for file in files if file.source != "python"]
        self.streams = [self._stream(part) for part in (library, others)]

    def _stream(self, files: Sequence[File]) -> np.ndarray:
        order = random.Random(self.seed)
        files = list(files)
        order.shuffle(files)
        encoded = self.tokenizer.encode_batch([file.text for file in files])
        parts = [np.asarray([*one.ids, self.end], np.uint16) for one in encoded]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint16)

    def _row(self, rng: random.Random, length: int) -> tuple[np.ndarray, np.ndarray]:
        drawn = rng.random()
        if drawn < self.task_share:
            return self._task_row(rng, length)
        if self.own is not None and drawn < self.task_share + self.own_share:
            return self._own_row(rng, length, self.own)
        return self._source_row(rng, length)

    @staticmethod
    def _own_row(rng: random.Random, length: int, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count = -(-length // own.shape[1])
        row = np.concatenate([own[rng.randrange(len(own))] for _ in range(count)])
        return row[:length], np.full(length, WHOLE, np.float32)

    def _source_row(self, rng: random.Random, length: int) -> tuple[np.ndarray, np.ndarray]:
        library, others = self.streams
        stream = library if rng.random() < self.library_share or len(others) <= length else others
        start = rng.randrange(len(stream) - length)
        return stream[start : start + length], np.full(length, WHOLE, np.float32)

    def _task_row(self, rng: random.Random, length: int) -> tuple[np.ndarray, np.ndarray]:
        ids: list[int] = []
        weights: list[float] = []
        while len(ids) < length:
            left = length - len(ids)
            size = left if left < SHORT else rng.choice([left, rng.randint(60, left), rng.randint(60, left)])
            place = rng.randrange(len(self.lines) - 300)
            pieces = tasks.draw(rng, size, self.lines[place : place + 300], self.mix)
            for one, (_, weight) in zip(
                self.tokenizer.encode_batch([t for t, _ in pieces]), pieces, strict=True
            ):
                ids += one.ids
                weights += [weight] * len(one.ids)
            ids.append(self.end)
            weights.append(0.1)
        return np.asarray(ids[:length]), np.asarray(weights[:length])


def windows(tokenizer: "Tokenizer", files: Sequence[File], length: int) -> Iterator[np.ndarray]:
    """Yield the consecutive windows ``[length + 1]`` of each file; what is left over at its end is dropped."""
    for file in files:
        ids = np.asarray(tokenizer.encode(file.text).ids, np.int64)
        for start in range(0, len(ids) - length, length):
            yield ids[start : start + length + 1]
