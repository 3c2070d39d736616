"""One forward pass for the rounds of several generations."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from engine.attention.ragged import Offsets, RaggedCache
from engine.attention.router import route
from engine.dflash.generation import Run
from engine.dflash.target.clones import as_kind, with_replaced
from engine.dflash.target.cpu_fast_path import quick_copy
from engine.dflash.target.rotary import Rotations, TableRope, rotate
from engine.dflash.target.taps import Tapped
from engine.lm import cache as lm_cache
from engine.mx import mx, nn

CLOSE = 1e-2  # tolerance, relative to the largest logit: a wrong joint forward pass is off by far more
KNOWN = (lm_cache.KVCache, lm_cache.RotatingKVCache)


class BatchedForward:
    """A target that runs the rounds of several generations at once.

    ``layer_ids`` are the layers whose outputs drafters read, none without a drafter. ``refusal`` is why the
    target cannot do this, found by trying it on a few tokens; None if it can.
    """

    def __init__(self, target: nn.Module, layer_ids: Sequence[int] = ()) -> None:
        fast = quick_copy(target)  # a CPU computes its products over few rows faster
        self._model = with_replaced(fast, _roped)  # rotates each sequence's rows at their own positions
        self._tapped = Tapped(self._model, list(layer_ids)) if layer_ids else None
        self.refusal = _refusal(target, self._model)

    def takes(self, run: Run) -> bool:
        """Return whether a generation's rounds can be joined with others'."""
        return self.refusal is None and run.rollback.joins

    def forward(self, runs: Sequence[Run], tokens: Sequence[mx.array]) -> list[tuple[mx.array, Any]]:
        """Open a round of each generation over its tokens ``[1, rows]``; return its logits and taps."""
        rows = [each.shape[1] for each in tokens]
        used = [run.rollback.open(count) for run, count in zip(runs, rows, strict=True)]
        layers: list[RaggedCache] = []
        for caches in zip(*used, strict=True):
            layers.append(RaggedCache(caches, rows, layers[-1].offset if layers else None))
        joined = mx.concatenate(list(tokens), axis=1)
        if self._tapped is not None and any(run.proposer for run in runs):
            logits, taps = self._tapped.forward(joined, layers)
        else:
            logits, taps = self._model(joined, cache=layers), None
        bounds = pairwise(Offsets([0] * len(rows), rows).bounds)
        return [
            (logits[:, a:b], taps[:, a:b] if taps is not None and run.proposer else None)
            for run, (a, b) in zip(runs, bounds, strict=True)
        ]


def _roped(module: nn.Module) -> nn.Module:
    """Return a rotary embedding that also takes the ``Offsets`` of several sequences."""
    if "rope" not in type(module).__name__.lower():
        return module
    kind = type(module)

    def call(self: Any, x: mx.array, offset: Any = 0) -> mx.array:
        if not isinstance(offset, Offsets):
            rotated: mx.array = kind.__call__(self, x, offset=offset)
            return rotated
        if isinstance(self, TableRope) and x.dtype == mx.float32 and x.shape[-1] == self.dims:
            return rotate(x, *_rows_of(self.table, offset))
        parts = zip(offset.cut(x), offset.firsts, strict=True)
        return mx.concatenate([kind.__call__(self, part, offset=first) for part, first in parts], axis=2)

    return as_kind(module, type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__}))


def _rows_of(table: Rotations, offsets: Offsets) -> tuple[mx.array, mx.array]:
    """Return the table's rows for all sequences, looked up once a forward."""
    if id(table) not in offsets.cached:
        tables = [table.at(first, rows) for first, rows in zip(offsets.firsts, offsets.rows, strict=True)]
        cos, sin = (mx.concatenate(list(parts)) for parts in zip(*tables, strict=True))
        offsets.cached[id(table)] = cos, sin
    return offsets.cached[id(table)]


def _refusal(target: nn.Module, model: nn.Module) -> str | None:
    """Run two short sequences separately and together; return how the results differ, if they do."""
    fresh = lm_cache.make_prompt_cache(target)
    if not all(type(cache) in KNOWN for cache in fresh):
        return "it keeps more than keys and values"
    if len(fresh) != len(target.layers) or not all(route(layer) for layer in target.layers):
        return "its attention cannot be routed"
    texts = mx.array([[3, 5, 7, 4, 6, 8]]), mx.array([[9, 4, 5]])
    rows = (1, 2)
    try:
        alone = [target(text)[:, -count:] for text, count in zip(texts, rows, strict=True)]
        prompt_caches = [lm_cache.make_prompt_cache(target) for _ in texts]
        for text, count, caches in zip(texts, rows, prompt_caches, strict=True):
            target(text[:, :-count], cache=caches)
        layers = [RaggedCache(caches, rows) for caches in zip(*prompt_caches, strict=True)]
        last = mx.concatenate([text[:, -count:] for text, count in zip(texts, rows, strict=True)], axis=1)
        off = mx.abs(model(last, cache=layers) - mx.concatenate(alone, axis=1)).max()
        size = mx.abs(mx.concatenate(alone, axis=1)).max()
        return None if (off <= CLOSE * size).item() else "together its sequences get other logits than alone"
    except Exception as error:  # noqa: BLE001 - models fail in many ways; their sequences then run one by one
        return f"it cannot run several sequences at once: {' '.join(str(error).split())}"
