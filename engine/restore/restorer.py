"""The learned restorer: reconstructs the inputs of a target's layers at evicted positions from the token ids.

It reads the target's own embeddings of the text, and mixes each position with a few dozen earlier ones by gated
causal convolutions. For each layer, it adds to the embedding an estimate of the rest of the layer's input. The
layer's own norm and projections turn this into keys and values. It cannot reconstruct what a target's layers take
from positions farther back.

    restorer = Restorer(config)
    rows = normed(embed(tokens))              # [rows, length, hidden]
    x = restorer.inputs(0, rows, restorer.states(rows))
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.errors import BadInput
from engine.mx import mx, nn

Embed = Callable[[mx.array], mx.array]


@dataclass(frozen=True, kw_only=True)
class RestorerConfig:
    """A restorer's shape, and the target that it was trained for."""

    hidden_size: int  # of the target's embeddings
    layers: tuple[int, ...]  # the target's layers that are restored, counted from 0
    width: int = 96  # values of one position's state, which all layers share
    dilations: tuple[int, ...] = (1, 4, 16)  # of the convolutions, one each
    taps: int = 4  # positions that a convolution reads: its own, and those 1, 2, ... dilations before
    target: str = ""  # `sha256:...` of the target's weights

    def __post_init__(self) -> None:
        sizes = (self.hidden_size, self.width, self.taps, *self.dilations)
        if min(sizes) < 1 or not self.dilations:
            raise BadInput("a restorer needs convolutions, and sizes of 1 or more")
        if not self.layers or len(set(self.layers)) != len(self.layers):
            raise BadInput(
                f"the layers of a restorer are {self.layers}", "name at least one layer, and none twice"
            )

    @property
    def reach(self) -> int:
        """The number of earlier positions on which a state depends."""
        return (self.taps - 1) * sum(self.dilations)


class Convolution(nn.Module):
    """``x + down(silu(gate) * up)``, with gate and up computed from some positions of the normed ``x``."""

    def __init__(self, config: RestorerConfig, dilation: int) -> None:
        super().__init__()
        self.shifts = tuple(i * dilation for i in range(config.taps))
        self.norm = nn.RMSNorm(config.width)
        self.gate_up = nn.Linear(config.taps * config.width, 2 * config.width, bias=False)
        self.down = nn.Linear(config.width, config.width, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        """Return as many ``[rows, length, width]``; what is before the first position is zero."""
        normed, length = self.norm(x), x.shape[1]
        shifted = [mx.pad(normed, [(0, 0), (shift, 0), (0, 0)])[:, :length] for shift in self.shifts]
        gate, up = mx.split(self.gate_up(mx.concatenate(shifted, axis=-1)), 2, axis=-1)
        return x + self.down(nn.silu(gate) * up)


class Scale(nn.Module):
    """A factor for each channel."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = mx.ones((size,))

    def __call__(self, x: mx.array) -> mx.array:
        """Return ``[..., size]`` scaled."""
        return x * self.weight


class Restorer(nn.Module):
    """The weights. It holds no state of a prompt; see ``Reconstruction``."""

    kind = "kakeya-restorer"

    def __init__(self, config: RestorerConfig) -> None:
        super().__init__()
        self.config = config
        self.enter = nn.Linear(config.hidden_size, config.width, bias=False)
        self.mix = [Convolution(config, dilation) for dilation in config.dilations]
        self.norm = nn.RMSNorm(config.width)
        self.kept = [Scale(config.hidden_size) for _ in config.layers]
        self.added = [nn.Linear(config.width, config.hidden_size) for _ in config.layers]
        for layer in self.added:  # so that it adds nothing to the embedding at first
            layer.weight, layer.bias = mx.zeros_like(layer.weight), mx.zeros_like(layer.bias)

    def states(self, rows: mx.array) -> mx.array:
        """Return ``[rows, length, width]`` of normed embeddings ``[rows, length, hidden]``."""
        x = self.enter(rows.astype(self.enter.weight.dtype))
        for layer in self.mix:
            x = layer(x)
        normed: mx.array = self.norm(x)
        return normed

    def inputs(self, i: int, rows: mx.array, states: mx.array) -> mx.array:
        """Return the ``i``-th restored layer's input, except for its scale, ``[rows, length, hidden]``."""
        return self.kept[i](rows.astype(states.dtype)) + self.added[i](states)


def normed(rows: mx.array) -> mx.array:
    """Return embeddings divided by their root mean square, so that their scale in a model does not matter."""
    return mx.fast.rms_norm(rows, None, 1e-12)


class Reconstruction:
    """One prompt in a restorer's form: for each evicted position, only one state is kept."""

    def __init__(self, restorer: Restorer, embed: Embed, ids: Sequence[int]) -> None:
        # The weights are kept in closures, because they do not count as bytes of a cache.
        self._rows = lambda start, stop: normed(embed(mx.array(list(ids[start:stop]), mx.int32)[None]))
        self._restorer = lambda: restorer
        self.length = len(ids)
        self.states: mx.array | None = None
        self._start = 0

    def inputs(self, i: int, start: int, stop: int) -> mx.array:
        """Return the ``i``-th restored layer's input at some positions, ``[1, stop - start, hidden]``."""
        return self._restorer().inputs(i, self._rows(start, stop), self._between(start, stop))

    def _between(self, start: int, stop: int) -> mx.array:
        """Return the states of some positions, made once each, in order."""
        if not 0 <= start < stop <= self.length:
            raise BadInput(f"positions {start} to {stop} are not all among the prompt's {self.length}")
        if self.states is None or start < self._start:
            self.states, self._start = self._make(start, stop), start
        end = self._start + self.states.shape[1]
        if end < stop:
            self.states = mx.concatenate([self.states, self._make(end, stop)], axis=1)
        return self.states[:, start - self._start : stop - self._start]

    def _make(self, start: int, stop: int) -> mx.array:
        """Return the states of positions, computed with the earlier positions on which they depend."""
        first = max(0, start - self._restorer().config.reach)
        return self._restorer().states(self._rows(first, stop))[:, start - first :]
