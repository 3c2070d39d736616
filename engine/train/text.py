"""The rows of text that a drafter learns from: people's, and the target's own."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from engine.errors import BadInput
from engine.train import corpus, generate

SUFFIXES = (".md", ".py", ".rst", ".txt")
PROMPT = 64  # tokens of an opening that the target goes on from
LONG = 0.25  # the share of text rows that are longer, so that far context is seen too
LONG_FACTOR = 2.4


def token_ids(tokenizer, paths: Sequence[Path], kept: Path) -> np.ndarray:
    """Return the texts as one stream of token ids, uint32; made once, then read from ``kept``.

    Args:
        tokenizer: mlx-lm's wrapper, or one of transformers.
        paths: files and folders; none for this machine's Python sources.
        kept: an ``.npy`` file.
    """
    if kept.exists():
        return np.load(kept)
    texts = read_text(paths) if paths else [file.text for file in corpus.collect().train]
    end = tokenizer.eos_token_id
    parts = [[*tokenizer.encode(text, add_special_tokens=False), end] for text in texts]
    ids = np.concatenate([np.asarray(part, np.uint32) for part in parts]) if parts else np.zeros(0, np.uint32)
    np.save(kept, ids)
    return ids


def written_rows(
    target,
    ids: np.ndarray,
    kept: Path,
    *,
    count: int,
    length: int,
    seed: int,
    say: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Return ``count`` rows ``[count, length]`` that the target wrote; made once, then read from ``kept``."""
    if kept.exists():
        return np.load(kept)
    prompt = min(PROMPT, length // 2)
    starts = windows_of(ids, prompt, seed + 1, long=0)
    rows = generate.rows(target, starts, count=count, prompt=prompt, length=length, seed=seed, say=say)
    np.save(kept, rows)
    return rows


def windows_of(ids: np.ndarray, length: int, seed: int, long: float = LONG) -> Iterator[np.ndarray]:
    """Yield random windows of ``length`` tokens, some ``LONG_FACTOR`` times as long, for ever.

    Raises:
        BadInput: the stream is shorter than one window.
    """
    if len(ids) <= length:
        raise BadInput(f"{len(ids)} tokens of text, fewer than a row of {length}", "give more text")
    rng = np.random.default_rng(seed)
    while True:
        size = int(length * LONG_FACTOR) if rng.random() < long else length
        size = min(size, len(ids) - 1)
        start = int(rng.integers(0, len(ids) - size))
        yield ids[start : start + size].astype(np.int32)


def mixed(text: Iterator[np.ndarray], written: np.ndarray, share: float, seed: int) -> Iterator[np.ndarray]:
    """Yield rows of ``text``, and with probability ``share`` rows that the target wrote, ``[count, length]``."""
    rng = np.random.default_rng(seed)
    while True:
        if len(written) and rng.random() < share:
            yield written[rng.integers(len(written))]
        else:
            yield next(text)


def read_text(paths: Sequence[Path], suffixes: tuple[str, ...] = SUFFIXES) -> list[str]:
    """Return the texts of files, and of the files below folders that have one of ``suffixes``."""
    texts = []
    for path in paths:
        found = sorted(p for p in path.rglob("*") if p.suffix in suffixes) if path.is_dir() else [path]
        for file in found:
            try:
                texts.append(file.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError) as error:
                if not path.is_dir():
                    raise BadInput(f"cannot read {file}: {error}", "give UTF-8 text") from error
    return texts
