"""Who may ask: the API key, the names that this server goes by, and the pages that may call it.

A page in a browser on the same machine can reach loopback too. Without a key, a request has to name loopback as its
host (or a strange name that now resolves to this machine would do), and may come from no other web origin.
"""

import hmac
import ipaddress
import logging
import secrets
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from engine.serve.errors import ApiError, bug
from engine.serve.settings import Settings

log = logging.getLogger("engine.serve")
OPEN = ("/health", "/", "/page.js", "/page.css")  # what needs no key


class Guard:
    """ASGI middleware that refuses what may not ask, and turns a bug into an answer.

    Args:
        app: what is guarded.
        settings: the server's.
    """

    def __init__(self, app: Any, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or answer it with a refusal."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(headers, scope["path"])
        if refusal is not None:
            response = JSONResponse(refusal.body(), refusal.status, refusal.headers)
            await response(scope, receive, send)
            return
        started = False

        async def watched(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception:  # the connection and all others go on
            error_id = f"err-{secrets.token_hex(6)}"
            log.exception("%s", error_id)
            if not started:
                await JSONResponse(bug(error_id).body(), 500)(scope, receive, send)

    def _refusal(self, headers: Headers, path: str) -> ApiError | None:
        origin = headers.get("origin")
        own = origin is None or origin in self._settings.origins or _netloc(origin) == headers.get("host")
        if not own:
            said = "Pages of this origin may not call the server. Allow it with --allow-origin."
            return ApiError(403, said, code="origin_not_allowed")
        if self._settings.api_key is None:
            if not is_loopback(_hostname(headers.get("host", ""))):
                return ApiError(403, "The Host header names another machine.", code="host_not_allowed")
            return None
        if path in OPEN:
            return None
        return (
            None
            if self._shown(headers)
            else ApiError(
                401,
                "The API key is missing or wrong. Send it as: Authorization: Bearer KEY.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        )

    def _shown(self, headers: Headers) -> bool:
        scheme, _, found = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not found:
            found = headers.get("x-api-key", "")
        key = self._settings.api_key or ""
        return hmac.compare_digest(found.strip().encode("utf-8", "replace"), key.encode())


def is_loopback(host: str) -> bool:
    """Say whether a host's name or address is this machine's own."""
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _netloc(url: str) -> str | None:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return None


def _hostname(netloc: str) -> str:
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""
