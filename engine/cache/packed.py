"""KV caches over packed storage: mlx-lm's caches with rows of bytes instead of vectors.

mlx-lm's caches move tokens about along one axis (growing, ring, trimming, padding, merging) and never look
into them. So each cache here is mlx-lm's own with rows as the tokens, an encoder in front and a view behind.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from engine.attention.views import PackedView
from engine.cache.codec_id import CodecId
from engine.codec.voronoi import VoronoiCodec
from engine.errors import BadInput
from engine.lm import cache as lm_cache
from engine.mx import mx

Mixed: Any = lm_cache.KVCache if TYPE_CHECKING else object  # one of mlx-lm's caches stands behind the mixin


class PackedMixin(Mixed):
    """What the packed caches share; mixed in before one of mlx-lm's caches.

    Attributes:
        rate: bits a value, as :class:``VoronoiCodec`` takes them. (Not ``bits``: mlx-lm sends a cache with that
            attribute to its own quantized attention.)
        effort: how hard the encoder searches.
        views: True hands :class:``PackedView`` to the model, which has to be routed; False decoded arrays.
        blank: stores rows of zeros instead of codes, for trials that compute nothing.
        codecs: those of keys and values, from the first update on.
        dtype: the type of the vectors that came in, by name (mlx-lm copies caches, and MLX's types do not
            copy).
    """

    rate: float
    effort: str
    views: bool
    blank: bool = False
    codecs: tuple[VoronoiCodec, VoronoiCodec] | None
    dtype: str

    def _hold(self, rate: float, effort: str, *, views: bool) -> None:
        self.rate, self.effort, self.views = rate, effort, views
        self.codecs, self.dtype = None, "float16"

    @property
    def codec_id(self) -> str:
        """What reading the rows takes: format, rate, head sizes and type; empty before the first update."""
        if self.codecs is None:
            return ""
        dims = tuple(codec.dim for codec in self.codecs)
        return str(CodecId(self.rate, dims, self.dtype, self.effort))

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Append ``[batch, heads, tokens, dim]`` of each and return all that is held, as views or arrays."""
        super().update_and_fetch(*self.pack(keys, values))
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[Any, Any]:
        """Return all that is held, as views or arrays ``[batch, heads, length, dim]``."""
        return self.read(*self._rows())

    def pack(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Return the rows of keys and values, uint8 ``[batch, heads, tokens, bytes]``, storing nothing."""
        if self.codecs is None:
            self.dtype = str(keys.dtype).removeprefix("mlx.core.")
            of_keys, of_values = (VoronoiCodec(x.shape[-1], self.rate, self.effort) for x in (keys, values))
            self.codecs = of_keys, of_values
        return self.encode(keys, values, self.codecs)

    def read(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Return what attention is given of rows, whether they are stored here or not."""
        if self.codecs is None:
            raise BadInput("a packed cache that has stored nothing cannot be read")
        dtype = getattr(mx, self.dtype)
        first, second = (
            PackedView(x, codec, dtype) for x, codec in zip((keys, values), self.codecs, strict=True)
        )
        return (first, second) if self.views else (first.dense(), second.dense())

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> None:  # noqa: ARG002
        """Refuse mlx-lm's own quantization (its ``kv_bits``): the content is already packed."""
        raise BadInput("a packed cache cannot be quantized again", "leave kv_bits unset")

    @property
    def state(self) -> tuple[Any, ...]:
        """The codec id, then what mlx-lm's cache saves."""
        return (self.codec_id, *super().state)

    @state.setter
    def state(self, v: tuple[Any, ...]) -> None:
        codec_id, *rest = v
        if getattr(self, "codecs", None) is not None and codec_id != self.codec_id:
            raise BadInput(f"saved with codec {codec_id!r}, this cache has {self.codec_id!r}")
        self._read(codec_id, rest[0], rest[1])
        super(PackedMixin, type(self)).state.fset(self, tuple(rest))

    @property
    def meta_state(self) -> tuple[str, ...]:
        """The codec id, as text."""
        return (self.codec_id,)

    @meta_state.setter
    def meta_state(self, v: tuple[str, ...]) -> None:
        if v[0] != self.codec_id:
            raise BadInput(f"saved with codec {v[0]!r}, this cache has {self.codec_id!r}")

    def _rows(self) -> tuple[mx.array, mx.array]:
        stored = super()
        return stored.keys_and_values() if hasattr(stored, "keys_and_values") else (self.keys, self.values)

    def encode(
        self, keys: mx.array, values: mx.array, codecs: tuple[VoronoiCodec, VoronoiCodec]
    ) -> tuple[mx.array, mx.array]:
        """Return the rows of keys and values in these codecs, uint8 ``[batch, heads, tokens, bytes]``."""
        of_keys, of_values = codecs
        if self.blank:
            return _blank(keys, of_keys), _blank(values, of_values)
        if keys.shape == values.shape:  # one call costs half of two where there are few tokens
            first, second = mx.split(of_keys.encode(mx.concatenate([keys, values])).rows, 2)
            return first, second
        return of_keys.encode(keys).rows, of_values.encode(values).rows

    def _read(self, codec_id: str, keys: mx.array | None, values: mx.array | None) -> None:
        """Make the codecs that an id names, and check that the rows are theirs."""
        if not hasattr(self, "views"):
            self._hold(4.25, "normal", views=False)
        if not codec_id:
            return
        parsed = CodecId.parse(codec_id)
        of_keys, of_values = parsed.codecs()
        for rows, codec in ((keys, of_keys), (values, of_values)):
            if rows is None or rows.dtype != mx.uint8 or rows.shape[-1] != codec.layout.nbytes:
                raise BadInput(f"the saved rows are not of codec {codec_id!r}")
        self.rate, self.effort, self.dtype = parsed.rate, parsed.effort, parsed.dtype
        self.codecs = of_keys, of_values

    def like(self, other: "PackedMixin") -> Self:
        """Take over another cache's codec."""
        self._hold(other.rate, other.effort, views=other.views)
        self.codecs, self.dtype = other.codecs, other.dtype
        return self


def _blank(x: mx.array, codec: VoronoiCodec) -> mx.array:
    return mx.zeros((*x.shape[:-1], codec.layout.nbytes), mx.uint8)


class LatticeKVCache(PackedMixin, lm_cache.KVCache):
    """mlx-lm's growing cache over packed rows.

    Args:
        rate: bits a value: 2.25, 3.25, 4.25, 5.25 or 6.25.
        effort: ``fast``, ``normal`` or ``best``.
        views: whether the model has been routed (:mod:``engine.attention.router``) and can take packed views.
    """

    def __init__(self, rate: float = 4.25, effort: str = "normal", *, views: bool = False) -> None:
        super().__init__()
        self._hold(rate, effort, views=views)

    @classmethod
    def merge(cls, caches: Sequence["LatticeKVCache"]) -> "BatchLatticeKVCache":
        """Return one cache for a batch of these."""
        return BatchLatticeKVCache.merge(caches)


class LatticeRotatingKVCache(PackedMixin, lm_cache.RotatingKVCache):
    """mlx-lm's ring of the last ``max_size`` tokens, the first ``keep`` of all kept, over packed rows."""

    def __init__(
        self, max_size: int, keep: int = 0, rate: float = 4.25, effort: str = "normal", *, views: bool = False
    ) -> None:
        super().__init__(max_size, keep)
        self._hold(rate, effort, views=views)

    @classmethod
    def merge(cls, caches: Sequence["LatticeRotatingKVCache"]) -> "BatchLatticeRotatingKVCache":
        """Return one cache for a batch of these."""
        return BatchLatticeRotatingKVCache.merge(caches)


class _BatchMixin(PackedMixin):
    """What the batched caches add: merging, extending and extracting keep the codec."""

    single: ClassVar[type[PackedMixin]]

    @classmethod
    def merge(cls, caches: Sequence[PackedMixin]) -> Self:
        """Return one left-padded cache of caches with the same codec; empty ones may be among them."""
        filled = [cache for cache in caches if cache.codecs is not None] or caches[:1]
        if len({cache.codec_id for cache in filled}) > 1:
            raise BadInput("caches of different codecs cannot share a batch")
        return cls._merged(list(caches)).like(filled[0])

    @classmethod
    def _merged(cls, caches: list[Any]) -> Self:
        """Return what mlx-lm makes of the caches."""
        return cast("Self", super().merge(caches))

    def extend(self, other: "_BatchMixin") -> None:
        """Append another batch of the same codec."""
        if self.codecs and other.codecs and self.codec_id != other.codec_id:
            raise BadInput("caches of different codecs cannot share a batch")
        super().extend(other)
        if self.codecs is None:
            self.like(other)

    def extract(self, idx: int) -> PackedMixin:
        """Return one of the batch by itself."""
        extracted: PackedMixin = super().extract(idx)
        extracted.__class__ = self.single  # mlx-lm builds its own class; the attributes are the same
        return extracted.like(self)


class BatchLatticeKVCache(_BatchMixin, lm_cache.BatchKVCache):
    """mlx-lm's left-padded batch cache over packed rows."""

    single = LatticeKVCache

    def __init__(self, left_padding: list[int]) -> None:
        super().__init__(left_padding)
        self._hold(4.25, "normal", views=False)

    @classmethod
    def _merged(cls, caches: list[Any]) -> Self:
        if all(cache.keys is None for cache in caches):
            return cls([0] * len(caches))
        return super()._merged(caches)


class BatchLatticeRotatingKVCache(_BatchMixin, lm_cache.BatchRotatingKVCache):
    """mlx-lm's left-padded batch of rings over packed rows."""

    single = LatticeRotatingKVCache

    def __init__(self, max_size: int, left_padding: list[int]) -> None:
        super().__init__(max_size, left_padding)
        self._hold(4.25, "normal", views=False)
