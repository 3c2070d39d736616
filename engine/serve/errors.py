"""Errors as HTTP answers, in the form of OpenAI's error object."""

from typing import Any

from starlette.responses import JSONResponse

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}
ANTHROPIC = "/v1/messages"


class ApiError(Exception):
    """A refused request.

    Args:
        status: the HTTP status.
        message: what is wrong and what to do about it.
        param: the field it is about.
        code: identifies the error for programs.
        headers: further headers of the answer.
    """

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
            kind = "api_error" if self.kind == "server_error" else self.kind
            return {"type": "error", "error": {"type": kind, "message": self.message}, "request_id": None}
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}

    def answer(self, path: str) -> JSONResponse:
        """Return the answer to a request for a path."""
        return JSONResponse(self.body(path), self.status, self.headers)


def unsupported(name: str, param: str | None = None) -> ApiError:
    """Return the error for a feature that this server does not have. Clients would repeat a request after a 501."""
    return ApiError(
        400,
        f"This server does not support {name}. Leave it out of the request.",
        param=param or name,
        code="unsupported",
    )


def bug(error_id: str) -> ApiError:
    """Return the error for a request that hit a bug."""
    return ApiError(
        500,
        f"The server failed on this request. Its log has the details under {error_id}.",
        code=error_id,
    )


def gone() -> ApiError:
    """Return the error for a request whose client has disconnected."""
    return ApiError(499, "The client has gone.", code="cancelled")


def late() -> ApiError:
    """Return the error for a request that exceeds the time limit."""
    message = "The request took longer than this server allows."
    # Clients would send it three times, each time without success.
    return ApiError(408, message, code="timeout", headers={"X-Should-Retry": "false"})


def failed() -> ApiError:
    """Return the error for a request that the server does not finish because its engine has failed."""
    return ApiError(
        503, "The server's engine has failed, and the server ends. Try again later.", code="engine_failed"
    )


def closing() -> ApiError:
    """Return the error for a request that the server does not finish because it ends."""
    return ApiError(503, "The server is shutting down. Try again later.", code="shutting_down")
