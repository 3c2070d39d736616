"""Decides which requests are allowed, by API key, host name, web origin and size of the body.

A page in a browser on the same machine can reach loopback too. So without a key, a request's ``Host`` must be loopback
(otherwise any name that resolves to this machine would work), and it must not come from another web origin.
"""

import asyncio
import hmac
import ipaddress
import logging
import secrets
from typing import Any
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from engine.serve.errors import ApiError, bug, closing
from engine.serve.http import webpage
from engine.serve.settings import Settings

log = logging.getLogger("engine.serve")
OPEN = ("/health", *webpage.FILES)  # routes that need no key


class Guard:
    """ASGI middleware that refuses unauthorized requests, and turns a bug into an error answer."""

    def __init__(self, app: Any, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(headers, scope["path"])
        if refusal is not None:
            await refusal.answer(scope["path"])(scope, receive, send)
            return
        started = False

        async def watched(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:  # a request is cancelled only when the server ends
            if not started:
                await closing().answer(scope["path"])(scope, receive, send)
            raise
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # includes a panic in a library; this connection and all others continue
            error_id = f"err-{secrets.token_hex(6)}"
            log.exception("%s", error_id)
            if not started:
                await bug(error_id).answer(scope["path"])(scope, receive, send)

    def _refusal(self, headers: Headers, path: str) -> ApiError | None:
        origin = headers.get("origin")
        own = origin is None or origin in self._settings.origins
        if not own and _split(str(origin)).netloc != headers.get("host"):
            message = "Pages of this origin may not call the server. Allow it with --allow-origin."
            return ApiError(403, message, code="origin_not_allowed")
        if self._settings.api_key is None:
            if not is_loopback(_split(f"//{headers.get('host', '')}").hostname or ""):
                return ApiError(403, "The Host header names another machine.", code="host_not_allowed")
            return None
        if path in OPEN or self._shown(headers):
            return None
        message = "The API key is missing or wrong. Send it as: Authorization: Bearer KEY."
        return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})

    def _shown(self, headers: Headers) -> bool:
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not shown:
            shown = headers.get("x-api-key", "")
        key = self._settings.api_key or ""
        return hmac.compare_digest(shown.strip().encode("utf-8", "replace"), key.encode())


async def read_body(request: Request, settings: Settings) -> bytes:
    """Return the body; ApiError 413 if it is too large, 408 if it arrives too slowly, 415 if it is compressed."""
    if (encoding := request.headers.get("content-encoding", "identity")).lower() != "identity":
        message = f"Bodies in the encoding {encoding[:40]!r} are not read here. Send the JSON itself."
        raise ApiError(415, message, code="unsupported_encoding", headers={"Connection": "close"})
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > settings.max_body:
        raise _too_large(settings)
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_seconds):
            async for part in request.stream():
                body += part
                if len(body) > settings.max_body:
                    raise _too_large(settings)
    except TimeoutError as error:
        message = f"The request did not arrive within {settings.body_seconds:g} s."
        raise ApiError(408, message, code="timeout", headers={"Connection": "close"}) from error
    except ClientDisconnect as error:
        raise ApiError(400, "The connection ended before the request did.", code="disconnected") from error
    return bytes(body)


def _too_large(settings: Settings) -> ApiError:
    message = f"The request is larger than the {settings.max_body} bytes that this server takes."
    return ApiError(413, message, code="too_large", headers={"Connection": "close"})


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is loopback."""
    try:
        return host.rstrip(".").lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
