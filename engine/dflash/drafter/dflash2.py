"""The additions of DFlash2: convolutions around each layer's two halves, and a selector that picks the drafts.

The layout is that of the ``dflash`` package. A grouped dynamic convolution mixes each row with the rows
before it. Its kernel is the sum of a fixed one and one that depends on the row. The selector takes the best
tokens of each row, and adds to their logits a score of how well they follow the previous token.
"""

from collections.abc import Callable

from engine.dflash.config import DraftConfig
from engine.dflash.drafter.layers import DraftLayer, Rows, add_norm, swiglu
from engine.mx import mx, nn


def convolve(x: mx.array, base: mx.array, dynamic: mx.array) -> mx.array:
    """Return the causal convolution of rows ``[..., rows, hidden]``, under kernels that differ by row.

    Of ``base``, ``[taps, hidden]``, tap 0 is the row's own, tap 1 the row before it. ``dynamic``,
    ``[..., rows, taps, groups]``, is added to it, the same for all channels of a group.
    """
    rows, groups = x.shape[-2], dynamic.shape[-1]
    grouped = x.reshape(*x.shape[:-1], groups, -1)
    kernels = base.reshape(base.shape[0], groups, -1).astype(x.dtype) + dynamic[..., None]
    out = grouped * kernels[..., 0, :, :]
    for back in range(1, min(base.shape[0], rows)):
        earlier = grouped[..., :-back, :, :] * kernels[..., back:, back, :, :]
        padding = [(0, 0)] * (x.ndim - 2) + [(back, 0), (0, 0), (0, 0)]
        out = out + mx.pad(earlier, padding)
    return out.reshape(x.shape)


class GroupedDynamicConv(nn.Module):
    """Two convolutions, before and after a half layer; their kernels depend on the rows before it."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        size, taps = config.hidden_size, config.conv_kernel_size
        self.groups = size // config.conv_group_size
        self.base_kernel = mx.zeros((2, taps, size))
        self.kernel_projection = nn.Linear(size, 2 * taps * self.groups, bias=False)

    def before(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Return the convolved rows, and the kernels for ``after``."""
        taps = self.base_kernel.shape[1]
        kernels = self.kernel_projection(x).reshape(*x.shape[:-1], 2, taps, self.groups)
        return convolve(x, self.base_kernel[0], kernels[..., 0, :, :]), kernels[..., 1, :, :]

    def after(self, x: mx.array, kernels: mx.array) -> mx.array:
        """Return the rows of the half layer's output, convolved."""
        return convolve(x, self.base_kernel[1], kernels)


class ConvLayer(DraftLayer):
    """A drafter's layer with convolutions."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__(config)
        self.attention_conv = GroupedDynamicConv(config)
        self.mlp_conv = GroupedDynamicConv(config)

    def __call__(
        self, x: mx.array, update: mx.array | None, attend: Rows, gate_up: Rows
    ) -> tuple[mx.array, mx.array]:
        """See ``DraftLayer``."""
        x, normed = add_norm(x, update, self.input_layernorm)
        mixed, kernels = self.attention_conv.before(normed)
        update = self.attention_conv.after(self.self_attn.o_proj(attend(mixed)), kernels)
        x, normed = add_norm(x, update, self.post_attention_layernorm)
        mixed, kernels = self.mlp_conv.before(normed)
        return x, self.mlp_conv.after(self.mlp.down_proj(swiglu(gate_up(mixed))), kernels)


def best(logits: mx.array, count: int) -> tuple[mx.array, mx.array]:
    """Return the ``count`` likeliest tokens of each row, in no order, and their logits."""
    others = logits.shape[-1] - count
    _, tokens = mx.split(mx.argpartition(logits, others, axis=-1), [others], axis=-1)
    return tokens, mx.take_along_axis(logits, tokens, axis=-1)


class CandidateSelector(nn.Module):
    """Picks each draft among its row's best tokens, given the draft before it."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.top_k = config.selector_top_k
        rank = config.selector_rank
        self.predecessor_codebook = mx.zeros((config.vocab_size, rank))
        self.successor_codebook = mx.zeros((config.vocab_size, rank))
        self.hidden_projection = nn.Linear(config.hidden_size, rank, bias=False)

    def select(
        self, hidden: mx.array, logits: mx.array, before: mx.array, pick: Callable[[mx.array], mx.array]
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Return tokens ``[batch, n]``, scores ``[batch, n, k]`` and candidates ``[batch, n, k]``.

        ``hidden`` are normed rows, ``[batch, n, hidden]``, ``before`` is the token before the first draft, ``[batch]``,
        and ``pick`` leads from scores ``[batch, 1, k]`` to indices ``[batch, 1]``.
        """
        candidates, unary = best(logits, self.top_k)
        # The query of a row, [batch, n, k, rank]. Its product with the predecessor's code is the score of the
        # pair.
        projected = self.hidden_projection(hidden)[:, :, None] * self.successor_codebook[candidates]
        tokens, scores = [before[:, None]], []
        for row in range(hidden.shape[1]):
            code = self.predecessor_codebook[tokens[-1]]
            scores.append(unary[:, row, None] + (projected[:, row] * code).sum(axis=-1)[:, None])
            picked = pick(scores[-1])
            tokens.append(mx.take_along_axis(candidates[:, row], picked, axis=-1))
        return mx.concatenate(tokens[1:], axis=1), mx.concatenate(scores, axis=1), candidates
