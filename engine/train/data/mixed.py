"""The training data of a restorer: rows of text and of generated retrieval tasks, for any tokenizer."""

import random

import numpy as np

from engine.tokens import Tokenizer
from engine.train.data import tasks, text
from engine.train.run import Source

SHORT = 120  # tokens of one task
FILLER = 6000  # tokens of text from which a task takes its lines


def source(tokenizer: Tokenizer, ids: np.ndarray, *, task_share: float, length: int) -> Source:
    """Return the source of rows of ``length`` tokens: parts of a text and, with probability ``task_share``, tasks.

    BadInput if the text, a stream of token ids, is shorter than one row.
    """
    text.check_length(ids, length)

    def rows(rng: np.random.Generator, count: int) -> np.ndarray:
        drawn = text.windows(ids, length, rng, count)
        for i in np.flatnonzero(rng.random(count) < task_share):
            drawn[i] = _tasks(tokenizer, ids, rng, length)
        return drawn

    return rows


def _tasks(tokenizer: Tokenizer, ids: np.ndarray, rng: np.random.Generator, length: int) -> np.ndarray:
    """Return one row of tasks. Half of the tasks fill the rest of the row, so that questions are far from answers."""
    chance = random.Random(int(rng.integers(2**63)))
    row: list[int] = []
    while len(row) < length:
        room = length - len(row)
        size = room if room < SHORT else chance.choice([room, chance.randint(60, room)])
        start = chance.randrange(max(1, len(ids) - FILLER))
        lines = tokenizer.decode(ids[start : start + FILLER].tolist()).splitlines()
        pieces = tasks.draw(chance, size, [line for line in lines if line.strip()])
        task = "".join(piece for piece, _ in pieces)
        row += [*tokenizer.encode(task, add_special_tokens=False), tokenizer.eos_token_id]
    return np.asarray(row[:length], np.int32)
