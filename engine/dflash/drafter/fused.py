"""Matrices with the same input, concatenated: one product in place of several."""

import operator

from engine.dflash.config import DraftConfig
from engine.dflash.drafter.layers import DraftLayer
from engine.dflash.target.small_gemm import Matrix
from engine.mx import mx, nn, tree


class FusedLayers:
    """The layers' projections as a few matrices; the layers' own parameters become views of them.

    Where a projection is not a plain matrix (a quantized one, an adapter), the layers' own are called instead.
    The views share memory with the matrices, so that nothing is held twice. Once a parameter is replaced, as
    training does, :meth:``fits`` says no and another is to be made.

    Args:
        layers: the drafter's.
        config: the drafter's.
        form: of products over few rows, see :func:``engine.dflash.target.small_gemm.form_of``.
    """

    def __init__(self, layers: list[DraftLayer], config: DraftConfig, form: str) -> None:
        self.layers, self.config, self.form = layers, config, form
        self.plain = all(
            type(linear) is nn.Linear and "bias" not in linear
            for layer in layers
            for linear in _linears(layer)
        )
        if self.plain:
            self._fuse()
        self.keys_norm = mx.stack([layer.self_attn.k_norm.weight for layer in layers])[:, None, None]
        self.heads_norm = [self._heads_norm(layer) for layer in layers]
        mx.eval(self.keys_norm, self.heads_norm)
        self.sources = _sources(layers)

    def fits(self, layers: list[DraftLayer]) -> bool:
        """Whether the layers' parameters are unchanged since this was built."""
        now = _sources(layers)
        return len(now) == len(self.sources) and all(map(operator.is_, now, self.sources))

    def context(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Return values and keys of all layers, ``[layers, rows, kv heads * head_dim]`` each.

        Args:
            x: ``[rows, hidden]``.
        """
        if self.plain:
            values, keys = mx.split(x[None] @ self._context, 2, axis=-1)
            return values, keys
        attentions = [layer.self_attn for layer in self.layers]
        return mx.stack([a.v_proj(x) for a in attentions]), mx.stack([a.k_proj(x) for a in attentions])

    def block(self, layer: int, x: mx.array) -> mx.array:
        """Return a layer's values, keys and queries of ``x``, side by side in this order."""
        if self.plain:
            return self._block[layer](x)
        attention = self.layers[layer].self_attn
        return mx.concatenate([attention.v_proj(x), attention.k_proj(x), attention.q_proj(x)], axis=-1)

    def gate_up(self, layer: int, x: mx.array) -> mx.array:
        """Return the two inputs of a layer's MLP, side by side."""
        if self.plain:
            return self._gate_up[layer](x)
        mlp = self.layers[layer].mlp
        return mx.concatenate([mlp.gate_proj(x), mlp.up_proj(x)], axis=-1)

    def _fuse(self) -> None:
        attention = mx.stack(
            [mx.concatenate([a.weight for a in _linears(layer)[:3]]) for layer in self.layers]
        )
        mlps = [mx.concatenate([a.weight for a in _linears(layer)[3:]]) for layer in self.layers]
        each = [matrix.squeeze(0) for matrix in mx.split(attention, len(mlps))]  # an index would copy
        views = []
        for layer, heads, mlp in zip(self.layers, each, mlps, strict=True):
            linears = _linears(layer)
            views += [*_share(linears[:3], heads), *_share(linears[3:], mlp)]
        self._block = [Matrix(weight, self.form) for weight in each]
        self._gate_up = [Matrix(weight, self.form) for weight in mlps]
        width = 2 * self.config.num_key_value_heads * self.config.head_dim
        self._context = attention[:, :width].swapaxes(1, 2)
        mx.eval(views, each, mlps, self._context)

    def _heads_norm(self, layer: DraftLayer) -> mx.array:
        """Return the norms' weights of all key and query heads, ``[kv heads + heads, head_dim]``."""
        norms = (layer.self_attn.k_norm, layer.self_attn.q_norm)
        counts = (self.config.num_key_value_heads, self.config.num_attention_heads)
        rows = [
            mx.broadcast_to(norm.weight, (n, self.config.head_dim))
            for norm, n in zip(norms, counts, strict=True)
        ]
        return mx.concatenate(rows)


def _linears(layer: DraftLayer) -> list[nn.Linear]:
    """Return the projections that are fused: of the attention's input, then of the MLP's."""
    attention, mlp = layer.self_attn, layer.mlp
    return [attention.v_proj, attention.k_proj, attention.q_proj, mlp.gate_proj, mlp.up_proj]


def _share(linears: list[nn.Linear], matrix: mx.array) -> list[mx.array]:
    start, views = 0, []
    for linear in linears:
        rows = linear.weight.shape[0]
        linear.weight = matrix[start : start + rows]
        views.append(linear.weight)
        start += rows
    return views


def _sources(layers: list[DraftLayer]) -> list[mx.array]:
    return [x for layer in layers for _, x in tree.tree_flatten(layer.parameters())]
