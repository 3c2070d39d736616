"""Lets a target answer prompts in MLX, many at a time, for the training of its drafters."""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from engine.mx import nn
from engine.train.data import generate

BATCH = 48  # prompts of equal length that are answered at a time


def writer(
    target: nn.Module, tokens: int, ends: Collection[int], seed: int = 0
) -> Callable[[Sequence[Sequence[int]]], list[list[int]]]:
    """Return a function that answers prompts with at most ``tokens`` tokens each, three quarters of them greedily.

    An answer ends with the first of ``ends``, which belongs to it.
    """

    def write(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        by_length: dict[int, list[int]] = {}
        for i, prompt in enumerate(prompts):
            by_length.setdefault(len(prompt), []).append(i)
        answers: dict[int, list[int]] = {}
        for length, equal in by_length.items():
            for at in range(0, len(equal), BATCH):
                part = equal[at : at + BATCH]
                openings = np.array([prompts[i] for i in part])
                rows = generate.rows(target, openings, length=length + tokens, seed=seed + part[0])
                for i, row in zip(part, rows[:, length:].tolist(), strict=True):
                    end = next((at + 1 for at, token in enumerate(row) if token in ends), len(row))
                    answers[i] = row[:end]
        return [answers[i] for i in range(len(prompts))]

    return write
