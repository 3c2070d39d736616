"""The MCP server: receives tool calls and returns results or errors. Standard output is only for the protocol."""

from __future__ import annotations

import importlib
import traceback
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from bridge.common.validation import describe
from bridge.console import say
from bridge.errors import UsageError, as_told
from bridge.mcp.bounds import text_of, to_dict, told
from bridge.mcp.models import Answer, Arguments
from bridge.mcp.tools import INSTRUCTIONS, TOOLS, Tool
from bridge.system import ending, process

if TYPE_CHECKING:
    from bridge.mcp.calls import Place

Context = ServerRequestContext[Any, Any]

# How long calls may go on once the agent has left, so that a push is not cut off.
_LAST_CALLS_S = 5.0


def make_server(repo: str, remote: str, public_key: str | None = None) -> Server[Any]:
    """Return the server for one repository and one remote of it."""

    async def list_tools(_context: Context, _params: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool.listed(name) for name, tool in TOOLS.items()])

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name[:100]!r}")
        try:
            args = _read(tool, params.name, params.arguments or {})
            return _told(await _call(tool, args, context))
        except Exception as error:  # noqa: BLE001 - an agent is told of a bug, and the server goes on
            return _failed(error)

    async def _call(tool: Tool, args: Arguments, context: Context) -> Answer:
        place = await anyio.to_thread.run_sync(partial(_place, repo, remote, public_key))
        if tool.call == "wait":
            return await _wait(place, args, context)
        calls = importlib.import_module("bridge.mcp.calls")
        function = getattr(calls, tool.call)
        answer: Answer = await anyio.to_thread.run_sync(
            partial(function, place, args), abandon_on_cancel=True
        )
        return answer

    return Server(
        "kakeya-bridge",
        version=version("kakeya-bridge"),
        title="kakeya bridge",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _place(repo: str, remote: str, public_key: str | None) -> Place:
    """Return the repository for the calls. The first call imports the client."""
    from bridge.mcp.calls import Place  # noqa: PLC0415 - so that the server starts in less than a second

    return Place(repo, remote, public_key)


async def _wait(place: Place, args: Any, context: Context) -> Answer:
    from bridge.mcp.wait import wait  # noqa: PLC0415 - likewise

    async def tell(elapsed: float, message: str) -> None:
        await context.session.report_progress(elapsed, args.seconds, message)

    return await wait(place, args, tell)


def _read(tool: Tool, name: str, given: dict[str, Any]) -> Arguments:
    """Return a call's validated arguments.

    Raises:
        UsageError: the arguments do not fit the tool.
    """
    try:
        return tool.takes.model_validate(given)
    except ValidationError as error:
        message, _ = describe(error)
        known = ", ".join(tool.takes.model_fields) or "none"
        raise UsageError(f"{name}: {message}", fix=f"Arguments: {known}.", code="usage") from error


def _told(answer: Answer) -> types.CallToolResult:
    content = to_dict(answer)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text_of(content))], structured_content=content
    )


def _failed(error: Exception) -> types.CallToolResult:
    """Return an error in the form of the command line's --json."""
    failure = as_told(error)
    if failure.code == "bug":
        for line in "".join(traceback.format_exception(error)).splitlines():
            say(line)
    content = told(failure)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text_of(content))],
        structured_content=content,
        is_error=True,
    )


def serve_stdio(server: Server[Any]) -> None:
    """Serve one client over standard input and output, until it closes them."""

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    # The thread that reads standard input cannot be interrupted.
    ending.end_on_interrupt()
    try:
        anyio.run(serve)
    except* BrokenPipeError:
        say("the agent went away while it was being answered")
    finally:
        process.end_children(_LAST_CALLS_S)
