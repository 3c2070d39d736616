"""The base class of proxies: they wrap a cache and replace some of its methods."""

from typing import Any, ClassVar


class CacheProxy:
    """A proxy of a cache: all attributes except its own are read from and written to the inner cache.

    mlx-lm and its models look for methods and attributes of a cache by name, and some models set them. So a proxy
    need not know the class of its inner cache, and attributes that a later mlx-lm adds pass through.

    A subclass defines the methods that it changes and names the attributes that it keeps::

        class Counting(CacheProxy, own=("count",)):
            def __init__(self, inner: Any) -> None:
                super().__init__(inner)
                self.count = 0

    Properties of a subclass are its own too, and so are dunder names: copying and pickling look these up on an
    object that has no ``inner`` yet.

    Attributes:
        inner: the cache behind this one.
    """

    _own: ClassVar[frozenset[str]] = frozenset({"inner"})

    def __init_subclass__(cls, *, own: tuple[str, ...] = (), **more: Any) -> None:
        super().__init_subclass__(**more)
        cls._own |= frozenset(own)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name in self._own or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._own or isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        else:
            setattr(self.inner, name, value)
