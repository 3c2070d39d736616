"""Identifies which servers may use a stored block: five digests, and the exact form of the block's content.

Only a server that would compute the same bits uses a block: with the same weights, tokenizer and codec, the same layout
of caches, and the same software on the same kind of processor.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.cache import make_caches
from engine.cache.kinds import layout_of
from engine.checkpoints import digests
from engine.dflash.propose.proposer import Proposer
from engine.mx import dtype_name, mx, tree
from engine.serve.prefix_cache import arithmetic, snapshots
from engine.serve.prefix_cache.snapshots import Snapshot
from engine.serve.resident import Resident

PARTS = ("model", "tokenizer", "codec", "layout", "engine")


@dataclass(frozen=True)
class Form:
    """The expected form of one cache's snapshot."""

    kind: str  # as in Snapshot
    codec: str  # as in Snapshot
    arrays: tuple[tuple[str, tuple[int, ...]] | None, ...]  # type and shape of each; None for an absent one
    most: int = 0  # maximum tokens on axis 2 of a ring or window; 0 if all shapes are exact


@dataclass(frozen=True)
class BlockNamespace:
    """The stored blocks of one model with one cache and drafter."""

    parts: dict[str, str]  # the digests, by PARTS
    caches: tuple[Form, ...]
    context: tuple[Form, ...]  # of the drafter, one per layer

    @property
    def key(self) -> str:
        """The hexadecimal digest of all parts."""
        return digest(self.parts)


def chain_of(start: str, ids: Sequence[int], block: int) -> list[str]:
    """Return the id of each whole block of a prompt: a digest of ``start`` and of all tokens up to the block's end."""
    tokens, size = np.array(ids, "<u4").tobytes(), 4 * block
    chain, last = [], bytes.fromhex(start)
    for at in range(0, len(tokens) - size + 1, size):
        last = hashlib.sha256(last + tokens[at : at + size]).digest()
        chain.append(last.hex())
    return chain


def namespace_of(resident: Resident, spec: str, boundary: int, block: int, *, drafts: bool) -> BlockNamespace:
    """Return the namespace for a model's caches and drafter.

    The forms come from a trial run of one block, for which MLX computes little more than the shapes. The digests need
    all weight files. ``block`` is the number of tokens per block; ``drafts`` includes the drafter's context.
    """
    pair = resident.pair
    caches, tokens = make_caches(pair.target, spec, boundary), mx.zeros((1, block), mx.int32)
    context: tuple[Form, ...] = ()
    if drafts:
        proposer = Proposer(pair.draft, pair.target)
        _, taps = proposer.tap(pair.target)(tokens, caches)
        proposer.feed(taps, tokens)
        saved = zip(snapshots.take_context(proposer.context, 0, block), proposer.context.layers, strict=True)
        context = tuple(form_of(snapshot, layer.keep or 0) for snapshot, layer in saved)
    else:
        pair.target(tokens, cache=caches)
    flat = snapshots.flat(caches)
    sizes = [cache.max_size + block if layout_of(cache) == "ring" else 0 for cache in flat]
    forms = tuple(map(form_of, (snapshots.take(cache, 0, block) for cache in flat), sizes))
    layout = [[(f.kind, f.arrays, f.most) for f in each] for each in (forms, context)]
    roles = ("target", "draft") if drafts else ("target",)
    dtypes = {dtype_name(leaf.dtype) for _, leaf in tree.tree_flatten(pair.target.parameters())}
    models = [digests.model(role, "", pair.parts[role].folder, ",".join(sorted(dtypes))) for role in roles]
    parts = {
        "model": digest([(each["weights"], each["config"], each["dtype"]) for each in models]),
        "tokenizer": digest(models[0]["tokenizer"]),
        "codec": digest([spec, boundary, [form.codec for form in forms]]),
        "layout": digest([layout, block]),
        "engine": digest(arithmetic.facts(pair.target)),
    }
    return BlockNamespace(parts, forms, context)


def form_of(snapshot: Snapshot, most: int) -> Form:
    """Return the form of a snapshot. If ``most`` is not 0, axis 2 may have up to ``most`` entries."""
    arrays = tuple(None if x is None else (dtype_name(x.dtype), tuple(x.shape)) for x in snapshot.arrays)
    return Form(snapshot.kind, snapshot.codec, arrays, most)


def digest(facts: Any) -> str:
    """Return the hexadecimal digest of facts that JSON can hold."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
