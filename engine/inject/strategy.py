"""Passes our caches to the package: chooses a way that the installed version supports, and checks that it worked.

The package creates its caches itself. The attribute that it uses for that is replaced during one call, for one model
object: the target. The drafter's caches stay the package's own.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from engine.cache.protocol import Cache

MAKE_CACHE, PROMPT_CACHE, NONE = "model-make-cache", "module-prompt-cache", "none"
MAKER = "make_prompt_cache"
_PATCHING = threading.RLock()  # the attributes of a module are shared by all threads


@dataclass(frozen=True)
class Decision:
    """How the target's caches get into the package."""

    strategy: str  # one of the names above
    name: str = ""  # the attribute's name


@dataclass
class Injection:
    """Counts how often the package took the caches."""

    times_taken: int = 0


def decide(package: Any, target: Any) -> Decision:
    """Return how a package, the module with ``stream_generate``, gets caches for a target.

    Names that it imported are searched in the package itself: replacing them where they come from has no effect.
    """
    if callable(getattr(target, "make_cache", None)):
        return Decision(MAKE_CACHE, "make_cache")
    if callable(getattr(package, MAKER, None)):
        return Decision(PROMPT_CACHE, MAKER)
    return Decision(NONE)


@contextmanager
def injected(decision: Decision, package: Any, target: Any, caches: Sequence[Cache]) -> Iterator[Injection]:
    """Give the package caches for a target until the end of the block, in this thread only."""
    if decision.strategy not in (MAKE_CACHE, PROMPT_CACHE):
        raise RuntimeError(f"no strategy {decision.strategy!r} gives the package caches")
    injection = Injection()
    with _PATCHING:
        holder = target if decision.strategy == MAKE_CACHE else package
        original = getattr(holder, decision.name)

        def make(*args: Any, **kwargs: Any) -> Any:
            if holder is package and args[0] is not target:
                return original(*args, **kwargs)
            injection.times_taken += 1
            return list(caches)

        with replaced(holder, decision.name, make):
            yield injection


@contextmanager
def replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute until the end of the block. Afterwards, an inherited attribute is inherited again."""
    own = name in vars(holder)
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        if own:
            setattr(holder, name, before)
        else:
            delattr(holder, name)
