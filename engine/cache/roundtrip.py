"""The earlier design: any cache, with keys and values encoded and decoded before they are stored.

It shows the effect of a codec on a model. It saves no memory, because the inner cache holds the decoded values.
"""

import warnings
from collections.abc import Callable
from typing import Any

from engine.cache.protocol import Cache
from engine.cache.proxy import CacheProxy
from engine.cache.spec import parse
from engine.cache.wrapping import wrap_caches
from engine.codec.kinds import make_codec
from engine.errors import BadInput, EngineError
from engine.lm import cache as lm_cache
from engine.mx import mx

OWN = ("make_codec", "name", "strict", "fired", "skipped", "failed", "last_error", "codecs")


class KakeyaLatticeMLXCache(CacheProxy, own=OWN):
    """A cache of mlx-lm's behind a codec; every other attribute is the inner cache's.

    Args:
        inner: the cache that holds the decoded values.
        make_codec: returns an object with ``roundtrip`` for a head size.
        name: the name of the codec in a saved cache.
        strict: raise if the codec fails. Otherwise the vectors are stored unchanged, ``failed`` counts the
            failure, ``last_error`` keeps the reason, and a RuntimeWarning is issued once.

    Attributes:
        fired: updates that went through the codec.
        skipped: updates of a head size that the codec does not have.
        failed: updates on which the codec raised.
    """

    def __init__(
        self, inner: Any, make_codec: Callable[[int], Any], name: str, *, strict: bool = True
    ) -> None:
        super().__init__(inner)
        self.make_codec, self.name, self.strict = make_codec, name, strict
        self.fired = self.skipped = self.failed = 0
        self.last_error = ""
        self.codecs: dict[int, Any] = {}

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append keys and values after a round trip through the codec; return the inner cache's result."""
        pair: tuple[mx.array, mx.array] = self.inner.update_and_fetch(*self.pack(keys, values))
        return pair

    def read(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Return stored keys and values for attention, unchanged."""
        return keys, values

    def pack(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Return keys and values as the inner cache stores them: after the round trip."""
        try:
            codecs = [self._codec(x.shape[-1]) for x in (keys, values)]
        except EngineError as error:
            self._note("skipped", error)
            return keys, values
        try:
            back = tuple(codec.roundtrip(x) for codec, x in zip(codecs, (keys, values), strict=True))
        except Exception as error:  # noqa: BLE001 - counted, kept, and raised unless the caller chose otherwise
            self._note("failed", error)
            return keys, values
        self.fired += 1
        return back

    def coded(self) -> tuple[int, int, int]:
        """Return the number of encoded positions, 0 bytes (no codes are kept), and the codec's failures."""
        lost = self.failed + self.skipped
        return (0 if lost or not self.fired else self.inner.offset), 0, lost

    def _codec(self, dim: int) -> Any:
        if dim not in self.codecs:
            self.codecs[dim] = self.make_codec(dim)
        return self.codecs[dim]

    def _note(self, counter: str, error: Exception) -> None:
        setattr(self, counter, getattr(self, counter) + 1)
        self.last_error = str(error)
        if self.strict:
            raise error
        if self.skipped + self.failed == 1:
            warnings.warn(f"{self.name} left a cache uncompressed: {error}", RuntimeWarning, stacklevel=4)

    @property
    def state(self) -> tuple[Any, ...]:
        """The codec's name, the inner cache's class and state."""
        return self.name, type(self.inner).__name__, self.inner.state

    @state.setter
    def state(self, v: tuple[Any, ...]) -> None:
        name, kind, inner = v
        if "name" in self.__dict__ and name != self.name:
            raise BadInput(f"saved with codec {name!r}, this cache has {self.name!r}")
        KakeyaLatticeMLXCache.__init__(
            self, getattr(lm_cache, kind).from_state(inner), codec_maker(name), name
        )

    @classmethod
    def from_state(cls, state: tuple[Any, ...]) -> "KakeyaLatticeMLXCache":
        """Return a cache from a saved ``state``."""
        cache = cls.__new__(cls)
        cache.state = state
        return cache


def codec_maker(name: str) -> Callable[[int], Any]:
    """Return a function from a head size to the codec of a name such as ``e8@q38``, ``d4@q10`` or ``e8v@4.25``."""
    spec = parse(name)
    return lambda dim: make_codec(spec, dim)


def make_kakeya_caches(
    model: Any, variant: str = "e8", q_range: int = 38, boundary: int = 0, *, strict: bool = True
) -> list[Cache]:
    """Return the model's caches; caches of keys and values use the published codec, ``e8`` or ``d4``.

    ``q_range`` is half the side of the codec's cube, ``boundary`` how many of the first and the last key-value layers
    are left as they are; for ``strict`` see ``KakeyaLatticeMLXCache``.
    """
    name = f"{variant}@q{q_range}"
    make_codec = codec_maker(name)
    return wrap_caches(
        model, boundary, lambda inner, _: KakeyaLatticeMLXCache(inner, make_codec, name, strict=strict)
    )
