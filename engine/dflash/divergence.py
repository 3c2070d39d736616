"""Where two decodings of one prompt part, and whether rounding explains it.

A block of rows and a single row go through other kernels, which add in another order. Keys and values then
differ in their last bits, and so do logits. Two tokens whose logits are closer than that can change places:
a tie. Any other difference is a fault, whatever the type.

A library that computes each row by itself adds in one order however many rows there are, and the runs then agree
in every bit. That does not make its logits exact: another correct loop may still round a sum otherwise. No logits
are therefore taken to be finer than one unit in the last place of the largest of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, zip_longest
from typing import Any

from engine.cache.protocol import Cache
from engine.dflash.target.products import with_products
from engine.mx import mx, nn, number

SLACK = 4.0  # a tie may be this many times as wide as the difference that was seen


@dataclass(frozen=True)
class Divergence:
    """The first position at which two decodings differ.

    Attributes:
        position: counted in decoded tokens, from 0.
        ours: our token there; None past the end.
        theirs: the other one.
        margin: how far apart their logits are, computed token by token.
        rounding: the largest difference of any logit there, token by token against in blocks of any size tried,
            and at least the resolution of the type that the logits were computed in.
        kind: ``tie`` where the margin is within rounding, ``fault`` where it is not, ``length`` where one
            decoding is the beginning of the other.
    """

    position: int
    ours: int | None
    theirs: int | None
    margin: float
    rounding: float
    kind: str

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for reports."""
        return asdict(self)


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Return the first position at which two sequences differ, None if they are equal."""
    pairs = enumerate(zip_longest(ours, theirs))
    return next((i for i, (first, second) in pairs if first != second), None)


def classify(
    target: nn.Module,
    make_caches: Callable[[], list[Cache]],
    prompt: Sequence[int],
    ours: Sequence[int],
    theirs: Sequence[int],
    *,
    blocks: Sequence[int] = (2, 3, 8),
    chunk: int = 512,
) -> Divergence | None:
    """Return how two greedy decodings of a prompt differ; None if they do not.

    The common part is run again on fresh caches, token by token and in blocks: that shows how much rounding
    moves the logits of this model, on this machine, with these caches, at this position. Where caches round,
    it moves them by whole steps, now here, now there, so several sizes are tried. Blocks are computed as our loop
    computes them, single rows as mlx-lm does.

    Args:
        target: what decoded.
        make_caches: gives fresh caches of the kind that was decoded on.
        prompt: its token ids.
        ours: one decoding.
        theirs: the other.
        blocks: rows at once, one run for each.
        chunk: tokens of the prompt at once, as it was decoded.
    """
    at = first_difference(ours, theirs)
    if at is None:
        return None
    if at >= min(len(ours), len(theirs)):
        our_token, their_token = ((side[at] if at < len(side) else None) for side in (ours, theirs))
        return Divergence(at, our_token, their_token, 0.0, 0.0, "length")
    common = [*prompt, *ours[:at]]
    runs = [(target, 1), *((with_products(target), rows) for rows in blocks)]
    computed, *others = (
        _last(model, make_caches(), common, len(prompt), rows=rows, chunk=chunk) for model, rows in runs
    )
    single = computed.astype(mx.float32)
    margin = number(abs(single[ours[at]] - single[theirs[at]]))
    noise = max(number(mx.abs(single - row.astype(mx.float32)).max()) for row in others)
    rounding = max(noise, mx.finfo(computed.dtype).eps * number(mx.abs(single).max()))
    kind = "tie" if margin <= SLACK * rounding else "fault"
    return Divergence(at, ours[at], theirs[at], margin, rounding, kind)


def last_logits(
    target: nn.Module, caches: list[Cache], ids: Sequence[int], prompt: int, *, rows: int, chunk: int
) -> mx.array:
    """Return the float32 logits ``[vocabulary]`` after ``ids``.

    Args:
        target: the model.
        caches: fresh ones.
        ids: all tokens, at least one.
        prompt: how many of them are the prompt, whose last token begins the decoding.
        rows: tokens at once behind the prompt.
        chunk: tokens at once in it.
    """
    return _last(target, caches, ids, prompt, rows=rows, chunk=chunk).astype(mx.float32)


def _last(
    target: nn.Module, caches: list[Cache], ids: Sequence[int], prompt: int, *, rows: int, chunk: int
) -> mx.array:
    """Return the same in the type that they were computed in."""
    tokens = mx.array(list(ids))[None]
    ends = [*range(0, prompt - 1, chunk), *range(prompt - 1, len(ids), rows), len(ids)]
    for start, end in pairwise(ends):
        logits = target(tokens[:, start:end], cache=caches)
        mx.eval(logits)
    row: mx.array = logits[0, -1]
    return row
