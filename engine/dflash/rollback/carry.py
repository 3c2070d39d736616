"""Rollback by carrying: the older way, which works with mlx-lm's own caches and is kept for comparison.

Every cache is saved before each forward pass. If only a part of a block is kept, all caches are restored, and the
kept tokens (the tail) are run again at the beginning of the next pass, before the new block. This works for any
model, also for recurrent ones, and costs another pass over the tokens of each partly kept block.
"""

from collections.abc import Callable, Sequence
from typing import Any

from engine.cache.kinds import layout_of
from engine.cache.protocol import Cache
from engine.dflash.rollback.rollback import CacheRollback, Rollback, check_growth
from engine.mx import mx, tree

# The attributes to save, by the cache's layout. Entries after the offset of a growing cache are never read.
NAMES = {"growing": ("offset",), "ring": ("keys", "values", "offset", "_idx"), "states": ("cache",)}
TAIL = 16  # a longer tail is run through the model at once, in a pass of its own


class Carry:
    """A cache that is saved before a forward pass and restored after it; ``inner`` is the wrapped cache, if any."""

    name = "carry"

    def __init__(self, cache: Any, inner: Any) -> None:
        self.stand_in, self._inner = cache, inner
        self._names = NAMES[layout_of(inner)]
        self._before: dict[str, Any] = {}

    def begin(self) -> None:
        """Save the cache. Arrays are saved as new handles, so MLX copies an array before a write to it."""
        values = {name: getattr(self._inner, name) for name in self._names}
        self._before = tree.tree_map(lambda x: mx.array(x) if isinstance(x, mx.array) else x, values)

    def check(self, rows: int, keep: int) -> None:  # noqa: ARG002
        """See that the forward went into the cache (RollbackError)."""
        if "offset" in self._before:
            check_growth(self._inner, self._before["offset"], rows)

    def commit(self, rows: int, keep: int) -> None:  # noqa: ARG002
        """All of the forward stays."""
        self._before = {}

    def abandon(self) -> None:
        """Restore the cache."""
        for name, value in self._before.items():
            setattr(self._inner, name, value)
        self._before = {}


class Carrying(Rollback):
    """The rollback that this module describes. Rounds are never shared, because a tail must precede its block."""

    def __init__(
        self, cache_rollbacks: Sequence[CacheRollback], caches: list[Cache], stand_ins: list[Cache]
    ) -> None:
        super().__init__(cache_rollbacks, caches, stand_ins)
        self.joins = False
        self._tail: mx.array | None = None
        self._tokens: mx.array | None = None
        self._skip = 0

    @property
    def pending(self) -> int:
        """Kept tokens that are not in the caches yet."""
        return 0 if self._tail is None else self._tail.shape[1]

    def advance(self, model: Callable[..., Any], tokens: mx.array) -> Any:
        """Run the tail and the tokens; return the tokens' rows."""
        self._closed()
        output = self._behind_tail(model, tokens)
        self._tail = None
        return output

    def forward(self, model: Callable[..., Any], tokens: mx.array) -> Any:
        """Run the tail and the block; return the block's rows."""
        self.open(tokens.shape[1])
        if self.pending > TAIL:
            self._run_tail(model)
            self._note()
        self._tokens = tokens
        return self._behind_tail(model, tokens)

    def settle(self, model: Callable[..., Any]) -> None:
        """Abandon an open round and run the tail."""
        self.abandon()
        if self._tail is not None:
            self._note()
            self._run_tail(model)

    def _check(self, rows: int, keep: int) -> None:
        if keep == rows:
            super()._check(rows + self._skip, keep + self._skip)

    def _commit(self, rows: int, keep: int) -> None:
        if keep == rows:
            super()._commit(rows + self._skip, keep + self._skip)
            self._tail = None
            return
        for part in self.cache_rollbacks:
            part.abandon()
        if keep and self._tokens is not None:
            more = self._tokens[:, :keep]
            self._tail = more if self._tail is None else mx.concatenate([self._tail, more], axis=1)

    def _behind_tail(self, model: Callable[..., Any], tokens: mx.array) -> Any:
        """Return the tokens' rows of arrays ``[1, rows, ...]``, or of tuples of them."""
        self._skip = skip = self.pending
        inputs = tokens if self._tail is None else mx.concatenate([self._tail, tokens], axis=1)
        output = model(inputs, cache=self._stand_ins)
        return tree.tree_map(lambda x: None if x is None else x[:, skip:], output) if skip else output

    def _run_tail(self, model: Callable[..., Any]) -> None:
        model(self._tail, cache=self._stand_ins)
        super()._check(self.pending, self.pending)
        super()._commit(self.pending, self.pending)
        self._tail = None
