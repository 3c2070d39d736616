"""Checks whether a loaded model computes a block of rows with the same results as single rows.

Speculative decoding verifies drafts in blocks, and plain decoding computes one row at a time. If both give the same
tokens, drafts do not change greedy answers. Kernels for half precision and quantized weights may round blocks
differently.
"""

from math import isfinite
from typing import Any

from engine.cache import make_caches
from engine.dflash.propose.lookup import BLOCK
from engine.dflash.rollback import rollback_for
from engine.dflash.target.context import logits_of
from engine.dflash.target.cpu_fast_path import quick_copy
from engine.errors import BadInput
from engine.models.block_agreement import COMPARED, CONTEXT, STRIDE, Agreement
from engine.mx import mx, nn, number

__all__ = ["Agreement", "measure_agreement"]


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
