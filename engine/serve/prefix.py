"""Prompts that were read before: the longest common beginning is taken from here instead of being computed.

Prompts are kept in blocks, in a tree for each model, cache and drafter. A prompt is read in the same blocks whether
its beginning was kept or not, and what is kept is what reading gave: so a warm answer is bit for bit the cold one.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Optional

from engine.dflash.propose.proposer import Proposer
from engine.mx import mx
from engine.serve import snapshots
from engine.serve.snapshots import Snapshot

Key = tuple[str, *tuple[Hashable, ...]]  # of a tree: the model's name, and whatever else tells prompts apart


@dataclass(eq=False)
class Block:
    """A block of a prompt, behind the blocks that lead to it.

    Attributes:
        tokens: its own.
        parent: the block before; None at the root, which has no tokens.
        caches: what the model's caches kept, and what the drafter's context kept; nothing without one.
        children: by their tokens.
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
    """Kept prompts, within a budget: what was used longest ago goes first, the ends of prompts before beginnings.

    Args:
        budget: the bytes that may be kept.
        block: tokens of a block; prompts have to be read in chunks of as many.

    Attributes:
        nbytes: the bytes that are kept.
        hits: tokens that were taken from here.
        asked: tokens that were looked for.
        evicted: blocks that went.
    """

    def __init__(self, budget: int, block: int) -> None:
        self.budget, self.block = budget, block
        self.nbytes = self.hits = self.asked = self.evicted = 0
        self._roots: dict[Key, Block] = {}
        self._recent: OrderedDict[Block, Key] = OrderedDict()  # the oldest first; parents behind children

    def restore(self, key: Key, ids: list[int], caches: list[Any], proposer: Proposer | None) -> int:
        """Make fresh caches hold the longest beginning of a prompt that is kept.

        Args:
            key: of what the prompt is for; see :class:`Prefixes`.
            ids: the prompt, without the token that must not be among what is kept.
            caches: the model's, fresh.
            proposer: the drafter's side, fresh, or None.

        Returns:
            How many tokens they hold now.
        """
        self.asked += len(ids)
        path = self._path(key, ids)
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
        self.hits += length
        return length

    def keep(self, key: Key, ids: list[int], caches: list[Any], proposer: Proposer | None) -> None:
        """Keep the last block of a prompt that caches hold, if those before it are kept."""
        *before, tokens = self._blocks(ids)
        block = self._root(key)
        for each in before:
            if each not in block.children:
                return
            block = block.children[each]
        if tokens not in block.children:
            made = self._made(tokens, block, len(ids), caches, proposer)
            self._add(block, made)
            block = made
        else:
            block = block.children[tokens]
        self._touch(key, block)
        self._evict()

    def shrink(self, most: int) -> None:
        """Give back what goes beyond ``most`` bytes."""
        while self.nbytes > most and self._recent:
            self._forget()

    def forget(self, model: str) -> None:
        """Give back what is kept for a model; its name is the first part of each key."""
        for block, key in list(self._recent.items()):
            if key[0] == model:
                del self._recent[block]
                self.nbytes -= block.nbytes
        self._roots = {key: root for key, root in self._roots.items() if key[0] != model}

    def stats(self) -> dict[str, int]:
        """Return the figures."""
        return {
            "bytes": self.nbytes,
            "budget": self.budget,
            "blocks": len(self._recent),
            "hit_tokens": self.hits,
            "asked_tokens": self.asked,
            "evicted_blocks": self.evicted,
        }

    def _made(
        self, tokens: tuple[int, ...], parent: Block, end: int, caches: list[Any], proposer: Proposer | None
    ) -> Block:
        start = end - len(tokens)
        taken = [snapshots.take(cache, start, end) for cache in snapshots.flat(caches)]
        context = snapshots.take_context(proposer.context, start, end) if proposer else []
        mx.eval([x for each in (*taken, *context) for x in each.arrays if x is not None])
        return Block(tokens, parent, taken, context)

    def _path(self, key: Key, ids: list[int]) -> list[Block]:
        """Return the kept blocks that a prompt begins with."""
        block, path = self._root(key), []
        for tokens in self._blocks(ids):
            child = block.children.get(tokens)
            if child is None:
                break
            path.append(child)
            block = child
        return path

    def _add(self, parent: Block, child: Block) -> None:
        parent.children[child.tokens] = child
        self.nbytes += child.nbytes

    def _blocks(self, ids: list[int]) -> list[tuple[int, ...]]:
        whole = len(ids) // self.block
        return [tuple(ids[i * self.block : (i + 1) * self.block]) for i in range(whole)]

    def _root(self, key: Key) -> Block:
        return self._roots.setdefault(key, Block((), None, [], []))

    def _touch(self, key: Key, block: Block | None) -> None:
        """Make a block the most recent but for those that lead to it: so the oldest never has children."""
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
