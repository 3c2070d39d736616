"""The MCP server: receives tool calls and returns results or errors. Standard output is only for the protocol."""

import importlib
import json
import traceback
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import Any, Self

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server import streamable_http
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from bridge.common.cli.output import say
from bridge.common.validation import describe, near
from bridge.errors import UsageError, as_kakeya_error
from bridge.mcp.bounds import error_fields, text_of, to_dict
from bridge.mcp.models import Answer, Arguments
from bridge.mcp.tools import INSTRUCTIONS, TOOLS, Tool
from bridge.system import signals, spawn

Context = ServerRequestContext[Any, Any]

# How long calls may go on once the agent has left, so that a push is not cut off.
_LAST_CALLS_S = 5.0
# The maximum number of open sessions over HTTP, and the idle time after which one is closed: clients may leave without
# notice.
MOST_SESSIONS = 64
IDLE_S = 600.0
# Extra time of a wait, for the last fetch and for verifying.
_VERIFY_S = 5.0


def make_server(repo: str, remote: str | None, public_key: str | None = None) -> Server[Any]:
    """Return the server for a repository and one of its remotes; None: the buses that its settings list."""

    async def list_tools(_context: Context, _params: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool.to_mcp(name) for name, tool in TOOLS.items()])

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            remark = near(params.name, TOOLS)
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name[:100]!r}{remark}")
        try:
            args = read_arguments(tool, params.name, params.arguments or {})
            return _result(await _call(tool, args, context))
        except Exception as error:  # noqa: BLE001 - the agent gets an error for a bug, and the server goes on
            return _failed(error, may_run_again=tool.call == "run" and not _has_key(params.arguments or {}))

    async def _call(tool: Tool, args: Arguments, context: Context) -> Answer:
        # The first call imports the client, so that the server starts in less than a second.
        bounded = await anyio.to_thread.run_sync(partial(importlib.import_module, "bridge.mcp.wait"))
        calls = importlib.import_module("bridge.mcp.calls")
        bus = calls.BusClient(repo, remote, public_key)
        sees_progress = bool(context.meta and context.meta.get("progress_token") is not None)
        seconds = getattr(args, "seconds", None)
        limit_s = bounded.call_limit_s(seconds, sees_progress=sees_progress)

        def work(progress: object) -> Any:
            if tool.call == "wait":
                return bounded.wait(bus, args, limit_s, progress)
            return getattr(calls, tool.call)(bus, args)

        async def tell(elapsed: float, message: str) -> None:
            await context.session.report_progress(elapsed, seconds, message)

        answer: Answer = await bounded.call(work, limit_s if seconds is None else limit_s + _VERIFY_S, tell)
        return answer

    return Server(
        "kakeya-bridge", version=version("kakeya-bridge"), title="kakeya bridge", instructions=INSTRUCTIONS,
        on_list_tools=list_tools, on_call_tool=call_tool,
    )  # fmt: skip


def read_arguments(tool: Tool, name: str, arguments: dict[str, Any]) -> Arguments:
    """Return a call's validated arguments; UsageError if they do not fit the tool."""
    # Hosts with strict schemas send null for what they leave out.
    named = {name: value for name, value in arguments.items() if value is not None}
    try:
        return tool.takes.model_validate(named)
    except ValidationError as error:
        message, _ = describe(error, tool.takes, named)
        known = ", ".join(tool.takes.model_fields) or "none"
        raise UsageError(f"{name}: {message}", fix=f"Arguments: {known}.", code="usage") from error


def _result(answer: Answer) -> types.CallToolResult:
    content = to_dict(answer)
    return types.CallToolResult(content=_as_text(content), structured_content=content)


def _has_key(arguments: dict[str, Any]) -> bool:
    return bool(arguments.get("idempotency_key"))


def _failed(error: Exception, *, may_run_again: bool) -> types.CallToolResult:
    """Return an error as the text that the command line prints with --json."""
    failure = as_kakeya_error(error)
    # A call that took too long may have sent the request before it ended.
    failure.sends_again |= may_run_again and failure.code == "timeout"
    if failure.code == "bug":
        for line in "".join(traceback.format_exception(error)).splitlines():
            say(line)
    # Clients check structured content against the tool's output schema, which describes no errors.
    return types.CallToolResult(content=_as_text(error_fields(failure)), is_error=True)


def _as_text(value: object) -> list[types.ContentBlock]:
    return [types.TextContent(type="text", text=text_of(value))]


class _Answering:
    """The messages of a client. A line that is no message is answered too, because its sender may wait for that."""

    def __init__(self, read: Any, write: Any) -> None:
        self._read, self._write = read, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._read, name)

    async def __aenter__(self) -> Self:
        await self._read.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        ended: bool | None = await self._read.__aexit__(*error)
        return ended

    def __aiter__(self) -> "_Answering":
        return self

    async def __anext__(self) -> Any:
        while isinstance(item := await self._read.__anext__(), Exception):
            if (refusal := _refusal(item)) is not None:
                await self._write.send(SessionMessage(refusal))
        return item


def _refusal(error: Exception) -> types.JSONRPCError | None:
    """Return the error for a line that is no message, with its request's id if it has one; None for a blank line."""
    faults = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    if not any(str(fault["input"]).strip() for fault in faults):
        return None
    ids = [each["id"] for each in map(_as_object, (fault["input"] for fault in faults)) if "id" in each]
    request_id = next((each for each in ids if isinstance(each, str | int)), None)
    is_json = not any(fault["type"] == "json_invalid" for fault in faults)
    code = types.INVALID_REQUEST if is_json else types.PARSE_ERROR
    reason = "not a JSON-RPC message" if is_json else "not JSON in Unicode"
    data = types.ErrorData(code=code, message=f"the line is {reason}")
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=data)


def _as_object(value: object) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        value = json.loads(value) if isinstance(value, str) else value
    return value if isinstance(value, dict) else {}


def serve_stdio(server: Server[Any]) -> None:
    """Serve one client over standard input and output, until it closes them."""

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(_Answering(read, write), write, server.create_initialization_options())

    # The thread that reads standard input cannot be interrupted.
    signals.end_on_interrupt()
    try:
        anyio.run(serve)
    except* BrokenPipeError:
        say("the agent disconnected before it had its answer")
    finally:
        spawn.end_children(_LAST_CALLS_S)


def _is_no_disconnection(record: Any) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], ClientDisconnect))


def serve_http(server: Server[Any], port: int) -> None:
    """Serve until interrupted. Port 0 selects a free port. The address is printed on standard error.

    A web page could reach loopback through its own host name (DNS rebinding), so ``Host`` and ``Origin`` must be this
    server's. Any program on this machine can connect, so other users of the machine can request jobs in your name.
    """
    import uvicorn  # noqa: PLC0415 - most agents use standard input and output, and wait for the start

    from bridge.common import listening  # noqa: PLC0415 - likewise

    listener = listening.listen_here(port, "--http")
    port = listener.getsockname()[1]
    names = listening.names(port)
    origins = [f"http://{name}" for name in names]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True, allowed_hosts=names, allowed_origins=origins
    )
    app = server.streamable_http_app(
        transport_security=security, max_sessions=MOST_SESSIONS, session_idle_timeout=IDLE_S
    )
    # The SDK would log a traceback for each client that leaves in the middle of a request.
    streamable_http.logger.addFilter(_is_no_disconnection)
    say(f"serving MCP at http://{listening.LOOPBACK}:{port}/mcp")
    try:
        uvicorn.Server(listening.configure(app)).run(sockets=[listener])
    finally:
        spawn.end_children()
