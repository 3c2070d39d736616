"""Several sequences in one forward pass, each with its own cache.

The rows of all sequences are concatenated in one batch entry. Projections, MLPs and the head run over all rows at once;
positions and attention are separate for each sequence. So sequences may differ in length, in their number of rows and
in the kind of their caches. They can join and leave between any two passes, and nothing is merged, padded or copied.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from engine.mx import mx


class PerSequence:
    """Keys, values or masks, one per sequence, in place of one array or mask."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)


class Offsets:
    """The position of each sequence's first row, and how many rows it has."""

    def __init__(self, firsts: Sequence[int], rows: Sequence[int]) -> None:
        self.firsts, self.rows = list(firsts), list(rows)
        # Where the sequences' rows begin, and where the last sequence's rows end.
        self.bounds = [sum(self.rows[:i]) for i in range(len(self.rows) + 1)]
        # Values that are computed once per forward pass, by the id of the module that computes them.
        self.cached: dict[int, tuple[mx.array, mx.array]] = {}

    def cut(self, x: mx.array) -> list[mx.array]:
        """Return each sequence's part of ``[1, heads, rows, dim]``."""
        return [x[:, :, a:b] for a, b in pairwise(self.bounds)]


class RaggedCache:
    """One layer's caches, one for each sequence, and the number of rows of each sequence.

    ``shared`` are the offsets of the layers before, which are used where they are the same.
    """

    def __init__(self, caches: Sequence[Any], rows: Sequence[int], shared: Offsets | None = None) -> None:
        self.caches = list(caches)
        firsts = [cache.offset for cache in caches]
        self.offset = shared if shared and shared.firsts == firsts else Offsets(firsts, rows)

    def make_mask(self, n: int, *args: Any, **kwargs: Any) -> PerSequence | None:  # noqa: ARG002 - `rows` has it
        """Return a mask for each sequence, or None if no sequence needs a mask."""
        pairs = zip(self.caches, self.offset.rows, strict=True)
        masks = [cache.make_mask(rows, *args, **kwargs) for cache, rows in pairs]
        return PerSequence(masks) if any(mask is not None for mask in masks) else None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[PerSequence, PerSequence]:
        """Append each sequence's rows to its cache; return the keys and values that each may attend to."""
        cut = zip(self.caches, self.offset.cut(keys), self.offset.cut(values), strict=True)
        parts = [cache.update_and_fetch(k, v) for cache, k, v in cut]
        return PerSequence([pair[0] for pair in parts]), PerSequence([pair[1] for pair in parts])


def attend(
    attention: Callable[..., mx.array],
    queries: mx.array,
    keys: PerSequence,
    values: PerSequence,
    cache: RaggedCache,
    mask: PerSequence | None,
    **more: Any,
) -> mx.array:
    """Attend for each sequence alone with ``attention``; ``queries`` holds all sequences, ``[1, heads, rows, dim]``."""
    masks = mask.parts if mask is not None else [None] * len(cache.caches)
    parts = zip(cache.offset.cut(queries), keys.parts, values.parts, cache.caches, masks, strict=True)
    return mx.concatenate(
        [attention(q, k, v, cache=cache_of_row, mask=own, **more) for q, k, v, cache_of_row, own in parts],
        axis=2,
    )
