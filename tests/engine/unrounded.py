"""A fault to find: rows of a pass that see one another's keys and values as they are, not as the cache stores them."""

from engine.attention.views import PackedView
from engine.cache.proxy import CacheProxy
from engine.mx import mx


class Unrounded(CacheProxy):
    """A packed cache with this fault."""

    def update_and_fetch(self, keys, values):
        rows = keys.shape[2]
        found = self.inner.update_and_fetch(keys, values)
        return tuple(
            mx.concatenate([self._dense(x)[:, :, :-rows], own], axis=2)
            for x, own in zip(found, (keys, values), strict=True)
        )

    def _dense(self, x):
        if isinstance(x, PackedView):
            return x.dense()
        return mx.dequantize(*x, group_size=self.inner.group_size, bits=self.inner.bits)

    def __getattr__(self, name):
        if name == "bits":  # by which mlx-lm knows a cache that returns codes
            raise AttributeError(name)
        return super().__getattr__(name)
