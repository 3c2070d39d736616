"""Controls: caches that return changed values to attention, at known positions.

They change the result of ``update_and_fetch``, which attention reads, so no library can overlook them. An identity
control shows that the machinery alone changes nothing. Noise shows that attention reads these positions.
"""

from collections.abc import Callable
from typing import Any

from engine.cache.protocol import Cache
from engine.cache.proxy import CacheProxy
from engine.cache.wrapping import KEY_VALUE
from engine.errors import BadInput
from engine.lm import cache as lm_cache
from engine.mx import mx, nn

Change = Callable[[mx.array], mx.array]


class ControlCache(CacheProxy, own=("change", "stop", "injected_positions")):
    """A cache of mlx-lm's that stores changed keys and values; every other attribute is the inner cache's.

    Changes lead from ``[batch, heads, tokens, dim]`` to as many. Positions from ``stop`` on are stored as they come.
    """

    def __init__(self, inner: Any, change: Change, stop: int) -> None:
        super().__init__(inner)
        self.change, self.stop = change, stop
        self.injected_positions = 0  # positions that were stored changed

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append keys and values, changed at positions before ``stop``; return the inner cache's result."""
        count = max(0, min(keys.shape[2], self.stop - self.inner.offset))
        self.injected_positions += count
        rows: tuple[mx.array, mx.array] = self.inner.update_and_fetch(
            self._changed(keys, count), self._changed(values, count)
        )
        return rows

    def _changed(self, x: mx.array, count: int) -> mx.array:
        if count == 0:
            return x
        return mx.concatenate([self.change(x[:, :, :count]), x[:, :, count:]], axis=2)


def same(x: mx.array) -> mx.array:
    """Return keys or values unchanged."""
    return x


def noise(seed: int) -> Change:
    """Return a change to Gaussian noise with the mean and variance of each head's channels.

    Each call draws new noise. The same sequence of calls always draws the same.
    """
    key = mx.random.key(seed)

    def change(x: mx.array) -> mx.array:
        nonlocal key
        key, drawn = mx.random.split(key)
        wide = x.astype(mx.float32)
        mean, spread = wide.mean(axis=2, keepdims=True), wide.std(axis=2, keepdims=True)
        return (mx.random.normal(x.shape, key=drawn) * spread + mean).astype(x.dtype)

    return change


def control_caches(model: nn.Module, change: Change, stop: int) -> list[Cache]:
    """Return the model's own caches; caches of keys and values are wrapped in a ``ControlCache``.

    Raises:
        BadInput: no layer keeps keys and values by itself.
    """
    caches = lm_cache.make_prompt_cache(model)
    changed = [ControlCache(c, change, stop) if type(c) in KEY_VALUE else c for c in caches]
    if not any(isinstance(cache, ControlCache) for cache in changed):
        raise BadInput("this model keeps no keys and values that a control could replace")
    return changed
