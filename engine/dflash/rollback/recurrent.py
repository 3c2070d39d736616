"""Rollback of recurrent states by recomputation: gated delta nets, Mamba and their like.

A state has taken in every token of a block and cannot give one back. So the layers' states from before the
block are kept (references: models put new states in place of old ones and never write into them), and so
are the inputs of the modules that read and write them. Where a block is kept in part, these modules run
again from there over the inputs of what was kept, and their outputs are thrown away. MLX computes what is
asked for only, so that costs, for ``n`` kept tokens and each such layer, the projections that feed the state
and ``n`` steps of the recurrence: no output projection, no attention, no MLP, no head. A block that is kept
whole costs nothing.
"""

import inspect
from collections.abc import Callable
from typing import Any

from engine.dflash.clones import as_kind, with_replaced
from engine.errors import RollbackError
from engine.lm import cache as lm_cache
from engine.mx import mx, nn


class Recompute(lm_cache.ArraysCache):
    """A recurrent cache's stand-in for the rounds: it reads and writes the cache, and takes inputs down.

    The model has to be one that :func:`recorded` gave.
    """

    name = "recompute"

    def __init__(self, states: lm_cache.ArraysCache) -> None:
        self.inner, self.given = states, self
        self._before: list[mx.array | None] = []
        self._calls: list[tuple[Callable, tuple, dict]] = []

    @property
    def cache(self) -> list[mx.array | None]:
        """The states, which are the inner cache's."""
        return self.inner.cache

    @property
    def lengths(self) -> None:
        """None: there is one sequence, without padding."""

    left_padding = lengths

    def record(self, run: Callable, args: tuple, kwargs: dict) -> None:
        """Note a call that reads and writes the states."""
        self._calls.append((run, args, kwargs))

    def begin(self) -> None:
        """Keep the states."""
        self._before, self._calls = list(self.inner.cache), []

    def commit(self, rows: int, kept: int) -> None:
        """Compute the states after the first ``kept`` of the ``rows`` tokens.

        Raises:
            RollbackError: no module has handed its inputs over.
        """
        calls = self._calls
        if not calls:
            raise RollbackError(
                "a recurrent layer did not hand over its inputs",
                "run the model that Rollback.prepare gave; where it was, this architecture needs rollback carry",
            )
        if kept == rows:
            self._before, self._calls = [], []
            return
        self.abandon()
        if kept:
            for run, args, kwargs in calls:
                run(
                    *(self._cut(x, rows, kept) for x in args),
                    **{name: self._cut(x, rows, kept) for name, x in kwargs.items()},
                )

    def abandon(self) -> None:
        """Put the states back."""
        self.inner.cache = self._before
        self._before, self._calls = [], []

    def held_bytes(self) -> int:
        """Return the bytes of the states from before and of the inputs."""
        inputs = [x for _, args, kwargs in self._calls for x in (*args, *kwargs.values())]
        return sum(x.nbytes for x in (*self._before, *inputs) if isinstance(x, mx.array))

    def _cut(self, x: Any, rows: int, kept: int) -> Any:
        """Return an argument of the shorter run: the cache itself, and the first rows of what has rows."""
        if x is self:
            return self.inner
        return x[:, :kept] if isinstance(x, mx.array) and x.ndim > 1 and x.shape[1] == rows else x


def recorded(module: Any) -> Any:
    """Return a clone of a model whose innermost modules that take a cache tell a :class:`Recompute` of it.

    The modules on the way are copied, their parameters shared; the model itself stays as it is.
    """

    def replace(inner: nn.Module) -> nn.Module:
        takes_cache = "cache" in inspect.signature(type(inner).__call__).parameters
        return as_kind(inner, _recording(type(inner))) if takes_cache else inner

    return with_replaced(module, replace)


def _recording(kind: type) -> type:
    """Return a subclass of a module's class, of the same name, whose calls are recorded."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        for x in (*args, *kwargs.values()):
            if isinstance(x, Recompute):
                x.record(super(made, self).__call__, args, kwargs)
        return super(made, self).__call__(*args, **kwargs)

    made = type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})
    return made
