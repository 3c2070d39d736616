"""Drafts of an answer from its text so far, as the backend over MLX makes them.

A round verifies them in one forward pass. Each row chooses a token as in plain decoding, and the first token that is
not the draft ends the round. So drafts change no token, whatever the sampling, the grammar or the penalties.
"""

from collections.abc import Callable
from typing import Any

from engine.dflash.propose.adaptive import Policy, RoundPlan
from engine.dflash.propose.costs import PLAIN
from engine.dflash.propose.lookup import BLOCK, Lookup


class Drafts:
    """Proposes drafts, over a cache that can forget the rejected ones."""

    def __init__(self, lookup: Lookup | None, policy: Policy) -> None:
        self._lookup, self._policy = lookup, policy
        self._plan, self._match = RoundPlan(PLAIN, 1), 0

    @property
    def possible(self) -> bool:
        """Whether there may be drafts."""
        return self._lookup is not None

    @property
    def drafter(self) -> str:
        """The drafter of the last round, ``lookup`` or ``none``."""
        return self._plan.drafter

    def begin(self, prompt: list[int], cache: Any) -> bool:
        """Read the prompt, which is in the cache. Returns whether the cache can forget rejected drafts, if any."""
        if self._lookup is None:
            return True
        if not cache.is_croppable:
            self._lookup = None
            return False
        cache.activate_past_recording()
        self._policy.begin()
        self._lookup.feed(prompt)
        return True

    def propose(self, room: int, allowed: Callable[[list[int]], int]) -> list[int]:
        """Return the drafts of the next round, of which ``room`` tokens may be committed; none for a plain step.

        ``allowed`` returns how many of the first drafts the grammar allows.
        """
        if self._lookup is None:
            return []
        self._match = self._lookup.length
        self._plan = self._policy.choose(room, BLOCK, self._match, model=0)
        drafts = [] if self._plan.drafter == PLAIN else self._lookup.propose(self._plan.size)
        drafts = drafts[: allowed(drafts)]
        self._plan = RoundPlan("lookup", len(drafts)) if drafts else RoundPlan(PLAIN, 1)
        return drafts

    def learn(self, tokens: tuple[int, ...], accepted: int, seconds: float, cache: Any) -> None:
        """Record a round, and remove its rejected drafts from the cache."""
        if self._lookup is None:
            return
        self._policy.learn(self._plan, self._match, accepted, seconds)
        self._policy.observe_matches(self._lookup.feed(tokens))
        size = 0 if self._plan.drafter == PLAIN else self._plan.size
        cache.crop(accepted - size)  # a sliding layer keeps all tokens until then
