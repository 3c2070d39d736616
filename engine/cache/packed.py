"""KV caches over packed storage: mlx-lm's caches with rows of bytes instead of vectors.

mlx-lm's caches only move tokens along one axis (growing, ring, trimming, padding, merging) and never read them.
So each cache here is mlx-lm's own with rows of bytes as tokens, an encoder before it, and a view after it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from engine.attention.views import PackedView
from engine.cache.codec_id import CodecId
from engine.codec.row_codec import RawCodec, RowCodec
from engine.errors import BadInput
from engine.lm import cache as lm_cache
from engine.mx import dtype_name, mx

DEFAULT = "e8v@4.25"
Mixed: Any = lm_cache.KVCache if TYPE_CHECKING else object  # the mixin is combined with a cache of mlx-lm's


class PackedMixin(Mixed):
    """What the packed caches share: a mix-in for mlx-lm's caches."""

    # The cache spec; its sides name the codecs of keys and values. (No attribute is called `bits`: mlx-lm sends
    # a cache with that one to its own quantized attention.)
    spec: str = DEFAULT
    views: bool = False  # True hands `PackedView` to the model, which has to be routed; False decoded arrays
    blank: bool = False  # stores rows of zeros instead of codes, for trials that compute nothing
    codecs: tuple[RowCodec, RowCodec] | None = None  # of keys and values, from the first update on
    # The name of the added vectors' type. (mlx-lm copies caches, and MLX's types cannot be copied.)
    dtype: str = "float16"

    @property
    def codec_id(self) -> str:
        """The id for reading the rows: format, rate, head sizes and type; empty before the first update."""
        if self.codecs is None:
            return ""
        return str(CodecId(self.spec, tuple(codec.dim for codec in self.codecs), self.dtype))

    def use_codec(self, codec_id: str) -> None:
        """Use the codecs that a codec id names, with their settings.

        Raises:
            BadInput: it cannot be read.
        """
        parsed = CodecId.parse(codec_id)
        self.spec, self.dtype, self.codecs = parsed.spec, parsed.dtype, parsed.codecs

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Append keys and values ``[batch, heads, tokens, dim]``, and return the whole content as views or arrays."""
        super().update_and_fetch(*self.pack(keys, values))
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[Any, Any]:
        """Return the whole content, as views or arrays ``[batch, heads, length, dim]``."""
        return self.read(*self._rows())

    def pack(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Return the rows of keys and values, uint8 ``[batch, heads, tokens, bytes]``, without storing them."""
        if self.codecs is None:
            self.dtype = dtype_name(keys.dtype)
            dims = keys.shape[-1], values.shape[-1]
            self.codecs = CodecId(self.spec, dims, self.dtype).codecs
        return self.encode(keys, values, self.codecs)

    def read(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Return a view of rows for attention. The rows need not be stored in this cache."""
        if self.codecs is None:
            raise BadInput("a packed cache that has stored nothing cannot be read")
        dtype = getattr(mx, self.dtype)
        first, second = (
            PackedView(x, codec, dtype) for x, codec in zip((keys, values), self.codecs, strict=True)
        )
        return (first, second) if self.views else (first.dense(), second.dense())

    def coded(self) -> tuple[int, int, int]:
        """Return the number of encoded positions, the bytes of their codes, and 0 failures: a failing codec raises."""
        if self.codecs is None:
            return 0, 0, 0
        sides = [x for x in (self.keys, self.values) if x.dtype == mx.uint8]
        codes = [x for x, codec in zip(sides, self.codecs, strict=False) if not isinstance(codec, RawCodec)]
        return (self.offset if len(sides) == len("kv") else 0), sum(x.nbytes for x in codes), 0

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> None:  # noqa: ARG002
        """Refuse mlx-lm's own quantization (its ``kv_bits``): the content is already packed."""
        raise BadInput("a packed cache cannot be quantized again", "leave kv_bits unset")

    @property
    def state(self) -> tuple[Any, ...]:
        """The codec id, followed by the state of mlx-lm's cache."""
        return (self.codec_id, *super().state)

    @state.setter
    def state(self, v: tuple[Any, ...]) -> None:
        codec_id, *rest = v
        if self.codecs is not None and codec_id != self.codec_id:
            raise BadInput(f"saved with codec {codec_id!r}, this cache has {self.codec_id!r}")
        if codec_id:
            for rows, codec in zip(rest[:2], CodecId.parse(codec_id).codecs, strict=True):
                if rows is None or rows.dtype != mx.uint8 or rows.shape[-1] != codec.row_bytes:
                    raise BadInput(f"the saved rows are not of codec {codec_id!r}")
            self.use_codec(codec_id)
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
        self, keys: mx.array, values: mx.array, codecs: tuple[RowCodec, RowCodec]
    ) -> tuple[mx.array, mx.array]:
        """Encode keys and values with these codecs; return the rows, uint8 ``[batch, heads, tokens, bytes]``."""
        of_keys, of_values = codecs
        if self.blank:
            sides = zip((keys, values), codecs, strict=True)
            zeros = [mx.zeros((*x.shape[:-1], codec.row_bytes), mx.uint8) for x, codec in sides]
            return zeros[0], zeros[1]
        if keys.shape == values.shape and of_keys == of_values:
            # One call takes half the time of two if there are few tokens.
            first, second = mx.split(of_keys.encode(mx.concatenate([keys, values])), 2)
            return first, second
        return of_keys.encode(keys), of_values.encode(values)

    def like(self, other: "PackedMixin") -> Self:
        """Take over another cache's codec."""
        self.spec, self.views = other.spec, other.views
        self.codecs, self.dtype = other.codecs, other.dtype
        return self


class PackedKVCache(PackedMixin, lm_cache.KVCache):
    """mlx-lm's growing cache over packed rows.

    Args:
        spec: a cache spec whose sides pack, such as ``e8v@4.25`` or ``k=e8v@4.25,v=raw``.
        views: whether the model has been routed (``engine.attention.router``) and can take packed views.
    """

    def __init__(self, spec: str = DEFAULT, *, views: bool = False) -> None:
        super().__init__()
        self.spec, self.views = spec, views

    @classmethod
    def merge(cls, caches: Sequence["PackedKVCache"]) -> "BatchPackedKVCache":
        """Return one cache for a batch of these."""
        return BatchPackedKVCache.merge(caches)


class PackedRotatingKVCache(PackedMixin, lm_cache.RotatingKVCache):
    """mlx-lm's ring over packed rows: the last ``max_size`` tokens, the first ``keep`` of all tokens among them."""

    def __init__(self, max_size: int, keep: int = 0, spec: str = DEFAULT, *, views: bool = False) -> None:
        super().__init__(max_size, keep)
        self.spec, self.views = spec, views

    @classmethod
    def merge(cls, caches: Sequence["PackedRotatingKVCache"]) -> "BatchPackedRotatingKVCache":
        """Return one cache for a batch of these."""
        return BatchPackedRotatingKVCache.merge(caches)


class _BatchMixin(PackedMixin):
    """What the batched caches add: merging, extending and extracting keep the codec."""

    single: ClassVar[type[PackedMixin]]

    @classmethod
    def merge(cls, caches: Sequence[PackedMixin]) -> Self:
        """Merge caches with the same codec into one left-padded cache; some may be empty."""
        filled = [cache for cache in caches if cache.codecs is not None] or caches[:1]
        if len({cache.codec_id for cache in filled}) > 1:
            raise BadInput("caches of different codecs cannot share a batch")
        return cls._merged(list(caches)).like(filled[0])

    @classmethod
    def _merged(cls, caches: list[Any]) -> Self:
        """Return the merged caches, as mlx-lm merges them."""
        return cast("Self", super().merge(caches))

    def extend(self, other: "_BatchMixin") -> None:
        """Append another batch of the same codec."""
        if self.codecs and other.codecs and self.codec_id != other.codec_id:
            raise BadInput("caches of different codecs cannot share a batch")
        super().extend(other)
        if self.codecs is None:
            self.like(other)

    def extract(self, idx: int) -> PackedMixin:
        """Return one sequence of the batch by itself."""
        extracted: PackedMixin = super().extract(idx)
        extracted.__class__ = self.single  # mlx-lm builds its own class; the attributes are the same
        return extracted.like(self)


class BatchPackedKVCache(_BatchMixin, lm_cache.BatchKVCache):
    """mlx-lm's left-padded batch cache over packed rows."""

    single = PackedKVCache

    @classmethod
    def _merged(cls, caches: list[Any]) -> Self:
        if all(cache.keys is None for cache in caches):
            return cls([0] * len(caches))
        return super()._merged(caches)


class BatchPackedRotatingKVCache(_BatchMixin, lm_cache.BatchRotatingKVCache):
    """mlx-lm's left-padded batch of rings over packed rows."""

    single = PackedRotatingKVCache
