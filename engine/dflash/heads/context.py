"""A head's context: keys and values of its layer, and the feature of the last accepted token.

The row of a position has the target's feature of that position and the embedding of the token after it. So the last
token's row can be computed only once the next token is known, and its feature waits until then. Drafts write rows
after the kept ones, and give them back: the accepted tokens' rows are computed again from the target's own features.
"""

from engine.dflash.drafter.context import copied, joined
from engine.lm import cache as lm_cache
from engine.mx import mx


class HeadContext:
    """The context of one generation; ``offset`` is the position of the next token."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.cache = lm_cache.KVCache()
        self.feature: mx.array | None = None  # `[1, 1, hidden]` of the last token; None before the first

    @property
    def layers(self) -> list["KeptRows | LastFeature"]:
        """The rows, and the feature, as the prefix cache saves them."""
        return [KeptRows(self), LastFeature(self)]

    @property
    def state(self) -> list[mx.array]:
        """All buffers, to be evaluated."""
        rows = [] if self.cache.keys is None else [self.cache.keys, self.cache.values]
        return rows if self.feature is None else [*rows, self.feature]

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(x.nbytes for x in self.state)


class KeptRows:
    """The keys and values of a context, of which there is one fewer than tokens.

    What is saved of the block from ``start`` to ``end`` are the rows of the tokens before each of its own. The first
    token has none before it: a row of zeros takes that place, so that all blocks have the same shape.
    """

    keep = None

    def __init__(self, context: HeadContext) -> None:
        self.context = context

    def saved(self, start: int, end: int) -> list[mx.array]:
        """Return copies of the rows of a block."""
        arrays = (self.context.cache.keys, self.context.cache.values)
        if start:
            return [copied(x, start - 1, end - 1) for x in arrays]
        return [mx.concatenate([mx.zeros_like(x[:, :, :1]), x[:, :, : end - 1]], axis=2) for x in arrays]

    def restore(self, saved: list[list[mx.array]]) -> None:
        """Continue after some blocks."""
        keys, values = (joined([block[i] for block in saved])[:, :, 1:] for i in range(2))
        self.context.cache.keys, self.context.cache.values = keys, values
        self.context.cache.offset = keys.shape[2]


class LastFeature:
    """The feature of a context, in the shape ``[1, 1, 1, hidden]``."""

    keep = 1

    def __init__(self, context: HeadContext) -> None:
        self.context = context

    def saved(self, start: int, end: int) -> list[mx.array]:  # noqa: ARG002
        """Return a copy of the feature."""
        feature = self.context.feature
        return [] if feature is None else [mx.contiguous(feature[None])]

    def restore(self, saved: list[list[mx.array]]) -> None:
        """Continue after some blocks."""
        self.context.feature = mx.array(saved[-1][0])[0]
