"""The arms of a comparison: named systems that take turns, each with a fresh state for every prompt."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from engine.attention import router
from engine.cache.protocol import Cache
from engine.dflash.step import Step

Fresh = TypeVar("Fresh")
A = TypeVar("A")
P = TypeVar("P")
# A function that decodes: from token ids, the maximum number of tokens, and caches to steps. All of its time
# counts.
Decode = Callable[[Sequence[int], int, list[Cache]], Iterator[Step]]


@dataclass(frozen=True)
class Arm(Generic[Fresh]):
    """One system."""

    name: str  # unique in a report
    role: str  # `baseline`, `verify1`, `reference`, `candidate` or a control's; see docs/evidence.md
    loop: str  # what computes
    make: Callable[[Any], Fresh]  # from a prompt to what a run needs afresh: caches, or a drafter's state
    decode: Decode | None = None  # decodes over what `make` gave, if the measurement decodes
    oracle: str | None = None  # the arm that it is compared with
    cache: str = "raw"  # the spec of its caches
    patches: tuple[str, ...] = ()  # what is bound anew in libraries while it runs
    options: Mapping[str, Any] = field(default_factory=dict)  # what else it was told
    # The same as `decode`, but measures drafting and verifying separately; None if nothing is drafted.
    profile: Decode | None = None
    # A function that returns further counters of the previous run, such as crossings between libraries.
    counted: Callable[[], Mapping[str, int]] = dict

    def section(self, *, oracle: bool = True) -> dict[str, Any]:
        """Return the arm's entry in a report; kinds without comparisons of arms have no ``oracle``."""
        names = ("name", "role", "loop", "cache", *(("oracle",) if oracle else ()))
        about = {"patches": list(self.patches), "options": dict(self.options)}
        return {name: getattr(self, name) for name in names} | about

    def attention(self) -> AbstractContextManager[None]:
        """Return the context to run the arm in: mlx-lm's own attention, unless the arm replaces the attention."""
        replaced = any(patch.endswith(router.NAME) for patch in self.patches)
        return nullcontext() if replaced else router.without_routing()


@dataclass(frozen=True)
class Turn(Generic[A, P]):
    """One run of an arm on a prompt."""

    arm: A
    prompt: P
    repeat: int = 0  # which one; where repeats are counted, 0 warms up
    profile: bool = False  # whether the arm tells drafting and verifying apart, which takes time


def interleave(
    arms: Sequence[A], prompts: Sequence[P], repeats: Iterable[int] = (0,)
) -> Iterator[Turn[A, P]]:
    """Yield every arm on every prompt in every repeat.

    The order moves on by one arm from prompt to prompt and from repeat to repeat, so none runs more than twice without
    each other one in between.
    """
    for repeat in repeats:
        for i, prompt in enumerate(prompts):
            at = (repeat + i) % len(arms)
            for arm in (*arms[at:], *arms[:at]):
                yield Turn(arm, prompt, repeat)
