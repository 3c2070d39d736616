"""A drafter's layers: Qwen3 blocks with keys and values from outside too; and the masks of their rows."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from engine.dflash.target.rotary import rotate
from engine.lm import qwen3
from engine.mx import mx, nn

Rows = Callable[[mx.array], mx.array]


def add_norm(x: mx.array, update: mx.array | None, norm: nn.RMSNorm) -> tuple[mx.array, mx.array]:
    """Return the sum (``x`` if there is nothing to add), and its norm."""
    x = x if update is None else x + update
    return x, norm(x)


def swiglu(gate_up: mx.array) -> mx.array:
    """Return ``silu(gate) * up``; ``gate_up`` has both side by side on the last axis."""
    gate, up = mx.split(gate_up, 2, axis=-1)
    return gate * mx.sigmoid(gate) * up


def norm_rotate(
    x: mx.array, weight: mx.array, cos: mx.array, sin: mx.array, dim: int, eps: float
) -> mx.array:
    """Normalize each head, scale it and rotate its halves, in float32 throughout; return ``[batch, heads, rows, dim]``.

    ``x`` is ``[batch, rows, heads * dim]``, ``weight`` broadcasts to ``[batch, rows, heads, dim]``; ``cos`` and ``sin``
    are ``[rows, dim]``, as ``engine.dflash.target.rotary.rotate`` takes them.
    """
    heads = x.reshape(*x.shape[:2], -1, dim).astype(mx.float32)
    heads = mx.fast.rms_norm(heads, None, eps) * weight
    rotated = rotate(heads, cos[:, None], sin[:, None])
    return rotated.astype(x.dtype).transpose(0, 2, 1, 3)


@lru_cache(maxsize=64)
def block_mask(context: int, rows: int, window: int | None, *, causal: bool) -> mx.array | str | None:
    """Return the mask of a block of rows over ``context`` visible positions and the block itself.

    Causal rows see only earlier rows of the block. With a window, a row sees context positions less than ``window``
    before its own, and the whole block. The context before the window must have been dropped, so that the result
    stays the same once the window is full.
    """
    if window is None or context + rows <= window:
        return "causal" if causal else None
    at = np.arange(context + rows)
    row = at[context:, None]
    visible = np.where(at < context, row - at < window, (at <= row) | (not causal))
    return mx.array(visible)


class DraftLayer(qwen3.TransformerBlock):
    """One layer; the caller determines how rows attend, and how the MLP's two inputs are computed."""

    def __call__(
        self, x: mx.array, update: mx.array | None, attend: Rows, gate_up: Rows
    ) -> tuple[mx.array, mx.array]:
        """Return the residual stream ``[..., rows, hidden]``, and the next term to add to the stream.

        ``update`` is what the layer before left to add to ``x``. From normed rows, ``attend`` gives the heads' outputs
        ``[..., rows, heads * head_dim]``, and ``gate_up`` gate and up, side by side.
        """
        x, normed = add_norm(x, update, self.input_layernorm)
        x, normed = add_norm(x, self.self_attn.o_proj(attend(normed)), self.post_attention_layernorm)
        return x, self.mlp.down_proj(swiglu(gate_up(normed)))
