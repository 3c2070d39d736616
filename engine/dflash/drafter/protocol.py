"""What the decoding loop needs of a drafter, whatever its kind. ``engine.dflash.kinds`` lists the kinds."""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol

from engine.mx import mx, nn


class Proposal(NamedTuple):
    """A block's drafts, not evaluated yet."""

    tokens: mx.array  # `[1, n]`
    # The logits from which the tokens were picked: `[1, n, vocabulary]`, or `[1, n, k]` over `candidates`
    # only.
    logits: mx.array
    candidates: mx.array | None = None  # `[1, n, k]` token ids, or None
    confidences: mx.array | None = None  # DSpark's, `[1, n]`, or None


class DraftSettings(Protocol):
    """The part of a drafter's configuration that does not depend on its kind."""

    @property
    def vocab_size(self) -> int:
        """The target's vocabulary."""

    @property
    def verified_rows(self) -> int:
        """The last committed token and the most drafts of a round."""

    @property
    def cuts(self) -> bool:
        """Whether the drafter may shorten a block. Drafting then has to wait for the device."""

    @property
    def confidence_threshold(self) -> float:
        """The least confidence of a draft, if the drafter cuts blocks."""

    @property
    def bytes_a_token(self) -> int:
        """Bytes that the context keeps for each accepted token, in float32."""


class Rows(Protocol):
    """One part of a context, as the prefix cache saves it."""

    keep: int | None  # None if all positions are kept; otherwise the most that are

    def saved(self, start: int, end: int) -> list[mx.array]:
        """Return copies of the positions ``start`` to ``end``, or of all that are kept; positions are on axis 2."""

    def restore(self, saved: list[list[mx.array]]) -> None:
        """Continue after what ``saved`` returned for each block, one after another."""


class Context(Protocol):
    """What a drafter keeps of the accepted tokens, for one generation."""

    offset: int  # the position of the next token

    @property
    def layers(self) -> list[Any]:
        """The parts, each with the methods of ``Rows``."""

    @property
    def state(self) -> list[mx.array]:
        """All buffers, to be evaluated."""

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""


class BoundDrafter(Protocol):
    """A drafter with its target's embeddings and head."""

    @property
    def shared(self) -> Hashable:
        """Generations with an equal value can draft together; None if they cannot."""

    def make_cache(self, offset: int = 0) -> Any:
        """Return an empty ``Context``, whose first token will be at position ``offset``."""

    def absorb(self, taps: mx.array, context: Any, tokens: mx.array | None = None) -> None:
        """Append accepted tokens, ``[1, new]``, with their taps, ``[1, new, chosen * hidden]``, without drafting."""

    def propose(
        self,
        bonus: int | mx.array,
        taps: mx.array | None,
        context: Any,
        n_drafts: int,
        pick: Callable[[mx.array], mx.array] | None = None,
        tokens: mx.array | None = None,
    ) -> Proposal:
        """Draft ``n_drafts`` tokens after ``bonus``. Nothing is computed before a result is read.

        Args:
            bonus: the last committed token, whose taps are not known yet: a number, or an array with one token.
            taps: of the tokens that were committed since the last call and before ``bonus``, as in ``absorb``;
                None if there are none.
            context: is advanced by the taps, not by the drafts.
            n_drafts: how many tokens to draft, 1 or more.
            pick: from logits ``[1, rows, choices]`` to indices ``[1, rows]``; None picks the largest.
            tokens: that the taps belong to, as in ``absorb``.
        """


class Drafter(Protocol):
    """A drafter's weights, shared by all generations."""

    kind: str  # a key of `engine.dflash.kinds.KINDS`
    config: Any  # has `DraftSettings`

    def layer_ids(self, target: nn.Module) -> tuple[int, ...]:
        """Return the layers of a target whose outputs the drafter reads, counted from 0."""

    def bind(self, target: nn.Module) -> BoundDrafter:
        """Return this drafter with a target's embeddings and head, for one generation; BadInput if it is another's."""


def token_array(token: int | mx.array) -> mx.array:
    """Return a token as an array ``[1]``."""
    return token.reshape(1) if isinstance(token, mx.array) else mx.array([token])


def largest(logits: mx.array) -> mx.array:
    """Return the index of the largest logit of each row."""
    return mx.argmax(logits, axis=-1)
