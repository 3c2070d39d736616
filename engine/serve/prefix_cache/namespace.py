"""Identifies which servers may use a stored block: five digests, and the exact form of the block's content.

Only a server that would compute the same bits uses a block: with the same weights, tokenizer and codec, the same layout
of caches, and the same software on the same kind of processor.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bridge.common import host
from engine.cache import make_caches
from engine.cache.kinds import layout_of
from engine.checkpoints import digests
from engine.dflash.propose.proposer import Proposer
from engine.mx import mx, tree
from engine.serve.models import Resident
from engine.serve.prefix_cache import snapshots
from engine.serve.prefix_cache.snapshots import Snapshot

PARTS = ("model", "tokenizer", "codec", "layout", "engine")


@dataclass(frozen=True)
class Form:
    """The expected form of one cache's snapshot.

    Attributes:
        kind: as in :class:``Snapshot``.
        codec: as in :class:``Snapshot``.
        arrays: type and shape of each array; None for an absent one.
        most: maximum tokens on axis 2 of a ring or window; 0 if all shapes are exact.
    """

    kind: str
    codec: str
    arrays: tuple[tuple[str, tuple[int, ...]] | None, ...]
    most: int = 0


@dataclass(frozen=True)
class BlockNamespace:
    """The stored blocks of one model with one cache and drafter.

    Attributes:
        parts: the digests, by :data:``PARTS``.
        caches: the forms of the model's caches.
        context: the forms of the drafter's context, one per layer.
        block: tokens per block.
    """

    parts: dict[str, str]
    caches: tuple[Form, ...]
    context: tuple[Form, ...]
    block: int

    @property
    def key(self) -> str:
        """The hexadecimal digest of all parts."""
        return _digest(self.parts)

    def path_of(self, ids: Sequence[int]) -> "BlockPath":
        """Return the place of a prompt's blocks."""
        return BlockPath(self, self._chain(ids))

    def _chain(self, ids: Sequence[int]) -> list[str]:
        ids_of_blocks, last = [], bytes.fromhex(self.key)
        for at in range(0, len(ids) - self.block + 1, self.block):
            tokens = b"".join(token.to_bytes(4, "little") for token in ids[at : at + self.block])
            last = hashlib.sha256(last + tokens).digest()
            ids_of_blocks.append(last.hex())
        return ids_of_blocks


@dataclass(frozen=True)
class BlockPath:
    """The blocks of one prompt.

    Attributes:
        namespace: the namespace of its model, cache and drafter.
        chain: the id of each whole block: a digest of its tokens and of all tokens before it.
    """

    namespace: BlockNamespace
    chain: list[str]


def namespace_of(resident: Resident, spec: str, boundary: int, block: int, *, drafts: bool) -> BlockNamespace:
    """Return the namespace for a model's caches and drafter.

    The forms come from a trial run of one block, for which MLX computes little more than the shapes. The digests read
    all weight files.

    Args:
        resident: the model.
        spec: the cache spec.
        boundary: layers left raw.
        block: tokens per block.
        drafts: whether the drafter's context is included.
    """
    pair = resident.pair
    caches = make_caches(pair.target, spec, boundary)
    tokens = mx.zeros((1, block), mx.int32)
    context: tuple[Form, ...] = ()
    if drafts:
        proposer = Proposer(pair.draft, pair.target)
        _, taps = proposer.tap(pair.target)(tokens, caches)
        proposer.feed(taps)
        draft_context = proposer.context
        saved = snapshots.take_context(draft_context, 0, block)
        context = tuple(
            form_of(each, layer.keep or 0) for each, layer in zip(saved, draft_context.layers, strict=True)
        )
    else:
        pair.target(tokens, cache=caches)
    forms = tuple(
        form_of(snapshots.take(cache, 0, block), cache.max_size + block if layout_of(cache) == "ring" else 0)
        for cache in snapshots.flat(caches)
    )
    layout = [[(f.kind, f.arrays, f.most) for f in each] for each in (forms, context)]
    roles = ("target", "draft") if drafts else ("target",)
    model_digests = {
        role: digests.model(role, "", pair.parts[role].folder, _dtype(pair.target)) for role in roles
    }
    models = [(each["weights"], each["config"], each["dtype"]) for each in model_digests.values()]
    parts = {
        "model": _digest(models),
        "tokenizer": _digest(digests.model("target", "", pair.parts["target"].folder, "")["tokenizer"]),
        "codec": _digest([spec, boundary, [form.codec for form in forms]]),
        "layout": _digest([layout, block]),
        "engine": _digest([host.versions(), host.chip(), host.device_name(mx.default_device())]),
    }
    return BlockNamespace(parts, forms, context, block)


def form_of(snapshot: Snapshot, most: int) -> Form:
    """Return the form of a snapshot. If ``most`` is not 0, axis 2 may have up to ``most`` entries."""
    arrays = tuple(None if x is None else (_name(x.dtype), tuple(x.shape)) for x in snapshot.arrays)
    return Form(snapshot.kind, snapshot.codec, arrays, most)


def _dtype(model: Any) -> str:
    return ",".join(sorted({_name(leaf.dtype) for _, leaf in tree.tree_flatten(model.parameters())}))


def _name(dtype: mx.Dtype) -> str:
    return str(dtype).removeprefix("mlx.core.")


def _digest(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
