"""Concatenates matrices with the same input: one product instead of several."""

import operator
from collections.abc import Callable, Sequence
from functools import partial

from engine.dflash.config import DraftConfig
from engine.dflash.drafter.layers import DraftLayer, Rows
from engine.dflash.target.small_gemm import Matrix
from engine.mx import mx, nn, tree


class FusedLayers:
    """The layers' projections as a few matrices; the layers' own parameters become views of these.

    Where a projection is not a plain matrix (a quantized one, an adapter), the layers' own are called instead.
    The views share memory with the matrices, so that nothing is held twice. Once a parameter is replaced, as
    training does, ``fits`` says no and another is to be made. Products over few rows have the form that
    ``engine.dflash.target.small_gemm.form_of`` says.
    """

    def __init__(self, layers: list[DraftLayer], config: DraftConfig, form: str) -> None:
        self.layers, self.config, self.form = layers, config, form
        self._linears = [_linears(layer) for layer in layers]
        self.plain = all(
            type(linear) is nn.Linear and "bias" not in linear for some in self._linears for linear in some
        )
        # For each layer, a function from rows to values, keys and queries side by side, and one to the two
        # inputs of the MLP.
        self.block: Sequence[Rows] = [partial(_side_by_side, some[:3]) for some in self._linears]
        self.gate_up: Sequence[Rows] = [partial(_side_by_side, some[3:]) for some in self._linears]
        if self.plain:
            self._fuse()
        self.keys_norm = mx.stack([layer.self_attn.k_norm.weight for layer in layers])[:, None, None]
        self.heads_norm = [self._heads_norm(layer) for layer in layers]
        mx.eval(self.keys_norm, self.heads_norm)
        self.sources = _sources(layers)

    def fits(self, layers: list[DraftLayer]) -> bool:
        """Return whether the layers' parameters are unchanged since these matrices were built."""
        now = _sources(layers)
        return len(now) == len(self.sources) and all(map(operator.is_, now, self.sources))

    def context(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Return values and keys of all layers, ``[layers, rows, kv heads * head_dim]`` each, of ``[rows, hidden]``."""
        if self.plain:
            both = x[None] @ self._context
        else:
            both = mx.stack([_side_by_side(some[:2], x) for some in self._linears])
        values, keys = mx.split(both, 2, axis=-1)
        return values, keys

    def _fuse(self) -> None:
        attention = mx.stack([mx.concatenate([a.weight for a in some[:3]]) for some in self._linears])
        mlps = [mx.concatenate([a.weight for a in some[3:]]) for some in self._linears]
        each = [matrix.squeeze(0) for matrix in mx.split(attention, len(mlps))]  # an index would copy
        views = []
        for some, heads, mlp in zip(self._linears, each, mlps, strict=True):
            views += [*_share(some[:3], heads), *_share(some[3:], mlp)]
        self.block = [Matrix(weight, self.form) for weight in each]
        self.gate_up = [Matrix(weight, self.form) for weight in mlps]
        width = 2 * self.config.num_key_value_heads * self.config.head_dim
        self._context = attention[:, :width].swapaxes(1, 2)
        mx.eval(views, each, mlps, self._context)

    def _heads_norm(self, layer: DraftLayer) -> mx.array:
        """Return the norms' weights of all key and query heads, ``[kv heads + heads, head_dim]``."""
        config, attention = self.config, layer.self_attn
        keys = mx.broadcast_to(attention.k_norm.weight, (config.num_key_value_heads, config.head_dim))
        queries = mx.broadcast_to(attention.q_norm.weight, (config.num_attention_heads, config.head_dim))
        return mx.concatenate([keys, queries])


def _linears(layer: DraftLayer) -> list[nn.Linear]:
    """Return the projections that are fused: of the attention's input, then of the MLP's."""
    attention, mlp = layer.self_attn, layer.mlp
    return [attention.v_proj, attention.k_proj, attention.q_proj, mlp.gate_proj, mlp.up_proj]


def _side_by_side(linears: Sequence[Callable[[mx.array], mx.array]], x: mx.array) -> mx.array:
    return mx.concatenate([linear(x) for linear in linears], axis=-1)


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
