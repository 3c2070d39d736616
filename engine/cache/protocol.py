"""The protocol of all caches, mlx-lm's and ours: what the engine asks of a cache of an unknown class."""

from typing import Any, Protocol

from engine.mx import mx


class Attended(Protocol):
    """The interface that a layer's attention needs of its cache."""

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
        """Append keys and values, and return all keys and values for attention."""


class Cache(Attended, Protocol):
    """A layer's keys and values, or whatever else it carries from token to token."""

    @property
    def state(self) -> Any:
        """The arrays that are held, in an order of the class's own."""

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that are held."""

    def empty(self) -> bool:
        """Return whether nothing has been stored yet."""
