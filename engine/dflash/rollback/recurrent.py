"""Rollback of recurrent states by recomputation: gated delta nets, Mamba and their like.

A state cannot give back a token that it has absorbed. So two things are kept: the layers' states before the block
(as references, because models replace states and never write into them), and the inputs of the modules that read
and write them. If only a part of a block is kept, these modules run again from the kept states over the kept
tokens' inputs, and their outputs are dropped. MLX computes only what is needed. So ``n`` kept tokens cost, in each
such layer, the projections that feed the state and ``n`` steps of the recurrence, but no output projection,
attention, MLP or head. A block that is kept whole costs nothing.

The module is identified at run time: the innermost call that was given the cache and read or wrote a state.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

from engine.dflash.target.clones import as_kind, with_replaced
from engine.errors import RollbackError
from engine.lm import cache as lm_cache
from engine.mx import mx, nn

CARRY = "this model needs rollback carry"


@dataclass
class Call:
    """A call of a module that was given a recurrent cache."""

    run: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    # Whether the module itself read or wrote a state, outside of the calls that it made.
    touched: bool = False
    # The calls that touched a state and were made within this one.
    inner: list["Call"] = field(default_factory=list)


class Recompute(lm_cache.ArraysCache):
    """A recurrent cache's proxy during rounds: it reads and writes the cache, and records the calling modules.

    The model has to be one that ``recorded`` gave.
    """

    name = "recompute"
    _after: list[mx.array | None] | None

    def __init__(self, states: lm_cache.ArraysCache) -> None:
        self.inner, self.stand_in = states, self
        self._restart([])

    @property
    def cache(self) -> list[mx.array | None]:
        """The states, which are the inner cache's."""
        if self._open:
            self._open[-1].touched = True
        states: list[mx.array | None] = self.inner.cache
        return states

    @property
    def lengths(self) -> None:
        """Always None: there is one sequence, without padding."""

    left_padding = lengths

    def enter(self, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Begin a call that was given this cache."""
        self._open.append(Call(run, args, kwargs))

    def leave(self) -> None:
        """End the innermost open call: record it if it touched a state, otherwise the calls within it."""
        call = self._open.pop()
        noted = [call] if call.touched else call.inner
        (self._open[-1].inner if self._open else self.calls).extend(noted)

    def begin(self) -> None:
        """Save the states."""
        self._restart(self.inner.cache)

    def check(self, rows: int, keep: int) -> None:
        """Queue the states after the first ``keep`` of the ``rows`` tokens, without changing the cache.

        Raises:
            RollbackError: no module has recorded its inputs, or one cannot run again by itself.
        """
        if not self.calls:
            raise RollbackError(
                "a recurrent layer did not hand over its inputs",
                f"run the model that Rollback.prepare gave; if it was that model, {CARRY}",
            )
        self._after = None
        if keep == rows:
            return
        again = lm_cache.ArraysCache(len(self._before))
        again.cache = list(self._before)
        for call in self.calls if keep else ():
            cut = [self._cut(x, rows, keep, again) for x in call.args]
            named = {name: self._cut(x, rows, keep, again) for name, x in call.kwargs.items()}
            try:
                call.run(*cut, **named)
            except Exception as error:
                reason = " ".join(str(error).split())
                raise RollbackError(f"a recurrent layer cannot run again: {reason}", CARRY) from error
        self._after = again.cache

    def commit(self, rows: int, keep: int) -> None:  # noqa: ARG002
        """Take over the states that ``check`` queued."""
        if self._after is not None:
            self.inner.cache = self._after
        self._restart([])

    def abandon(self) -> None:
        """Restore the states."""
        self.inner.cache = self._before
        self._restart([])

    def _restart(self, states: list[mx.array | None]) -> None:
        self._before = list(states)
        self._after = None
        self.calls: list[Call] = []  # the round's calls that touched a state, in their order
        self._open: list[Call] = []

    def _cut(self, x: Any, rows: int, keep: int, again: lm_cache.ArraysCache) -> Any:
        """Return an argument for fewer rows: states as they are, and the first rows of arrays with rows."""
        if x is self:
            return again
        if any(True for _ in _stand_ins(x)):
            raise RollbackError("a layer writes its state together with other caches", CARRY)
        return x[:, :keep] if isinstance(x, mx.array) and x.ndim > 1 and x.shape[1] == rows else x


def recorded(module: Any) -> Any:
    """Return a clone of a model in which modules that take a cache notify a ``Recompute`` when they run.

    The modules on the path to them are copied, and parameters are shared; the model itself does not change.
    """

    def replace(inner: nn.Module) -> nn.Module:
        takes_cache = "cache" in inspect.signature(type(inner).__call__).parameters
        return as_kind(inner, _recording(type(inner))) if takes_cache else inner

    return with_replaced(module, replace)


def _recording(kind: type[nn.Module]) -> type[nn.Module]:
    """Return a subclass of a module's class, of the same name, whose calls are recorded."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = MethodType(kind.__call__, self)
        recorded_arguments = list(_stand_ins((args, kwargs)))
        for cache in recorded_arguments:
            cache.enter(run, args, kwargs)
        try:
            return run(*args, **kwargs)
        finally:
            for cache in recorded_arguments:
                cache.leave()

    return type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


def _stand_ins(x: Any) -> Iterator[Recompute]:
    """Yield the proxies in an argument: itself, or in lists of caches."""
    if isinstance(x, Recompute):
        yield x
    elif isinstance(x, lm_cache.CacheList):
        yield from _stand_ins(x.caches)
    elif isinstance(x, list | tuple):
        for item in x:
            yield from _stand_ins(item)
    elif isinstance(x, dict):
        yield from _stand_ins(list(x.values()))
