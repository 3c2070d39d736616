"""The training data of a drafter: rows of text by people and by the target itself."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from engine.errors import BadInput
from engine.mx import nn
from engine.tokens import Tokenizer
from engine.train.data import corpus, generate
from engine.train.data.answers import cached_array
from engine.train.run import Source

SUFFIXES = (".md", ".py", ".rst", ".txt")
SHORTEST, LONGEST = 32, 192  # tokens of an opening that the target continues
LONG = 0.25  # the share of text in longer rows, so that the drafter also sees long contexts
LONG_FACTOR = 2.4


def token_ids(tokenizer: Tokenizer, paths: Sequence[Path], path: Path) -> np.ndarray:
    """Return the texts as one stream of token ids, uint32; created once, then read from ``path``.

    ``paths`` are files and folders. Without any, the text is this machine's Python sources.
    """

    def make() -> np.ndarray:
        texts = read_text(paths) if paths else [file.text for file in corpus.collect().train]
        end = tokenizer.eos_token_id
        parts = [[*tokenizer.encode(text, add_special_tokens=False, verbose=False), end] for text in texts]
        return np.concatenate([np.zeros(0, np.uint32), *(np.asarray(part, np.uint32) for part in parts)])

    return cached_array(path, make)


def written_rows(
    target: nn.Module,
    ids: np.ndarray,
    path: Path,
    *,
    count: int,
    length: int,
    seed: int,
    say: Callable[[int], None] = lambda _: None,
) -> np.ndarray:
    """Return ``count`` rows ``[count, length]`` that the target wrote; created once, then read from ``path``."""

    def make() -> np.ndarray:
        longest = min(LONGEST, length // 2)
        check_length(ids, longest, "an opening")
        openings = windows(ids, longest, np.random.default_rng((seed, 3)), count)
        return generate.rows(target, openings, length=length, shortest=SHORTEST, seed=seed, say=say)

    return cached_array(path, make)


def source(ids: np.ndarray, written: np.ndarray, *, share: float, length: int) -> Source:
    """Return the source of a drafter's rows of ``length`` tokens: from files, and ``share`` of them the target's own.

    The target wrote rows ``[count, length]``, or a stream longer than one row; they may be empty. Some batches are text
    alone, ``LONG_FACTOR`` times as long. BadInput if the text, a stream of token ids, is shorter than one row.
    """
    check_length(ids, length)

    def rows(rng: np.random.Generator, count: int) -> np.ndarray:
        if rng.random() < LONG * (1 - share):
            return windows(ids, min(int(length * LONG_FACTOR), len(ids) - 1), rng, count)
        drawn = windows(ids, length, rng, count)
        if len(written):
            chosen = rng.random(count) < share
            own = int(chosen.sum())
            if written.ndim == 1:
                drawn[chosen] = windows(written, length, rng, own)
            else:
                drawn[chosen] = written[rng.integers(0, len(written), own)]
        return drawn

    return rows


def check_length(ids: np.ndarray, length: int, noun: str = "a row") -> None:
    """Raise BadInput if the text is too short for ``noun`` of ``length`` tokens."""
    if len(ids) <= length:
        raise BadInput(f"the text has {len(ids)} tokens, fewer than {noun} of {length}", "give more text")


def windows(ids: np.ndarray, length: int, rng: np.random.Generator, count: int) -> np.ndarray:
    """Return ``count`` random pieces of a stream of token ids, ``[count, length]`` int32."""
    starts = rng.integers(0, len(ids) - length, count)
    return np.stack([ids[start : start + length] for start in starts]).astype(np.int32)


def read_text(paths: Sequence[Path]) -> list[str]:
    """Return the texts of files, and of the files below folders that have one of ``SUFFIXES``."""
    texts = []
    for path in paths:
        files = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES) if path.is_dir() else [path]
        for file in files:
            try:
                texts.append(file.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError) as error:
                if not path.is_dir():
                    raise BadInput(f"cannot read {file}: {error}", "give UTF-8 text") from error
    return texts
