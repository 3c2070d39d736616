"""Finds where two decodings of one prompt differ, and whether rounding explains that.

Blocks of rows and single rows use different kernels, which add in different orders. So keys and values differ in
their last bits, and so do logits. Two tokens whose logits differ by less than that can change places: a tie. Any
other difference is a fault, whatever the type.

A library that computes each row by itself always adds in the same order, so both decodings agree in every bit. But
its logits are not exact either: another correct loop may round a sum differently. So the resolution of logits is
never assumed to be finer than one unit in the last place of the largest logit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bridge.reports.repetition import first_difference
from engine.cache.protocol import Cache
from engine.dflash.target.small_gemm import with_products
from engine.mx import mx, nn, number

SLACK = 4.0  # a tie may be this many times as wide as the observed difference
# Block sizes to measure how far rounding moves logits. Even for one row, our loop's products differ from mlx-lm's.
BLOCKS = (1, 2, 3, 8, 4, 5, 6, 7, 9, 11, 13, 16)


@dataclass(frozen=True)
class Divergence:
    """The first position at which two decodings differ."""

    position: int  # counted in decoded tokens, from 0
    ours: int | None  # our token there; None past the end
    theirs: int | None  # the other one
    margin: float  # how far the lower of their logits lies below the highest of all, computed token by token
    # The resolution of the logits' type. If that explains no tie, the largest difference of any logit between
    # single rows and blocks of the tried sizes.
    rounding: float
    # `tie` if the margin is within rounding, `fault` if it is not, `length` if one answer is the beginning of the
    # other.
    kind: str
    logits: mx.array  # float32 `[vocabulary]` after the common part, computed token by token


def classify(
    target: nn.Module,
    make_caches: Callable[[], list[Cache]],
    prompt: Sequence[int],
    ours: Sequence[int],
    theirs: Sequence[int],
    *,
    chunk: int = 512,
) -> Divergence | None:
    """Return how two greedy decodings of a prompt differ; None if they do not.

    The common part is computed again on fresh caches, token by token and in blocks. That shows how much rounding
    moves the logits of this model, on this machine, with these caches, at this position. If caches round, a last bit
    seldom changes a stored value, but then by a whole step; so block sizes are tried until one explains the margin.
    Blocks are computed as in our loop, single rows as in mlx-lm. The caches must be of the kind of the decoding, and
    ``chunk`` tokens of the prompt are read at once, as for the decoding.
    """
    at = first_difference(ours, theirs)
    if at is None:
        return None
    common = [*prompt, *ours[:at]]
    logits = last_logits(target, make_caches(), common, len(prompt), rows=1, chunk=chunk)
    single = logits.astype(mx.float32)
    if at == min(len(ours), len(theirs)):
        our_token, their_token = ((side[at] if at < len(side) else None) for side in (ours, theirs))
        return Divergence(at, our_token, their_token, 0.0, 0.0, "length", single)
    margin = number(single.max() - mx.minimum(single[ours[at]], single[theirs[at]]))
    rounding = mx.finfo(logits.dtype).eps * number(mx.abs(single).max())
    loop = with_products(target)
    for rows in BLOCKS:
        if margin <= SLACK * rounding:
            break
        block = last_logits(loop, make_caches(), common, len(prompt), rows=rows, chunk=chunk)
        rounding = max(rounding, number(mx.abs(single - block.astype(mx.float32)).max()))
    kind = "tie" if margin <= SLACK * rounding else "fault"
    return Divergence(at, ours[at], theirs[at], margin, rounding, kind, single)


def last_logits(
    target: nn.Module, caches: list[Cache], ids: Sequence[int], prompt: int, *, rows: int, chunk: int
) -> mx.array:
    """Return the logits ``[vocabulary]`` after one or more ``ids``, in the type that they were computed in.

    The first ``prompt`` ids are the prompt, read ``chunk`` at once. From its last token on, ``rows`` are run at once.
    """
    tokens = mx.array(list(ids))[None]
    ends = [*range(0, prompt - 1, chunk), *range(prompt - 1, len(ids), rows), len(ids)]
    for start, end in pairwise(ends):
        logits = target(tokens[:, start:end], cache=caches)
        mx.eval(logits)
    row: mx.array = logits[0, -1]
    return row
