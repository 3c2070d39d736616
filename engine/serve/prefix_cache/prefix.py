"""The prefix cache: reuses the longest beginning of a prompt that was computed before.

Prompts are cached in blocks, separately for each model, cache and drafter. A prompt is always computed in the same
blocks, cached or not, and the cache stores their exact results. So a warm answer equals the cold one bit for bit.
"""

from collections import OrderedDict
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from engine.dflash.propose.proposer import Proposer
from engine.mx import mx
from engine.serve.prefix_cache import snapshots
from engine.serve.prefix_cache.namespace import BlockNamespace, chain_of, digest
from engine.serve.prefix_cache.snapshots import Snapshot
from engine.serve.prefix_cache.store import Store


@dataclass(frozen=True, eq=False)
class Block:
    """Snapshots of a model's caches and, if there is a drafter, of the drafter's context."""

    caches: list[Snapshot]
    context: list[Snapshot]

    @property
    def nbytes(self) -> int:
        """Bytes of all snapshots."""
        return sum(each.nbytes for each in (*self.caches, *self.context))


@dataclass(frozen=True)
class BlockPath:
    """The blocks of one prompt: the model's name and id of each block, and their namespace on disk."""

    names: list[tuple[str, str]]
    namespace: BlockNamespace | None


class Prefixes:
    """Cached prompts within a budget in bytes. Evicts the least recently used blocks first, ends before beginnings.

    Prompts must be computed in chunks of ``block`` tokens.
    """

    def __init__(self, budget: int, block: int, store: Store | None = None) -> None:
        self.budget, self.block, self.store = budget, block, store
        self.nbytes = 0
        self.hits, self.lookups = 0, 0  # tokens that were found in the cache, and that were looked up
        self.evicted = 0  # blocks
        # Least recently used first. Blocks are used only together with all blocks before them, which are marked last.
        self._blocks: OrderedDict[tuple[str, str], Block] = OrderedDict()

    def path_of(
        self, key: Sequence[Any], ids: list[int], namespace: BlockNamespace | None = None
    ) -> BlockPath:
        """Return the path of a prompt. The key is the model's name, followed by all else that distinguishes prompts."""
        chain = chain_of(namespace.key if namespace else digest(key), ids, self.block)
        return BlockPath([(key[0], block_id) for block_id in chain], namespace)

    def restore(
        self, path: BlockPath, most: int, caches: list[Any], proposer: Proposer | None
    ) -> Generator[None, None, int]:
        """Fill fresh caches, and the drafter's fresh state, with the longest cached beginning of a prompt.

        Yields while files are read. Returns the number of tokens in the caches, at most ``most``: the prompt's last
        token must be computed.
        """
        self.lookups += most
        names = path.names[: most // self.block]
        blocks = [self._blocks[name] for name in takewhile(self._blocks.__contains__, names)]
        if self.store is not None and path.namespace is not None:
            chain = [block_id for _, block_id in names]
            while len(blocks) < len(chain):
                at = len(blocks)
                stored = yield from self.store.load(path.namespace, chain[at], (at + 1) * self.block)
                if stored is None:
                    self.store.distrust(path.namespace, chain[at:])
                    break
                blocks.append(Block(*stored))
                yield None
            self.store.used(path.namespace, chain[: len(blocks)])
        if not blocks:
            return 0
        length = len(blocks) * self.block
        for i, cache in enumerate(snapshots.flat(caches)):
            snapshots.put(cache, [block.caches[i] for block in blocks], length)
        if proposer is not None:
            layers = range(len(proposer.context.layers))
            paths = [[block.context[i] for block in blocks] for i in layers]
            snapshots.put_context(proposer.context, paths, length)
        for name, block in zip(names, blocks, strict=False):
            self._add(name, block)
        self._use(names[: len(blocks)])
        self.hits += length
        return length

    def keep(self, path: BlockPath, end: int, caches: list[Any], proposer: Proposer | None) -> None:
        """Cache the block that ends at ``end`` tokens, if the previous block is cached. Always write it to disk."""
        names = path.names[: end // self.block]
        follows = len(names) == 1 or names[-2] in self._blocks
        if names[-1] not in self._blocks and (follows or path.namespace is not None):
            start = end - self.block
            saved = [snapshots.take(cache, start, end) for cache in snapshots.flat(caches)]
            context = snapshots.take_context(proposer.context, start, end) if proposer else []
            mx.eval([x for each in (*saved, *context) for x in each.arrays if x is not None])
            if self.store is not None and path.namespace is not None:
                self.store.save(path.namespace, names[-1][1], saved, context)
            if follows:
                self._add(names[-1], Block(saved, context))
        if follows:
            self._use(names)

    def shrink(self, most: int) -> None:
        """Evict blocks until at most ``most`` bytes remain."""
        while self.nbytes > most and self._blocks:
            self.nbytes -= self._blocks.popitem(last=False)[1].nbytes
            self.evicted += 1

    def forget(self, model: str) -> None:
        """Evict all blocks of a model."""
        for name in [name for name in self._blocks if name[0] == model]:
            self.nbytes -= self._blocks.pop(name).nbytes

    def stats(self) -> dict[str, int]:
        """Return the statistics."""
        return {
            "bytes": self.nbytes,
            "budget": self.budget,
            "blocks": len(self._blocks),
            "hit_tokens": self.hits,
            "asked_tokens": self.lookups,
            "evicted_blocks": self.evicted,
        }

    def _add(self, name: tuple[str, str], block: Block) -> None:
        if name not in self._blocks:
            self._blocks[name] = block
            self.nbytes += block.nbytes

    def _use(self, names: list[tuple[str, str]]) -> None:
        for name in reversed(names):
            self._blocks.move_to_end(name)
        self.shrink(self.budget)
