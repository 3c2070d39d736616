"""One draft for several generations: the drafter's layers run once over all their blocks.

Only attention runs for each of them, over its own context. What comes out differs from a draft alone by rounding,
which changes what is proposed now and then, and never what the target makes of it.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, TypeGuard

from engine.dflash.drafter.layers import add_norm
from engine.dflash.drafter.model import BoundDrafter
from engine.dflash.propose.proposer import Proposer
from engine.dflash.sampling import Sampler
from engine.dflash.shape import DFLASH
from engine.mx import mx

Drafts = tuple[mx.array, mx.array | None]


class Wanted(NamedTuple):
    """What one generation wants.

    Attributes:
        proposer: its side of the drafter.
        pending: its last committed token, ``[1, 1]``.
        n: how many tokens to draft.
        sampler: how drafts are chosen.
    """

    proposer: Proposer
    pending: mx.array
    n: int
    sampler: Sampler


def can_share(proposers: Sequence[Proposer | None]) -> TypeGuard[Sequence[Proposer]]:
    """Return whether generations can draft together: they share one drafter, whose rows interact only in attention."""
    present = [each for each in proposers if each is not None]
    if len(present) < len(proposers) or len({id(each.bound.fused) for each in present}) != 1:
        return False
    return present[0].config.architecture == DFLASH


def propose_together(wanted: Sequence[Wanted]) -> list[Drafts]:
    """Return each drafter's drafts and their distributions, as :meth:``Proposer.propose`` does."""
    bound = wanted[0].proposer.bound
    hidden = _hidden(wanted)
    logits = mx.split(bound.embeddings.logits(mx.concatenate(hidden)), _ends([each.n for each in wanted]))
    drafts: list[Drafts] = []
    for each, raw in zip(wanted, logits, strict=True):
        if each.sampler.greedy:
            drafts.append((mx.argmax(raw, axis=-1)[None].astype(mx.int32), None))
        else:
            tokens, drawn_from = each.sampler.draw(bound.embeddings.cap(raw)[None])
            drafts.append((tokens.astype(mx.int32), drawn_from))
    mx.async_eval([tokens for tokens, _ in drafts])
    return drafts


def _hidden(wanted: Sequence[Wanted]) -> list[mx.array]:
    """Return the normed rows of the drafts of each, ``[n, hidden]``; the contexts take in the taps."""
    bounds = [each.proposer.bound for each in wanted]
    contexts = [each.proposer.unread for each in wanted]
    taps = [each.proposer.waited() for each in wanted]
    news = [0 if each is None else each.shape[1] for each in taps]
    rows = [each.n + 1 for each in wanted]
    tables = [
        bound.rotations.at(context.offset, new + count)
        for bound, context, new, count in zip(bounds, contexts, news, rows, strict=True)
    ]
    first = bounds[0]
    before = _before(first, taps, news, tables)
    cos, sin = (
        mx.concatenate([table[i][new:] for table, new in zip(tables, news, strict=True)]) for i in range(2)
    )
    x = mx.concatenate(
        [bound.embed(each.pending, each.n) for bound, each in zip(bounds, wanted, strict=True)]
    )
    update: mx.array | None = None
    for i, layer in enumerate(first.drafter.layers):

        def attend(normed: mx.array, i: int = i) -> mx.array:
            heads = [mx.split(part, _ends(rows), axis=2) for part in first.heads(i, normed, cos, sin)]
            outs = []
            for j, (keys, values, queries) in enumerate(zip(*heads, strict=True)):
                if news[j]:
                    keys = mx.concatenate([before[0][j][i : i + 1], keys], axis=2)  # noqa: PLW2901
                    values = mx.concatenate([before[1][j][i : i + 1], values], axis=2)  # noqa: PLW2901
                outs.append(first.attend(i, queries, *contexts[j].layers[i].put(keys, values, news[j])))
            return mx.concatenate(outs)

        x, update = layer(x, update, attend, partial(first.fused.gate_up, i))
    for context, new in zip(contexts, news, strict=True):
        context.offset += new
    normed = add_norm(x, update, first.drafter.norm)[1]
    return [part[1:] for part in mx.split(normed, _ends(rows))]


def _before(
    bound: BoundDrafter,
    taps: Sequence[mx.array | None],
    news: Sequence[int],
    tables: Sequence[tuple[mx.array, mx.array]],
) -> tuple[Sequence[mx.array], Sequence[mx.array]]:
    """Return keys and values of the taps of each, ``[layers, kv heads, new, head_dim]``."""
    rows = [each.squeeze(0) for each in taps if each is not None]
    if not rows:
        return [], []
    cos, sin = (
        mx.concatenate([table[i][:new] for table, new in zip(tables, news, strict=True)]) for i in range(2)
    )
    keys, values = bound.context_of(mx.concatenate(rows), cos, sin)
    return list(mx.split(keys, _ends(news), axis=2)), list(mx.split(values, _ends(news), axis=2))


def _ends(sizes: Sequence[int]) -> list[int]:
    """Return the ends of all but the last of consecutive parts."""
    ends, at = [], 0
    for size in sizes[:-1]:
        at += size
        ends.append(at)
    return ends
