"""Data that a run creates once and reads again when it is resumed, such as an instruct model's answers."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from bridge.common.whole_files import atomic_write

BATCH = 96  # prompts of similar length that are answered at a time

Writer = Callable[[Sequence[Sequence[int]]], list[list[int]]]


def stream(
    prompts: Sequence[Sequence[int]],
    writer: Callable[[], Writer],
    path: Path,
    say: Callable[[int], None] = lambda _: None,
) -> np.ndarray:
    """Return all prompts with their answers, concatenated, uint32; created once, then read from ``path``.

    The prompts are token ids, with the chat template around them. ``writer`` loads what answers some of them, if they
    are not answered yet; an answer that came to its end ends with the model's closing token. ``say`` gets the number
    of prompts answered so far.
    """

    def make() -> np.ndarray:
        write = writer()
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        chats: dict[int, list[int]] = {}
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            answers = write([prompts[i] for i in batch])
            chats |= {i: [*prompts[i], *answer] for i, answer in zip(batch, answers, strict=True)}
            say(len(chats))
        return np.concatenate([np.asarray(chats[i], np.uint32) for i in range(len(prompts))])

    return cached_array(path, make)


def cached_array(path: Path, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Return the result of ``make``; it is written to the ``.npy`` file ``path`` once, and then read from it."""
    if path.exists():
        # An earlier version may have left a truncated file.
        with suppress(ValueError, EOFError):
            stored: np.ndarray = np.load(path)
            return stored
    array = make()
    with atomic_write(path) as part:
        np.save(part, array)
    return array
