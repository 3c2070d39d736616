"""A head's forward pass for training: chains from all positions of some rows at once.

Step 0 reads the target's features at rows ``p`` with the tokens ``p + 1``. Step ``k`` reads the outputs of step
``k - 1`` with the tokens ``p + 1 + k``, at position ``p + k``. It sees the keys of step 0 up to its own row, and of its
own row those of the steps since.
"""

from collections.abc import Callable, Iterator
from typing import Any

from engine.dflash.heads.eagle3 import Eagle3
from engine.dflash.target.rotary import Rotations, rotate
from engine.mx import mx


def outputs(
    head: Eagle3,
    embed: Callable[[mx.array], mx.array],
    tokens: mx.array,
    taps: mx.array,
    steps: int,
    rotations: Rotations,
) -> Iterator[mx.array]:
    """Yield each step's outputs ``[rows, length - 1 - k, hidden]``: row ``p`` predicts the token after ``p + 1 + k``.

    ``tokens`` are ``[rows, length]``, ``taps`` ``[rows, length, chosen * hidden]``.
    """
    layer: Any = head.layers[0]
    features = head.fc(taps[:, :-1])
    cos, sin = rotations.at(0, tokens.shape[1])
    far: tuple[mx.array, mx.array] | None = None
    near: list[tuple[mx.array, mx.array]] = []
    for k in range(steps):
        rows = tokens.shape[1] - 1 - k
        features = features[:, :rows]
        normed = layer.hidden_norm(features)
        embedded = layer.input_layernorm(embed(tokens[:, 1 + k :]))
        x = mx.concatenate([embedded, normed], axis=-1)
        attention = layer.self_attn
        queries, keys, values = (
            _heads(part(x), attention.dim) for part in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        queries, keys = (rotate(part, cos[k : k + rows], sin[k : k + rows]) for part in (queries, keys))
        if far is None:
            far = keys, values
        else:
            near = [(key[:, :, :rows], value[:, :, :rows]) for key, value in near] + [(keys, values)]
        attended = _attend(queries, (far[0][:, :, :rows], far[1][:, :, :rows]), near, attention.scale)
        y = features + attention.o_proj(attended)
        features = y + layer.mlp(layer.post_attention_layernorm(y))
        yield features


def _heads(x: mx.array, dim: int) -> mx.array:
    return x.reshape(*x.shape[:2], -1, dim).swapaxes(1, 2)


def _attend(
    queries: mx.array, far: tuple[mx.array, mx.array], near: list[tuple[mx.array, mx.array]], scale: float
) -> mx.array:
    """Return the attention's output ``[batch, rows, heads * dim]``."""
    batch, heads, rows, dim = queries.shape
    kv_heads = far[0].shape[1]
    grouped = (queries * scale).reshape(batch, kv_heads, heads // kv_heads, rows, dim)
    scores = grouped @ far[0][:, :, None].swapaxes(-1, -2)
    scores = mx.where(mx.tri(rows, dtype=mx.bool_), scores, -1e9)
    own = [(grouped * key[:, :, None]).sum(axis=-1, keepdims=True) for key, _ in near]
    weights = mx.softmax(mx.concatenate([scores, *own], axis=-1), axis=-1)
    out = weights[..., :rows] @ far[1][:, :, None]
    for i, (_, value) in enumerate(near):
        out = out + weights[..., rows + i, None] * value[:, :, None]
    return out.reshape(batch, heads, rows, dim).swapaxes(1, 2).reshape(batch, rows, -1)
