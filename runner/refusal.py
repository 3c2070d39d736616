"""How a decision against a request is carried to its answer."""

from __future__ import annotations

from bridge.manifest import Request


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """A request that will not be run: a word for programs, a sentence for the requester."""

    def __init__(self, code: str, message: str, request: Request | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.request = request


class Held(Refusal):
    """A request that is not run now, and is not refused either: the host's operator may still approve it."""
