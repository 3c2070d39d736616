"""Rollback of a round: caches store a forward pass over L tokens, and keep only the first n of them."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from engine.cache.protocol import Cache
from engine.cache.wrapping import flat
from engine.dflash.rollback.recurrent import recorded
from engine.errors import RollbackError
from engine.lm import cache as lm_cache
from engine.mx import mx

Model = TypeVar("Model", bound=Callable[..., Any])


class CacheRollback(Protocol):
    """Rolls back one cache."""

    name: str  # the kind, for reports
    stand_in: Any  # what the model is given during a round: a proxy, or the cache itself

    def begin(self) -> None:
        """Save the state for a rollback. The forward pass follows."""

    def check(self, rows: int, keep: int) -> None:
        """Raise RollbackError if the first ``keep`` of ``rows`` tokens cannot be kept; do not change the cache."""

    def commit(self, rows: int, keep: int) -> None:
        """Keep the first ``keep`` of the ``rows`` tokens, after ``check`` with the same arguments."""

    def abandon(self) -> None:
        """Return to the state at ``begin``, after a forward pass that may have failed anywhere."""


def check_growth(cache: Any, before: int, rows: int) -> None:
    """Check that a forward pass added ``rows`` tokens to a cache of ``before`` tokens (RollbackError)."""
    if cache.offset != before + rows:
        raise RollbackError(f"a cache of {before} tokens holds {cache.offset} after a forward over {rows}")


class Rollback:
    """Caches from which a forward pass can be removed.

    Use for one generation, with ``rollback = rollback_for(caches, kind)``::

        model = rollback.prepare(target)            # the target itself, or a clone over the same parameters
        logits = rollback.advance(model, chunk)     # the prompt, and steps without a draft: all of it stays
        try:
            while ...:
                logits = rollback.forward(model, block)     # block: [1, L]; logits: [1, L, vocab]
                rollback.commit(keep)                       # 0 <= keep <= L
        finally:
            rollback.settle(model)

    Between rounds, and after ``settle``, the caches hold exactly the kept tokens and are used as if they had
    been decoded one by one: run, saved, trimmed, copied. (A carried tail is missing until ``settle``.)
    """

    def __init__(
        self, cache_rollbacks: Sequence[CacheRollback], caches: list[Cache], stand_ins: list[Cache]
    ) -> None:
        self.cache_rollbacks = list(cache_rollbacks)
        self.caches = caches
        self._stand_ins = stand_ins  # the model's caches during a round
        names = {part.name for part in cache_rollbacks}
        self.name = "+".join(sorted(names))  # such as `late+trim`
        self._recomputes = "recompute" in names
        self.joins = not self._recomputes  # whether other generations can share a round's forward pass
        self._rows: int | None = None
        self._prepared: Callable[..., Any] | None = None

    def prepare(self, model: Model) -> Model:
        """Return the model to run: the original, unless layers have to expose their inputs.

        Tap the result instead of the given model, which does not change. Parameters are shared under the same
        names.
        """
        self._prepared = model
        return recorded(model) if self._recomputes else model

    def advance(self, model: Callable[..., Any], tokens: mx.array) -> Any:
        """Run tokens that all stay, straight into the caches. RollbackError if a round is open."""
        self._closed()
        return model(tokens, cache=self.caches)

    def forward(self, model: Callable[..., Any], tokens: mx.array) -> Any:
        """Open a round: run ``model(tokens, cache=...)`` and return its output, row for row ``tokens``, ``[1, L]``.

        The model is what ``prepare`` gave, or anything over it with the same call.

        Raises:
            RollbackError: the previous round was neither committed nor abandoned.
        """
        return model(tokens, cache=self.open(tokens.shape[1]))

    def open(self, rows: int) -> list[Any]:
        """Open a round, as ``forward`` does; return what the caller gives the model for a pass over ``rows``."""
        self._closed()
        self._note()
        self._rows = rows
        return self._stand_ins

    def commit(self, keep: int) -> None:
        """Close the round: its first ``keep`` tokens stay. Reads nothing from the device.

        Raises:
            RollbackError: no round is open, ``keep`` is not between 0 and L, or a cache has not stored the pass, for
                example because its layer was not run. The round stays open, so that abandoning it restores all
                caches. Only after a failed trim, the caches must not be used any more.
        """
        rows = self._rows
        if rows is None:
            raise RollbackError("no round is open", "run a forward first")
        if not 0 <= keep <= rows:
            raise RollbackError(f"{keep} of {rows} tokens cannot be kept")
        self._check(rows, keep)
        self._rows = None
        self._commit(rows, keep)

    def abandon(self) -> None:
        """Close an open round and keep none of its tokens. Its forward pass may have failed halfway."""
        if self._rows is None:
            return
        self._rows = None
        for part in self.cache_rollbacks:
            part.abandon()

    def settle(self, model: Callable[..., Any]) -> None:  # noqa: ARG002
        """Abandon an open round, and compute the kept tokens that are missing in the caches. Call it at the end."""
        self.abandon()

    def _closed(self) -> None:
        if self._rows is not None:
            raise RollbackError("a round is open", "commit or abandon it first")

    def _note(self) -> None:
        for part in self.cache_rollbacks:
            part.begin()

    def _check(self, rows: int, keep: int) -> None:
        """Check that all caches can commit before any of them changes."""
        for part in tuple(self.cache_rollbacks):
            try:
                part.check(rows, keep)
            except RollbackError:
                if not self._is_idle(part):
                    raise
                self.cache_rollbacks.remove(part)

    def _is_idle(self, part: CacheRollback) -> bool:
        """Return whether the model never uses a part's cache, as for layers without attention in some models."""
        if self._prepared is None or getattr(part.stand_in, "offset", None) != 0:
            return False
        fresh = lm_cache.make_prompt_cache(self._prepared)
        self._prepared(mx.zeros((1, 2), mx.int32), cache=fresh)  # queued, never computed
        is_empty: bool = list(flat(fresh))[list(flat(self._stand_ins)).index(part.stand_in)].empty()
        return is_empty

    def _commit(self, rows: int, keep: int) -> None:
        for part in self.cache_rollbacks:
            part.commit(rows, keep)
