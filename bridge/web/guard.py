"""Middleware that checks every request and adds the security headers to every response.

A page that the user visits can make the browser send requests to loopback, through its own host name (DNS rebinding) or
across sites. So ``Host`` must be this server's, and only navigation may come from other sites. No request changes
anything.
"""

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge.common import limits
from bridge.web.pages import POLICY

_METHODS = ("GET", "HEAD")
_MOST_TARGET = 4 * limits.BRANCH_CHARS

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Passes on allowed requests, and refuses the rest."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if [name.lower() for name in headers.getlist("host")] not in ([name] for name in self._hosts):
            return PlainTextResponse("This server answers to its own address alone.\n", 421)
        if scope["method"] not in _METHODS:
            return PlainTextResponse("Pages can only be read.\n", 405, {"Allow": ", ".join(_METHODS)})
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return PlainTextResponse("Other sites can link to these pages, and not load them.\n", 403)
        if len(scope["raw_path"]) + len(scope["query_string"]) > _MOST_TARGET:
            return PlainTextResponse("The address is too long.\n", 414)
        return None
