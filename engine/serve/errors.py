"""Errors as HTTP answers, in the form of OpenAI's error object."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from starlette.responses import JSONResponse

KINDS = {
    **dict.fromkeys((400, 405, 413, 415, 422), "invalid_request_error"),
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
}
ANTHROPIC = "/v1/messages"
ANTHROPIC_KINDS = {413: "request_too_large"}


class ApiError(Exception):
    """A refused request: HTTP status, message, the field that is wrong, and a code for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = headers or {}

    @property
    def kind(self) -> str:
        """OpenAI's ``type`` of the error."""
        return KINDS.get(self.status, "server_error")

    def body(self, path: str = "") -> dict[str, Any]:
        """Return the answer's JSON, in the form of the API that a path belongs to."""
        if path == ANTHROPIC or path.startswith(f"{ANTHROPIC}/"):
            kind = ANTHROPIC_KINDS.get(self.status, "api_error" if self.kind == "server_error" else self.kind)
            return {"type": "error", "error": {"type": kind, "message": self.message}, "request_id": None}
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}

    def answer(self, path: str) -> JSONResponse:
        """Return the answer to a request for a path."""
        return JSONResponse(self.body(path), self.status, self.headers)


@contextmanager
def own_names(fields: Mapping[str, str]) -> Iterator[None]:
    """Let an error about a chat request name the field that the client sent, from which it was translated."""
    try:
        yield
    except ApiError as error:
        name = (error.param or "").split(".")[0]
        if own := fields.get(name):
            error.param, error.message = own, re.sub(rf"\b{name}\b", own, error.message, count=1)
        raise


def unsupported(name: str, param: str | None = None) -> ApiError:
    """Return the error for a feature that this server does not have. Clients would repeat a request after a 501."""
    message = f"This server does not support {name}. Leave it out of the request."
    return ApiError(400, message, param=param or name, code="unsupported")


def too_long(size: str, context: int) -> ApiError:
    """Return the error for a text that the model's context cannot hold.

    Agents shorten the conversation, instead of sending it again, if the message has Anthropic's "prompt is too long" or
    OpenAI's "This model's maximum context length is". Anthropic's error format has no code for that.
    """
    limit = f"This model's maximum context length is {context} tokens, with the answer."
    message = f"The prompt is too long: {size}. {limit}"
    return ApiError(400, message, param="messages", code="context_length_exceeded")


def bug(error_id: str) -> ApiError:
    """Return the error for a request that hit a bug."""
    message = f"The server failed on this request. Its log has the details under {error_id}."
    return ApiError(500, message, code=error_id)


# The client has disconnected.
gone = partial(ApiError, 499, "The client has gone.", code="cancelled")
# The time limit. Clients would send the request three times, each time without success.
_LATE = "The request took longer than this server allows."
late = partial(ApiError, 408, _LATE, code="timeout", headers={"X-Should-Retry": "false"})
# The server does not finish a request because its engine has failed, or because it ends.
_FAILED = "The server's engine has failed, and the server ends. Try again later."
failed = partial(ApiError, 503, _FAILED, code="engine_failed")
closing = partial(ApiError, 503, "The server is shutting down. Try again later.", code="shutting_down")
