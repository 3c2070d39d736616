"""A drafter's forward pass for training: many blocks of one row at once. Each sees only the text before it.

In decoding, a block is one row of queries over a cache. In training, each row of text gives many anchors. The block
at anchor ``a`` is ``[token a, mask, ..., mask]`` at positions ``a .. a + block - 1``. It sees the taps of the
positions before ``a``, as if the text up to there had just been committed. Its rows see each other as in decoding:
all of them, or in a causal layer only earlier ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.dflash.drafter.model import DFlashDrafter
from engine.dflash.target.rotary import Rotations, rotate
from engine.mx import mx, nn


@dataclass(frozen=True)
class Batch:
    """The target's outputs for some rows of text."""

    tokens: mx.array  # `[rows, length]` int32
    taps: mx.array  # `[rows, length, taps * hidden]`, the outputs of the tapped layers
    # `[rows, length, k]` int32, the target's k most probable successors of each position, best first.
    top_ids: mx.array
    top_probs: mx.array  # `[rows, length, k]` float32, their probabilities, which add up to one


def hidden_states(
    draft: DFlashDrafter,
    embed: Callable[[mx.array], mx.array],
    batch: Batch,
    anchors: mx.array,
    block: int,
    rotations: Rotations,
) -> mx.array:
    """Return the drafter's last states at the masks, ``[rows, anchors, block - 1, hidden]``.

    ``embed`` turns ids into the vectors that the drafter starts from. The anchors ``[rows, anchors]`` are int32, each
    at least 1 and with ``block - 1`` tokens after it; the committed token is one of the ``block``.
    """
    rows, length = batch.tokens.shape
    count = anchors.shape[1]
    first = mx.take_along_axis(batch.tokens, anchors, axis=1)[..., None]
    masks = mx.full((rows, count, block - 1), draft.config.mask_token_id, first.dtype)
    ids = mx.concatenate([first, masks], axis=-1)
    states = embed(ids).reshape(rows, count * block, -1)
    context = draft.hidden_norm(draft.fc(batch.taps.astype(states.dtype)))
    in_block = mx.arange(block)
    query_at = (anchors[..., None] + in_block).reshape(rows, 1, count * block)
    key_at = mx.arange(length)
    cos, sin = rotations.at(0, length)
    near_turns, far_turns = (cos[query_at], sin[query_at]), (cos, sin)
    before = key_at < mx.repeat(anchors, block, axis=1)[:, None, :, None]
    earlier = mx.tile(in_block[:, None] >= in_block, (count, 1))
    for i, layer in enumerate(draft.layers):
        window = draft.config.window(i)
        far = before if window is None else before & (query_at[..., None] - key_at < window)
        near = earlier if draft.config.causal(i) else mx.ones_like(earlier)
        near = mx.broadcast_to(near, (*far.shape[:-1], block))
        visible = mx.concatenate([far, near], axis=-1)
        x = layer.input_layernorm(states)
        states = states + _attend(layer.self_attn, x, context, visible, near_turns, far_turns, block)
        x, mlp = layer.post_attention_layernorm(states), layer.mlp
        states = states + mlp.down_proj(nn.silu(mlp.gate_proj(x)) * mlp.up_proj(x))
    states = states.reshape(rows, count, block, -1)[:, :, 1:]
    normed: mx.array = draft.norm(states)
    return normed


def _attend(
    attention: Any,
    x: mx.array,
    context: mx.array,
    visible: mx.array,
    near_turns: tuple[mx.array, mx.array],
    far_turns: tuple[mx.array, mx.array],
    block: int,
) -> mx.array:
    """Attend from every block to the context and to itself, where ``visible`` allows it.

    ``x`` is ``[rows, queries, hidden]`` of ``anchors * block`` queries, ``context`` ``[rows, length, hidden]``, and
    ``visible`` ``[rows, 1, queries, length + block]``: the context's positions, then the own block's.
    """
    rows, queries, _ = x.shape
    dim = attention.q_norm.weight.shape[0]

    def heads(projected: mx.array) -> mx.array:
        return projected.reshape(rows, projected.shape[1], -1, dim).swapaxes(1, 2)

    q = rotate(attention.q_norm(heads(attention.q_proj(x))), *near_turns)
    own_k = rotate(attention.k_norm(heads(attention.k_proj(x))), *near_turns)
    own_v = heads(attention.v_proj(x))
    k = rotate(attention.k_norm(heads(attention.k_proj(context))), *far_turns)
    v = heads(attention.v_proj(context))
    kv_heads, length = k.shape[1], k.shape[2]
    repeats = q.shape[1] // kv_heads
    count = queries // block

    q = (q * dim**-0.5).reshape(rows, kv_heads, repeats * queries, dim)
    far = (q @ k.swapaxes(-1, -2)).reshape(rows, kv_heads, repeats, queries, length)
    grouped = q.reshape(rows, kv_heads, repeats, count, block, dim)
    own_k = own_k.reshape(rows, kv_heads, 1, count, block, dim)
    own_v = own_v.reshape(rows, kv_heads, 1, count, block, dim)
    near = (grouped @ own_k.swapaxes(-1, -2)).reshape(rows, kv_heads, repeats, queries, block)

    scores = mx.where(visible[:, :, None], mx.concatenate([far, near], axis=-1), -1e9)
    weights = mx.softmax(scores, axis=-1)
    out = weights[..., :length].reshape(rows, kv_heads, repeats * queries, length) @ v
    near = weights[..., length:].reshape(rows, kv_heads, repeats, count, block, block) @ own_v
    shape = (rows, kv_heads * repeats, queries, dim)
    out = (out.reshape(shape) + near.reshape(shape)).swapaxes(1, 2)
    attended: mx.array = attention.o_proj(out.reshape(rows, queries, -1))
    return attended
