"""The prefix cache: reuses the longest beginning of a prompt that was computed before.

Prompts are cached in blocks, in one tree for each model, cache and drafter. A prompt is always computed in the same
blocks, cached or not, and the cache stores their exact results. So a warm answer equals the cold one bit for bit.
"""

from collections import OrderedDict
from collections.abc import Generator, Hashable
from dataclasses import dataclass, field
from typing import Any, Optional

from engine.dflash.propose.proposer import Proposer
from engine.mx import mx
from engine.serve.prefix_cache import snapshots
from engine.serve.prefix_cache.namespace import BlockPath
from engine.serve.prefix_cache.snapshots import Snapshot
from engine.serve.prefix_cache.store import Store

Key = tuple[
    str, *tuple[Hashable, ...]
]  # a tree's key: the model's name, and all else that distinguishes prompts


@dataclass(eq=False)
class Block:
    """A node of the tree: one block of a prompt, after its parent's blocks.

    Attributes:
        tokens: the tokens of this block.
        parent: the previous block; None for the root, which has no tokens, and for a block outside a tree.
        caches: snapshots of the model's caches.
        context: snapshots of the drafter's context; empty without a drafter.
        children: the next blocks, by their tokens.
    """

    tokens: tuple[int, ...]
    parent: Optional["Block"]
    caches: list[Snapshot]
    context: list[Snapshot]
    children: dict[tuple[int, ...], "Block"] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all snapshots."""
        return sum(each.nbytes for each in (*self.caches, *self.context))


class Prefixes:
    """Cached prompts within a budget. The least recently used blocks are evicted first, ends before beginnings.

    Args:
        budget: maximum size in bytes.
        block: tokens per block; prompts must be computed in chunks of this size.
        store: the store on disk, or None.

    Attributes:
        nbytes: current size in bytes.
        hits: number of tokens taken from the cache.
        asked: number of tokens looked up.
        evicted: number of evicted blocks.
    """

    def __init__(self, budget: int, block: int, store: Store | None = None) -> None:
        self.budget, self.block, self.store = budget, block, store
        self.nbytes = self.hits = self.asked = self.evicted = 0
        self._roots: dict[Key, Block] = {}
        self._recent: OrderedDict[Block, Key] = (
            OrderedDict()
        )  # least recently used first; parents after children

    def fetch(self, key: Key, ids: list[int], block_path: BlockPath) -> Generator[None, None, list[Block]]:
        """Return the cached blocks at the beginning of a prompt, from memory and disk. Yields while files are read.

        Args:
            key: see :meth:``restore``.
            ids: see :meth:``restore``.
            block_path: the blocks' place on disk.
        """
        assert self.store is not None  # noqa: S101 - whoever has a place there has a store
        path, chain = self._path(key, ids), block_path.chain
        for i in range(len(path), len(ids) // self.block):
            end = (i + 1) * self.block
            stored = yield from self.store.load(block_path.namespace, chain[i], end)
            if stored is None:
                self.store.distrust(block_path.namespace, chain[i:])
                break
            caches, context = stored
            path.append(Block(tuple(ids[end - self.block : end]), None, caches, context))
            yield None
        self.store.used(block_path.namespace, chain[: len(path)])
        return self._adopted(key, path)

    def restore(
        self,
        key: Key,
        ids: list[int],
        caches: list[Any],
        proposer: Proposer | None,
        path: list[Block] | None = None,
    ) -> int:
        """Fill fresh caches with the longest cached beginning of a prompt.

        Args:
            key: the key of the tree.
            ids: the prompt, without the last token, which must be computed.
            caches: the model's fresh caches.
            proposer: the drafter's fresh state, or None.
            path: the result of :meth:``fetch``; None to search only in memory.

        Returns:
            The number of tokens in the caches now.
        """
        self.asked += len(ids)
        path = self._path(key, ids) if path is None else path
        if not path:
            return 0
        length = len(path) * self.block
        for i, cache in enumerate(snapshots.flat(caches)):
            snapshots.put(cache, [block.caches[i] for block in path], length)
        if proposer is not None:
            context = proposer.context
            layers = range(len(context.layers))
            snapshots.put_context(context, [[b.context[i] for b in path] for i in layers], length)
        self._touch(key, path[-1])
        self._evict()
        self.hits += length
        return length

    def keep(
        self,
        key: Key,
        ids: list[int],
        caches: list[Any],
        proposer: Proposer | None,
        path: BlockPath | None = None,
    ) -> None:
        """Cache the last block in the caches, if the blocks before it are cached. It is written to disk in any case."""
        *before, tokens = self._blocks(ids)
        parent: Block | None = self._root(key)
        for each in before:
            parent = None if parent is None else parent.children.get(each)
        block = None if parent is None else parent.children.get(tokens)
        if block is None and (parent is not None or path is not None):
            block = self._block(tokens, len(ids), caches, proposer)
            if self.store is not None and path is not None:
                self.store.save(path.namespace, path.chain[len(before)], block.caches, block.context)
            if parent is not None:
                self._add(parent, block)
        if parent is not None:
            self._touch(key, block)
            self._evict()

    def shrink(self, most: int) -> None:
        """Evict blocks until at most ``most`` bytes remain."""
        while self.nbytes > most and self._recent:
            self._forget()

    def forget(self, model: str) -> None:
        """Evict all blocks of a model, whose name is the first part of each key."""
        for block, key in list(self._recent.items()):
            if key[0] == model:
                del self._recent[block]
                self.nbytes -= block.nbytes
        self._roots = {key: root for key, root in self._roots.items() if key[0] != model}

    def stats(self) -> dict[str, int]:
        """Return the statistics."""
        return {
            "bytes": self.nbytes,
            "budget": self.budget,
            "blocks": len(self._recent),
            "hit_tokens": self.hits,
            "asked_tokens": self.asked,
            "evicted_blocks": self.evicted,
        }

    def _adopted(self, key: Key, path: list[Block]) -> list[Block]:
        """Insert a path of blocks into the tree, as far as they are not in it, and return it."""
        block, adopted = self._root(key), []
        for each in path:
            child = block.children.get(each.tokens)
            if child is None:
                each.children = {}
                self._add(block, each)
                child = each
            adopted.append(child)
            block = child
        return adopted

    def _block(
        self, tokens: tuple[int, ...], end: int, caches: list[Any], proposer: Proposer | None
    ) -> Block:
        start = end - len(tokens)
        saved = [snapshots.take(cache, start, end) for cache in snapshots.flat(caches)]
        context = snapshots.take_context(proposer.context, start, end) if proposer else []
        mx.eval([x for each in (*saved, *context) for x in each.arrays if x is not None])
        return Block(tokens, None, saved, context)

    def _path(self, key: Key, ids: list[int]) -> list[Block]:
        """Return the blocks in memory at the beginning of a prompt."""
        block, path = self._root(key), []
        for tokens in self._blocks(ids):
            child = block.children.get(tokens)
            if child is None:
                break
            path.append(child)
            block = child
        return path

    def _add(self, parent: Block, child: Block) -> None:
        child.parent = parent
        parent.children[child.tokens] = child
        self.nbytes += child.nbytes

    def _blocks(self, ids: list[int]) -> list[tuple[int, ...]]:
        whole = len(ids) // self.block
        return [tuple(ids[i * self.block : (i + 1) * self.block]) for i in range(whole)]

    def _root(self, key: Key) -> Block:
        return self._roots.setdefault(key, Block((), None, [], []))

    def _touch(self, key: Key, block: Block | None) -> None:
        """Mark a block as used, and its parents after it, so that the least recently used block never has children."""
        while block is not None and block.parent is not None:
            self._recent[block] = key
            self._recent.move_to_end(block)
            block = block.parent

    def _evict(self) -> None:
        self.shrink(self.budget)

    def _forget(self) -> None:
        block, _ = self._recent.popitem(last=False)
        assert block.parent is not None  # noqa: S101 - roots are never among them
        del block.parent.children[block.tokens]
        self.nbytes -= block.nbytes
        self.evicted += 1
