"""The DFlash drafter: a few layers that read the target's hidden states and draft a block at once.

The layout is that of the published checkpoints and of the ``dflash`` package. A block is the last committed
token and ``n`` mask tokens, embedded by the target's own table. Its keys and values follow the keys and
values of the accepted tokens, which come from the target's layer outputs (the taps): these are concatenated and pass
through ``fc`` and ``hidden_norm`` once, then through each layer's key and value projection. The target's
head reads the drafts.

    draft = load_draft(folder)                      # the weights; shared by all generations
    bound = draft.bind(target)                      # one for each generation
    context = bound.make_cache()
    bound.absorb(taps, context)                     # of every accepted token: after each chunk of the prompt
    drafts = bound.propose(token, None, context, n)
    drafts = bound.propose(token, taps, context, n) # taps of the tokens accepted since
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate
from typing import NamedTuple

from engine.dflash.config import DraftConfig
from engine.dflash.drafter.context import DraftContext
from engine.dflash.drafter.dflash2 import CandidateSelector, ConvLayer
from engine.dflash.drafter.dspark import ConfidenceHead, MarkovHead
from engine.dflash.drafter.fused import FusedLayers
from engine.dflash.drafter.layers import DraftLayer, add_norm, block_mask, norm_rotate
from engine.dflash.drafter.protocol import Proposal, largest, token_array
from engine.dflash.shape import DFLASH
from engine.dflash.target.embeddings import DraftEmbeddings, TargetEmbeddings
from engine.dflash.target.rotary import Rotations
from engine.dflash.target.small_gemm import form_of, with_products
from engine.errors import BadInput
from engine.mx import mx, nn

_FUSING = threading.Lock()


class DFlashDrafter(nn.Module):
    """A drafter's weights, under their published names."""

    kind = "dflash"

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.config = config
        self.fc = nn.Linear(config.taps_size, config.hidden_size, bias=False)
        self.hidden_norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        kind = ConvLayer if config.is_dflash2 else DraftLayer
        self.layers = [kind(config) for _ in range(config.num_hidden_layers)]
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        if config.is_dflash2:
            self.candidate_selector = CandidateSelector(config)
        if config.is_dspark:
            self.markov_head = MarkovHead(config)
        if config.enable_confidence_head:
            self.confidence_head = ConfidenceHead(config)
        self._fused: FusedLayers | None = None

    def fused(self) -> FusedLayers:
        """Return the layers' fused matrices, rebuilt if a parameter was replaced.

        One thread at a time: the layers' parameters become views of the new matrices, and in MLX no other thread
        can finish what one thread has begun.
        """
        with _FUSING:
            form = form_of(self)
            if self._fused is None or not self._fused.fits(self.layers) or self._fused.form != form:
                self._fused = FusedLayers(self.layers, self.config, form)
            return self._fused

    def layer_ids(self, target: nn.Module) -> tuple[int, ...]:  # noqa: ARG002 - the configuration has them
        """Return the layers of a target whose outputs the drafter reads."""
        return self.config.target_layer_ids

    def bind(self, target: nn.Module, embed_scale: float | None = None) -> "BoundDFlash":
        """Return this drafter with a target's embeddings and head, for one generation.

        Args:
            target: an mlx-lm model.
            embed_scale: factor of the target's embeddings; None uses the checkpoint's, see
                ``engine.dflash.target.embeddings.embed_scale_of``. (The ``dflash`` package uses the target's
                attribute ``embed_scale``, which is the square root of the hidden size in Gemma 4, or 1.)

        Raises:
            BadInput: the drafter was made for another target.
        """
        return BoundDFlash(self, TargetEmbeddings.of(with_products(target)), embed_scale)


class BoundDFlash:
    """A drafter with its target's embeddings and head.

    The state of a generation is in the caches that ``make_cache`` returns, not here.
    """

    def __init__(
        self, drafter: DFlashDrafter, embeddings: TargetEmbeddings, embed_scale: float | None
    ) -> None:
        embeddings.check(drafter.config)
        self.config = drafter.config
        self.embeddings = DraftEmbeddings(embeddings, drafter.config, embed_scale)
        self.fused = drafter.fused()
        self.drafter = with_products(drafter)
        self.rotations = Rotations.of(self.config)
        self.scale = self.config.head_dim**-0.5

    def make_cache(self, offset: int = 0) -> DraftContext:
        """Return an empty context, whose first token will be at position ``offset``."""
        return DraftContext([self.config.window(i) for i in range(self.config.num_hidden_layers)], offset)

    @property
    def shared(self) -> Hashable:
        """Generations over the same matrices can draft together, if their rows interact only in attention."""
        return id(self.fused) if self.config.architecture == DFLASH else None

    def absorb(self, taps: mx.array, context: DraftContext, tokens: mx.array | None = None) -> None:  # noqa: ARG002
        """Append accepted tokens to the context, without drafting.

        ``taps`` are the target's chosen layers at the tokens that follow the context, ``[1, new, chosen * hidden]``, as
        ``engine.dflash.target.taps.Tapped`` gives them. The tokens themselves are not needed.
        """
        new = self.count(taps)
        cos, sin = self.rotations.at(context.offset, new)
        keys, values = self.context_of(taps.squeeze(0), cos, sin)
        for i, layer in enumerate(context.layers):
            layer.put(keys[i : i + 1], values[i : i + 1], new)
        context.offset += new

    def propose(
        self,
        bonus: int | mx.array,
        taps: mx.array | None,
        context: DraftContext,
        n_drafts: int,
        pick: Callable[[mx.array], mx.array] | None = None,
        tokens: mx.array | None = None,  # noqa: ARG002
    ) -> Proposal:
        """Draft the tokens after ``bonus``; see ``engine.dflash.drafter.protocol.BoundDrafter``.

        The block has a row more than drafts, except with ``sample_from_anchor``. DFlash2 and DSpark call ``pick`` for
        each row, because a row's pick changes the next row's logits.
        """
        hidden = self.states(bonus, taps, context, n_drafts)
        raw = self.embeddings.logits(hidden)
        logits = self.embeddings.cap(raw)[None]
        before = token_array(bonus)
        if self.config.is_dflash2:
            selector = self.drafter.candidate_selector
            return Proposal(*selector.select(hidden[None], logits, before, pick or largest))
        if self.config.is_dspark:
            drafts, logits, codes = self.drafter.markov_head.draft(logits, before, pick or largest)
            has_head = self.config.enable_confidence_head
            sure = self.drafter.confidence_head(hidden[None], codes) if has_head else None
            return Proposal(drafts, logits, confidences=sure)
        # The soft cap does not change the order, so greedy decoding does not need it.
        drafts = mx.argmax(raw, axis=-1)[None] if pick is None else pick(logits)
        return Proposal(drafts, logits)

    def states(
        self, bonus: int | mx.array, taps: mx.array | None, context: DraftContext, n_drafts: int
    ) -> mx.array:
        """Return the normed rows of the drafts, ``[n_drafts, hidden]``; see ``propose``."""
        return states_of([Block(self, bonus, taps, context, n_drafts)])[0]

    def embed(self, bonus: int | mx.array, n_masks: int) -> mx.array:
        """Return the rows of a block, ``[n_masks + 1, hidden]``."""
        first = token_array(bonus)
        masks = mx.full((n_masks,), self.config.mask_token_id, first.dtype)
        return self.embeddings.embed(mx.concatenate([first, masks]))

    def context_of(self, taps: mx.array, cos: mx.array, sin: mx.array) -> tuple[mx.array, mx.array]:
        """Return keys and values ``[layers, kv heads, new, head_dim]`` of taps ``[new, chosen * hidden]``."""
        config = self.config
        x = self.drafter.hidden_norm(self.drafter.fc(taps))
        values, keys = self.fused.context(x)
        values = values.reshape(*values.shape[:2], -1, config.head_dim).transpose(0, 2, 1, 3)
        norm = self.fused.keys_norm
        return norm_rotate(keys, norm, cos, sin, config.head_dim, config.rms_norm_eps), values

    def heads(self, i: int, x: mx.array, cos: mx.array, sin: mx.array) -> tuple[mx.array, ...]:
        """Return keys, values and queries ``[1, heads, rows, head_dim]`` of a block's normed rows."""
        config = self.config
        kv_heads, dim = config.num_key_value_heads, config.head_dim
        mixed = self.fused.block[i](x)
        values = mixed[:, : kv_heads * dim].reshape(1, -1, kv_heads, dim).transpose(0, 2, 1, 3)
        rest = mixed[None, :, kv_heads * dim :]
        heads = norm_rotate(rest, self.fused.heads_norm[i], cos, sin, dim, config.rms_norm_eps)
        return heads[:, :kv_heads], values, heads[:, kv_heads:]

    def attend(self, i: int, queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
        """Return a layer's attention output, ``[rows, heads * head_dim]``; the last keys are the block's own."""
        rows = queries.shape[2]
        mask = block_mask(keys.shape[2] - rows, rows, self.config.window(i), causal=self.config.causal(i))
        out = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=self.scale, mask=mask)
        return out.transpose(0, 2, 1, 3).reshape(rows, -1)

    def count(self, taps: mx.array | None) -> int:
        """Return the positions of taps.

        Raises:
            BadInput: the shape of taps is not ``[1, new, chosen * hidden]``.
        """
        if taps is None:
            return 0
        if (*taps.shape[:-2], taps.shape[-1]) != (1, self.config.taps_size):
            raise BadInput(
                f"taps are {list(taps.shape)}, not [1, new, {self.config.taps_size}]",
                f"the outputs of layers {list(self.config.target_layer_ids)}, side by side",
            )
        return taps.shape[1]


class Block(NamedTuple):
    """The inputs for one generation's drafts; see ``BoundDFlash.propose``."""

    bound: BoundDFlash
    bonus: int | mx.array
    taps: mx.array | None
    context: DraftContext
    n_drafts: int


def states_of(blocks: Sequence[Block]) -> list[mx.array]:
    """Return the normed rows of each block's drafts, ``[n_drafts, hidden]``; the taps are added to the contexts.

    The layers run once over the rows of all blocks, which share a drafter. Only attention runs for each block apart,
    over its own context.

    Raises:
        BadInput: there is nothing to draft, or taps have another shape.
    """
    if any(block.n_drafts < 1 for block in blocks):
        raise BadInput(f"{min(block.n_drafts for block in blocks)} tokens to draft", "1 or more")
    first = blocks[0].bound
    idle = 0 if first.config.sample_from_anchor else 1  # rows that predict nothing
    news, rows = [first.count(block.taps) for block in blocks], [block.n_drafts + idle for block in blocks]
    tables = [
        block.bound.rotations.at(block.context.offset, new + count)
        for block, new, count in zip(blocks, news, rows, strict=True)
    ]

    def joined(cut: Callable[[mx.array, int], mx.array]) -> list[mx.array]:
        """Return cosines and sines of some rows of each block."""
        return [mx.concatenate(list(map(cut, side, news))) for side in zip(*tables, strict=True)]

    before: list[list[mx.array]] = []  # keys and values of each block's taps
    if taps := [block.taps.squeeze(0) for block in blocks if block.taps is not None and block.taps.size]:
        pair = first.context_of(mx.concatenate(taps), *joined(lambda table, new: table[:new]))
        before = [list(mx.split(x, _ends(news), axis=2)) for x in pair]
    cos, sin = joined(lambda table, new: table[new:])
    x = mx.concatenate([block.bound.embed(block.bonus, n - 1) for block, n in zip(blocks, rows, strict=True)])
    update: mx.array | None = None
    for i, layer in enumerate(first.drafter.layers):

        def visible(j: int, pair: Sequence[mx.array], i: int = i) -> tuple[mx.array, mx.array]:
            """Return the keys and values that the rows of a block see."""
            if news[j]:
                pair = [
                    mx.concatenate([old[j][i : i + 1], x], axis=2)
                    for old, x in zip(before, pair, strict=True)
                ]
            return blocks[j].context.layers[i].put(pair[0], pair[1], news[j])

        def attend(normed: mx.array, i: int = i) -> mx.array:
            heads = [mx.split(x, _ends(rows), axis=2) for x in first.heads(i, normed, cos, sin)]
            outs = enumerate(zip(*heads, strict=True))
            return mx.concatenate(
                [first.attend(i, queries, *visible(j, pair)) for j, (*pair, queries) in outs]
            )

        x, update = layer(x, update, attend, first.fused.gate_up[i])
    for block, new in zip(blocks, news, strict=True):
        block.context.offset += new
    normed = add_norm(x, update, first.drafter.norm)[1]
    return [part[idle:] for part in mx.split(normed, _ends(rows))]


def _ends(sizes: Sequence[int]) -> list[int]:
    """Return the ends of all but the last of consecutive parts."""
    return list(accumulate(sizes[:-1]))
