"""Checks whether a loaded model computes a block of rows with the same results as single rows.

Speculative decoding verifies drafts in blocks, and plain decoding computes one row at a time. If both give the same
tokens, drafts do not change greedy answers. Kernels for half precision and quantized weights may round blocks
differently.
"""

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from engine.cache import make_caches
from engine.dflash.propose.lookup import BLOCK
from engine.dflash.rollback import rollback_for
from engine.dflash.target.context import logits_of
from engine.dflash.target.cpu_fast_path import quick_copy
from engine.errors import BadInput
from engine.mx import mx, nn, number

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


def measure_agreement(
    target: nn.Module, draft: Any, *, lookup: bool = True, block_size: int | None = None
) -> Agreement | None:
    """Run one block and a few single rows; return how they compare, or None if the model verifies no blocks.

    Without ``block_size``, a block has as many rows as decoding verifies with ``draft`` and (with ``lookup``) lookups.
    """
    rows = block_size or max(draft.config.verified_rows if draft else 1, BLOCK if lookup else 1)
    if rows == 1:
        return None
    caches = make_caches(target, "raw")
    try:
        rollback = rollback_for(caches, model=target)
    except BadInput:
        return None
    model = rollback.prepare(quick_copy(target))
    tokens = (mx.arange(CONTEXT + rows) * STRIDE % logits_of(target)).astype(mx.int32)[None]

    def forward(start: int, count: int, keep: int) -> mx.array:
        logits: mx.array = rollback.forward(model, tokens[:, start : start + count])[0]
        mx.eval(logits)
        rollback.commit(keep)
        return logits

    compared = min(rows, COMPARED)
    forward(0, CONTEXT, CONTEXT)
    block = forward(CONTEXT, rows, 0)[:compared].astype(mx.float32)
    single = mx.concatenate([forward(CONTEXT + i, 1, 1) for i in range(compared)]).astype(mx.float32)
    rollback.settle(model)
    same = mx.array_equal(mx.argmax(block, axis=-1), mx.argmax(single, axis=-1))
    difference = number(mx.abs(block - single).max())
    return Agreement(rows, compared, bool(same.item()), difference if isfinite(difference) else None)
