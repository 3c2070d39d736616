"""The sources that restore the keys and values of evicted positions."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from engine.attention.views import PackedView
from engine.mx import mx, nn

Pair = tuple[mx.array, mx.array]


class Source(Protocol):
    """Restores the evicted positions of a cache's layer.

    Keys and values are ``[1, heads, positions, dim]`` in the form of caches: normed, and rotated to their absolute
    positions. They arrive in order and without gaps.
    """

    def take(self, start: int, keys: mx.array, values: mx.array) -> None:
        """Receive the evicted positions from ``start`` on, with their contents."""

    def give(self) -> Pair:
        """Return keys and values of all evicted positions, in order."""


def joined(first: Pair, second: Pair) -> Pair:
    """Return keys and values of positions that follow one another."""
    keys, values = (mx.concatenate(list(both), axis=2) for both in zip(first, second, strict=True))
    return keys, values


class Exact:
    """Keeps evicted keys and values unchanged: the identity control."""

    def __init__(self) -> None:
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    def take(self, start: int, keys: mx.array, values: mx.array) -> None:  # noqa: ARG002
        """Keep keys and values."""
        if self.keys is None or self.values is None:
            self.keys, self.values = keys, values
        else:
            self.keys, self.values = joined((self.keys, self.values), (keys, values))

    def give(self) -> Pair:
        """Return the kept keys and values."""
        if self.keys is None or self.values is None:
            raise ValueError("nothing was evicted")
        return self.keys, self.values


class Noise(Exact):
    """Returns Gaussian noise with the same mean and variance in each channel: a control that must destroy recall.

    ``change`` turns keys or values into noise, as ``engine.evals.controls.noise`` makes it.
    """

    def __init__(self, change: Callable[[mx.array], mx.array]) -> None:
        super().__init__()
        self.change = change

    def take(self, start: int, keys: mx.array, values: mx.array) -> None:
        """Keep noise."""
        super().take(start, self.change(keys), self.change(values))


class Compressed:
    """Keeps codes in an empty cache for this layer, of this engine or of mlx-lm, and returns the decoded values."""

    def __init__(self, inner: Any) -> None:
        self.inner, self._dtype = inner, mx.float32

    def take(self, start: int, keys: mx.array, values: mx.array) -> None:  # noqa: ARG002
        """Encode keys and values."""
        self._dtype = keys.dtype
        self.inner.update_and_fetch(keys, values)

    def give(self) -> Pair:
        """Return the decoded codes, in the model's type."""
        keys, values = (_dense(x, self.inner).astype(self._dtype) for x in self.inner.keys_and_values())
        return keys, values


class Learned:
    """Returns reconstructed outputs of the layer's projections, rebuilt for each forward pass.

    Args:
        attention: the layer's module, whose norms and rotation are applied.
        reconstruct: from the first position and the one after the last to raw keys and values,
            ``[1, positions, heads * dim]`` each: before norm and rotation.
        stop: positions from here on, such as those of an answer, are kept as they were.
        owned: what the reconstruction itself holds, to be counted with this source's bytes.
    """

    def __init__(
        self,
        attention: nn.Module,
        reconstruct: Callable[[int, int], Pair],
        stop: int | None = None,
        owned: tuple[Any, ...] = (),
    ) -> None:
        self.inner, self.stop, self.caches = Exact(), stop, owned
        self.start: int | None = None
        self.count = 0
        # Use a closure, so that the weights do not count as bytes of the cache.
        self._cached = lambda start, stop, like: as_cached(attention, reconstruct(start, stop), like, start)
        self._like: Pair | None = None

    def take(self, start: int, keys: mx.array, values: mx.array) -> None:
        """Count the positions that have to be reconstructed, and keep those after the prompt."""
        if self.start is None:
            self.start, self._like = start, (_empty(keys), _empty(values))
        count = keys.shape[2] if self.stop is None else max(0, min(keys.shape[2], self.stop - start))
        self.count += count
        if count < keys.shape[2]:
            self.inner.take(start + count, keys[:, :, count:], values[:, :, count:])

    def give(self) -> Pair:
        """Return the reconstructed positions, followed by the kept ones."""
        if self.start is None or self._like is None or not self.count:
            return self.inner.give()
        pair = self._cached(self.start, self.start + self.count, self._like)
        return pair if self.inner.keys is None else joined(pair, self.inner.give())


def _empty(x: mx.array) -> mx.array:
    return mx.zeros((*x.shape[:2], 0, x.shape[3]), x.dtype)


def as_cached(attention: nn.Module, raw: Pair, like: Pair, start: int) -> Pair:
    """Return raw projections ``[rows, positions, heads * dim]`` in the form of the layer's cache.

    They begin at position ``start``, and get the shapes and types of keys and values ``[rows, heads, any, dim]``.
    """
    heads = [
        x.reshape(*x.shape[:2], side.shape[1], -1).transpose(0, 2, 1, 3)
        for x, side in zip(raw, like, strict=True)
    ]
    norms = [getattr(attention, name, None) for name in ("k_norm", "v_norm")]
    keys, values = (x if norm is None else norm(x) for x, norm in zip(heads, norms, strict=True))
    return attention.rope(keys, offset=start).astype(like[0].dtype), values.astype(like[1].dtype)


def _dense(x: PackedView | Sequence[mx.array] | mx.array, cache: Any) -> mx.array:
    if isinstance(x, PackedView):
        return x.dense()
    if not isinstance(x, mx.array):
        codes, scales, biases = x
        return mx.dequantize(codes, scales, biases, group_size=cache.group_size, bits=cache.bits)
    return x
