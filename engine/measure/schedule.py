"""The order of measurements: arms are interleaved, so that none benefits from its position."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

A = TypeVar("A")
P = TypeVar("P")


@dataclass(frozen=True)
class Turn(Generic[A, P]):
    """One run of an arm on a prompt.

    Attributes:
        repeat: which one; where repeats are counted, 0 warms up.
        profile: whether the arm tells drafting and verifying apart, which takes time.
    """

    arm: A
    prompt: P
    repeat: int = 0
    profile: bool = False


def interleave(
    arms: Sequence[A], prompts: Sequence[P], repeats: Iterable[int] = (0,)
) -> Iterator[Turn[A, P]]:
    """Yield every arm on every prompt in every repeat.

    In each cell (a prompt, a repeat) every arm runs once. The order moves on by one arm from prompt to prompt and
    from repeat to repeat, so none runs more than twice without each other one in between.
    """
    for repeat in repeats:
        for i, prompt in enumerate(prompts):
            at = (repeat + i) % len(arms)
            for arm in (*arms[at:], *arms[:at]):
                yield Turn(arm, prompt, repeat)
