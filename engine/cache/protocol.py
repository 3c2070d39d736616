"""The protocol of all caches, mlx-lm's and ours: what the engine requires of a cache of unknown class."""

from typing import Any, Protocol

from engine.mx import mx


class Attended(Protocol):
    """The methods of a cache that a layer's attention calls."""

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
        """Append keys and values, and return all keys and values for attention."""


class Cache(Attended, Protocol):
    """A layer's keys and values, or other state that it carries from token to token."""

    @property
    def state(self) -> Any:
        """The stored arrays, in an order that the class defines."""

    @property
    def nbytes(self) -> int:
        """Bytes of the stored arrays."""

    def empty(self) -> bool:
        """Return whether nothing has been stored yet."""
