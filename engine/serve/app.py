"""The routes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from bridge.common import host
from engine.serve import chat, completions, listing, messages, responses, webpage
from engine.serve.body import read_body
from engine.serve.errors import ApiError, late
from engine.serve.guard import Guard
from engine.serve.messages import MessagesRequest
from engine.serve.protocol import ChatRequest, CompletionRequest, Loose, parse
from engine.serve.responses import ResponsesRequest
from engine.serve.server import OVERDUE, Asked, Server
from engine.serve.streams import EventStream, attended

REF = "#/components/schemas/{model}"
AT_ONCE = 0.5  # seconds in which a stream may still fail with its own HTTP status


def make_app(server: Server) -> FastAPI:
    """Return the ASGI application of a server."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        server.engine.start()
        yield
        server.engine.stop()

    app = FastAPI(
        title="kakeya-engine serve",
        version=host.version("kakeya-bridge") or "0",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(Guard, settings=server.settings)
    if server.settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(server.settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Api-Key"],
        )
    _on_errors(app)
    _routes(app, server)
    _figures(app, server)
    _documented(app)
    return app


def _routes(app: FastAPI, server: Server) -> None:
    _dialect(app, server, "chat_completions", "/v1/chat/completions", ChatRequest, chat)
    _dialect(app, server, "text_completions", "/v1/completions", CompletionRequest, completions)
    _dialect(app, server, "anthropic_messages", "/v1/messages", MessagesRequest, messages)
    _dialect(app, server, "openai_responses", "/v1/responses", ResponsesRequest, responses)


def _dialect(app: FastAPI, server: Server, name: str, path: str, kind: type[Loose], made: Any) -> None:
    """Handle one API route, whose module has ``begin``, ``whole`` and ``streamed``."""

    @app.post(path, name=name, openapi_extra=_takes(kind))
    async def answer(request: Request) -> Response:
        found = parse(kind, await read_body(request, server.settings))
        try:
            async with asyncio.timeout(server.settings.request_seconds + OVERDUE):
                begun = await made.begin(server, found)
        except TimeoutError as error:
            raise late() from error
        return await _answer(server, request, begun.asked, found, made, begun)


def _figures(app: FastAPI, server: Server) -> None:
    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return listing.models(server)

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return listing.model(server, name)

    @app.get("/health")
    async def health(response: Response) -> dict[str, Any]:
        found = listing.health(server)
        response.status_code = 200 if found["reason"] is None else 503
        return found

    @app.get("/v1/kakeya/stats")
    async def stats() -> dict[str, Any]:
        return listing.stats(server)

    @app.get("/", include_in_schema=False)
    @app.get("/page.js", include_in_schema=False)
    @app.get("/page.css", include_in_schema=False)
    @app.get("/icon.svg", include_in_schema=False)
    async def page(request: Request) -> Response:
        return webpage.answer(request.url.path)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(server.metrics.text(), media_type=CONTENT_TYPE_LATEST)


async def _answer(
    server: Server, request: Request, asked: Asked, found: Any, made: Any, begun: Any
) -> Response:
    """Answer as one object or as a stream. An early failure has its HTTP status in both cases."""
    if not found.stream:
        async with attended(request, asked):
            return JSONResponse(await made.whole(begun))
    await asked.settled(AT_ONCE)
    return EventStream(made.streamed(begun), asked, server.settings.write_seconds)


def _takes(kind: type[Loose]) -> dict[str, Any]:
    """Return the OpenAPI description of a body that this server parses itself."""
    schema = kind.model_json_schema(by_alias=True, ref_template=REF)
    schema.pop("$defs", None)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _documented(app: FastAPI) -> None:
    """Add the schemas of the bodies to the OpenAPI document."""
    document = app.openapi()
    held = document.setdefault("components", {}).setdefault("schemas", {})
    for kind in (ChatRequest, CompletionRequest, MessagesRequest, ResponsesRequest):
        held |= kind.model_json_schema(by_alias=True, ref_template=REF).get("$defs", {})


def _on_errors(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def refused(request: Request, error: ApiError) -> JSONResponse:
        theirs = request.url.path == "/v1/messages"
        return JSONResponse(
            messages.error_body(error) if theirs else error.body(), error.status, error.headers
        )

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> JSONResponse:
        path = request.url.path[:100]
        said = {404: f"There is no {path} here.", 405: f"{path} takes another method."}
        made = ApiError(error.status_code, said.get(error.status_code, str(error.detail)), code="no_route")
        return JSONResponse(made.body(), made.status, dict(error.headers or {}))
