"""The routes of the server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.routing import Route

from bridge.common import host
from engine.serve import listing
from engine.serve.dialects import Dialect, chat, completions, messages, responses
from engine.serve.dialects.messages import CountRequest, MessagesRequest
from engine.serve.dialects.responses import ResponsesRequest
from engine.serve.errors import ApiError, late
from engine.serve.http import webpage
from engine.serve.http.guard import Guard, read_body
from engine.serve.http.streams import COMMENT, EventStream, unless_gone
from engine.serve.protocol import Body, ChatRequest, CompletionRequest, Sampled, parse
from engine.serve.server import OVERDUE, Server

REF = "#/components/schemas/{model}"
BEGIN_SECONDS = 5.0  # within this time, a stream's request may still be refused with its own HTTP status
AT_ONCE = 0.5  # the same for its answers


class Listing(Protocol):
    """A server's description of itself: the answers of the routes that only tell."""

    def models(self, server: Server) -> dict[str, Any]:
        """Answer ``GET /v1/models``."""

    def model(self, server: Server, name: str) -> dict[str, Any]:
        """Answer ``GET /v1/models/NAME``; ApiError 404 if there is none."""

    def health(self, server: Server) -> dict[str, Any]:
        """Answer ``GET /health``."""

    def stats(self, server: Server) -> dict[str, Any]:
        """Answer ``GET /v1/kakeya/stats``."""


def make_app(server: Server, about: Listing = listing) -> FastAPI:
    """Return the ASGI application of a server, which describes itself by ``about``."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        server.engine.start()
        yield
        server.engine.stop()

    version = host.version("kakeya-bridge") or "0"
    app = FastAPI(
        title="kakeya-engine serve", version=version, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.add_middleware(Guard, settings=server.settings)
    if server.settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(server.settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],  # clients send headers of their own, such as X-Stainless-Lang
            allow_private_network=True,
            expose_headers=["Retry-After", "X-Should-Retry"],
        )
    _on_errors(app)
    _routes(app, server)
    _figures(app, server, about)
    schemas = app.openapi().setdefault("components", {}).setdefault("schemas", {})
    for kind in (ChatRequest, CompletionRequest, MessagesRequest, CountRequest, ResponsesRequest):
        schemas |= kind.model_json_schema(by_alias=True, ref_template=REF).get("$defs", {})
    for route in app.routes:  # containers' health checks send HEAD, which HTTP wants wherever GET is
        if isinstance(route, Route) and route.methods and "GET" in route.methods:
            route.methods.add("HEAD")
    return app


def _routes(app: FastAPI, server: Server) -> None:
    _dialect(app, server, "chat_completions", "/v1/chat/completions", ChatRequest, chat)
    _dialect(app, server, "text_completions", "/v1/completions", CompletionRequest, completions)
    _dialect(app, server, "anthropic_messages", "/v1/messages", MessagesRequest, messages)
    _dialect(app, server, "openai_responses", "/v1/responses", ResponsesRequest, responses)

    @app.post("/v1/messages/count_tokens", openapi_extra=_takes(CountRequest))
    async def count_tokens(request: Request) -> dict[str, int]:
        request_body = parse(CountRequest, await read_body(request, server.settings))
        counted: dict[str, int] = await _in_time(server, messages.count(server, request_body))
        return counted


def _dialect(app: FastAPI, server: Server, name: str, path: str, kind: type[Body], dialect: Dialect) -> None:
    """Handle one API route, whose module has ``begin``, ``whole`` and ``streamed``."""

    @app.post(path, name=name, openapi_extra=_takes(kind))
    async def answer(request: Request) -> Response:
        also = server.fields if issubclass(kind, Sampled) else ()
        body: Any = parse(kind, await read_body(request, server.settings), also)
        if body.stream:
            return await _stream(request, server, dialect, body)
        return JSONResponse(await unless_gone(request, _whole(server, dialect, body)))


def _figures(app: FastAPI, server: Server, about: Listing) -> None:
    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return about.models(server)

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return about.model(server, name)

    @app.get("/health")
    async def health(response: Response) -> dict[str, Any]:
        state = about.health(server)
        response.status_code = 200 if state["reason"] is None else 503
        return state

    @app.get("/v1/kakeya/stats")
    async def stats() -> dict[str, Any]:
        return about.stats(server)

    async def page(request: Request) -> Response:
        return webpage.answer(request.url.path)

    for path in webpage.FILES:
        app.add_api_route(path, page, include_in_schema=False)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(server.metrics.text(), media_type=CONTENT_TYPE_LATEST)


async def _whole(server: Server, dialect: Dialect, body: Any) -> dict[str, Any]:
    begun = await _in_time(server, dialect.begin(server, body))
    try:
        return await dialect.whole(begun)
    finally:
        begun.pending.cancel()


async def _in_time(server: Server, begun: Awaitable[Any]) -> Any:
    """Return the beginning of a request as soon as it is there; ApiError 408 if that takes too long."""
    try:
        async with asyncio.timeout(server.settings.request_seconds + OVERDUE):
            return await begun
    except TimeoutError as error:
        raise late() from error


async def _stream(request: Request, server: Server, dialect: Dialect, body: Any) -> EventStream:
    """Answer with a stream. An early failure has its HTTP status; a model that loads for minutes delays no stream."""
    beginning = asyncio.create_task(_in_time(server, dialect.begin(server, body)))

    def cancel() -> None:
        """End the answers, or the work for which they wait."""
        if not beginning.cancel() and not beginning.cancelled() and beginning.exception() is None:
            beginning.result().pending.cancel()

    async def begun_soon() -> bool:
        try:
            return bool((await asyncio.wait({beginning}, timeout=BEGIN_SECONDS))[0])
        except asyncio.CancelledError:
            cancel()
            raise

    if await unless_gone(request, begun_soon()):
        await (await beginning).pending.settled(AT_ONCE)

    async def events(flush: Callable[[], Awaitable[None]]) -> AsyncIterator[bytes]:
        try:
            begun = await beginning
            begun.pending.waits = flush
            async for each in dialect.streamed(begun):
                yield each
        except ApiError as error:
            yield dialect.failed(error)

    ping = getattr(dialect, "PING", COMMENT)
    return EventStream(events, cancel, server.settings.write_seconds, ping)


def _takes(kind: type[Body]) -> dict[str, Any]:
    """Return the OpenAPI description of a body that this server parses itself."""
    schema = kind.model_json_schema(by_alias=True, ref_template=REF)
    schema.pop("$defs", None)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _on_errors(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def refused(request: Request, error: ApiError) -> JSONResponse:
        return error.answer(request.url.path)

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> JSONResponse:
        path = request.url.path[:100]
        reason = {404: f"There is no {path} here.", 405: f"{path} takes another method."}
        message, headers = reason.get(error.status_code, str(error.detail)), dict(error.headers or {})
        return ApiError(error.status_code, message, code="no_route", headers=headers).answer(request.url.path)
