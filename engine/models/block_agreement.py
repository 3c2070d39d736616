"""How blocks of rows compare with single rows, as both backends measure it."""

from dataclasses import asdict, dataclass
from typing import Any

CONTEXT, COMPARED = 8, 4
STRIDE = 7919  # a prime, so that tokens come from all parts of the vocabulary


@dataclass(frozen=True)
class Agreement:
    """How a block compares with single rows over the same tokens, on a raw cache."""

    rows: int  # rows of the block
    compared: int  # how many of its first rows were also computed singly
    same_tokens: bool  # whether the likeliest token of each compared row is the same
    difference: float | None  # the largest difference of a logit; None if logits are not finite

    def as_dict(self) -> dict[str, Any]:
        """Return the agreement as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        tokens = "the same tokens" if self.same_tokens else "other tokens"
        logits = "are not finite" if self.difference is None else f"differ by {self.difference:.1g} at most"
        return f"blocks of {self.rows} choose {tokens} as single rows (logits {logits})"
