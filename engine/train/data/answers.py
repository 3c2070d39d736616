"""What an instruct model answers to prompts, as one stream of tokens for its drafter to learn from."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from engine.train.data.kept import made_once

BATCH = 96  # prompts answered at a time, of nearly the same length

Writer = Callable[[Sequence[Sequence[int]]], list[list[int]]]


def stream(
    prompts: Sequence[Sequence[int]],
    writer: Callable[[], Writer],
    path: Path,
    say: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Return each prompt with its answer, one after the other, uint32; made once, then read from ``path``.

    Args:
        prompts: token ids, with the chat template around them.
        writer: loads what answers some prompts, if they are not answered yet. An answer ends with the model's closing
            token if it came to its end.
        path: an ``.npy`` file.
        say: gets the number of prompts answered so far.
    """

    def make() -> np.ndarray:
        write = writer()
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        chats: dict[int, list[int]] = {}
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            answers = write([prompts[i] for i in batch])
            chats |= {i: [*prompts[i], *answer] for i, answer in zip(batch, answers, strict=True)}
            if say:
                say(len(chats))
        return np.concatenate([np.asarray(chats[i], np.uint32) for i in range(len(prompts))])

    return made_once(path, make)
