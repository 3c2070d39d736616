"""The routes that clients speak: OpenAI's chat, completions and responses, and Anthropic's messages."""

from collections.abc import AsyncIterator, Coroutine
from typing import Any, Protocol

from engine.serve.errors import ApiError
from engine.serve.server import Server


class Dialect(Protocol):
    """A route's module, with its own types of requests and pending answers in place of ``Any``."""

    def begin(self, server: Server, request: Any, /) -> Coroutine[Any, Any, Any]:
        """Queue the answers to a request; ApiError if it cannot be served."""

    def whole(self, begun: Any, /) -> Coroutine[Any, Any, dict[str, Any]]:
        """Return the answer in one object."""

    def streamed(self, begun: Any, /) -> AsyncIterator[bytes]:
        """Yield the answer's events."""

    def failed(self, error: ApiError, /) -> bytes:
        """Return the event that ends a stream with an error."""
