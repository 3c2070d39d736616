"""Passes our caches to the package: chooses a way that the installed version supports, and checks that it worked.

The package makes its caches itself. What it looks up for that is replaced for the length of one call, for one model
object: the target. The drafter's caches stay the package's own.
"""

import inspect
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from engine.cache.protocol import Cache

KWARG, MAKE_CACHE, PROMPT_CACHE, NONE = "kwarg", "model-make-cache", "module-prompt-cache", "none"
KWARGS = ("target_cache", "caches", "target_caches", "prompt_cache")
MAKER = "make_prompt_cache"
_PATCHING = threading.RLock()  # a module's name is everybody's


@dataclass(frozen=True)
class Decision:
    """How the target's caches get into the package.

    Attributes:
        strategy: ``kwarg``, ``model-make-cache``, ``module-prompt-cache`` or ``none``.
        name: the argument or attribute that it goes by.
    """

    strategy: str
    name: str = ""


@dataclass
class Injection:
    """The result of an injection.

    Attributes:
        kwargs: arguments to call the package's function with.
        times_taken: how often the package took the caches; counted by what it called, None if nothing can count it.
    """

    kwargs: dict[str, Any]
    times_taken: int | None = 0


def decide(package: Any, target: Any) -> Decision:
    """Return how a package takes caches for a target.

    Args:
        package: the module with ``stream_generate``. A name that it imported is looked for in itself: replacing
            it in the module that it came from would change nothing.
        target: the model object.
    """
    parameters = inspect.signature(package.stream_generate).parameters
    for name in KWARGS:
        if name in parameters:
            return Decision(KWARG, name)
    if callable(getattr(target, "make_cache", None)):
        return Decision(MAKE_CACHE, "make_cache")
    if callable(getattr(package, MAKER, None)):
        return Decision(PROMPT_CACHE, MAKER)
    return Decision(NONE)


@contextmanager
def injected(decision: Decision, package: Any, target: Any, caches: Sequence[Cache]) -> Iterator[Injection]:
    """Let the package take caches for a target until the end of the block, from this thread alone.

    Raises:
        RuntimeError: no such strategy.
    """
    with _PATCHING:
        injection = Injection({})

        def hand_out() -> list[Cache]:
            assert injection.times_taken is not None  # noqa: S101 - counted from the start
            injection.times_taken += 1
            return list(caches)

        if decision.strategy == KWARG:
            injection.kwargs, injection.times_taken = {decision.name: list(caches)}, None
            yield injection
        elif decision.strategy == MAKE_CACHE:
            with replaced(target, decision.name, hand_out):
                yield injection
        elif decision.strategy == PROMPT_CACHE:
            original = getattr(package, decision.name)

            def prompt_cache(model: Any, *args: Any, **kwargs: Any) -> Any:
                return hand_out() if model is target else original(model, *args, **kwargs)

            with replaced(package, decision.name, prompt_cache):
                yield injection
        else:
            raise RuntimeError(f"no strategy {decision.strategy!r} gives the package caches")


@contextmanager
def replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute until the end of the block; one that was only inherited is inherited again."""
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
