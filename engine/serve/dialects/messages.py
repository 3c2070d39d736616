"""``POST /v1/messages``: Anthropic's API, translated to a chat request and back."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from pydantic import Field

from engine.serve.dialects import chat, deltas
from engine.serve.dialects.prompts import one_turn_each, texts_of
from engine.serve.errors import ANTHROPIC, ApiError, own_names, unsupported
from engine.serve.fields import LIMITS
from engine.serve.formats import calls
from engine.serve.http.streams import event
from engine.serve.protocol import MOST_TOOLS, Body, ChatRequest, Real, Tokens, translated
from engine.serve.server import Server

SIGNATURE = ""  # of a thought: it is the model's own text, so there is nothing to verify
DIRECT = {"type": "direct"}  # the caller of a tool is the model itself
PING = event({"type": "ping"}, "ping")
BESIDE_TEXT = ("tool_result", "tool_use", "thinking", "redacted_thinking")
STOPS = {"length": "max_tokens", "tool_calls": "tool_use"}
Event = tuple[str, dict[str, Any]]
# The fields of a chat request that have other names here.
FIELDS = {"stop": "stop_sequences", "response_format": "output_config.format"}


# The first line of Claude Code's system prompt changes with every request, and is not meant for the model.
BILLING = re.compile(r"\A(x-anthropic-billing-header:[^\n]*\n*)+")


class CountRequest(Body):
    """The translated fields of ``POST /v1/messages/count_tokens``."""

    elsewhere: ClassVar[tuple[str, ...]] = (
        *LIMITS,
        "stop_sequences",
        "stream",
        "temperature",
        "top_p",
        "top_k",
    )

    model: str | None = Field(None, max_length=256)
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=4096)
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = Field(None, max_length=MOST_TOOLS)
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None  # its name before it became a part of output_config
    x_kakeya: Any = None


class MessagesRequest(CountRequest):
    """The translated fields of ``POST /v1/messages``."""

    elsewhere = ()

    max_tokens: Tokens
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: Real | None = None
    top_p: Real | None = None
    top_k: int | None = None


async def begin(server: Server, request: MessagesRequest) -> chat.Chat:
    """Queue the answer; ApiError if the request cannot be served."""
    named = {name: getattr(request, name) for name in ("max_tokens", "temperature", "top_p", "top_k")}
    body = {**_conversation(request), **named, "stop": request.stop_sequences or None}
    with own_names(FIELDS):
        return await chat.begin(server, translated(ChatRequest, request, body, FIELDS))


async def count(server: Server, request: CountRequest) -> dict[str, int]:
    """Return the size of a request's prompt in tokens; ApiError as ``begin``."""
    counted = translated(ChatRequest, request, _conversation(request), FIELDS)
    with own_names(FIELDS):
        return {"input_tokens": await chat.count(server, counted)}


def _conversation(request: CountRequest) -> dict[str, Any]:
    """Translate the fields that make the prompt."""
    turns: list[dict[str, Any]] = []
    if system := _text(request.system or "", "system", BILLING):
        turns.append({"role": "system", "content": system})
    for message in request.messages:
        turns += _turns(message)
    turns = one_turn_each(turns)
    body = {"model": request.model, "messages": turns, "x_kakeya": request.x_kakeya}
    # If the conversation ends with an assistant's turn, the answer continues it.
    body["continue_final_message"] = turns[-1]["role"] == "assistant" and "tool_calls" not in turns[-1]
    thinks = (request.thinking or {}).get("type") in ("enabled", "adaptive")
    body["reasoning_effort"] = "medium" if thinks else "none"
    body["response_format"] = chat.json_format(
        (request.output_config or {}).get("format") or request.output_format
    )
    return body | {
        "tools": [_tool(tool) for tool in request.tools or ()],
        "tool_choice": _choice(request.tool_choice),
        "parallel_tool_calls": not (request.tool_choice or {}).get("disable_parallel_tool_use"),
    }


def _turns(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Translate one of Anthropic's messages. Tool results become separate chat messages."""
    role, content = message.get("role"), message.get("content")
    if role in ("system", "developer"):
        return [{"role": "system", "content": _text(content, "messages", BILLING)}]
    if role not in ("user", "assistant"):
        refusal = "A message's role has to be user or assistant."
        raise ApiError(400, refusal, param="messages", code="invalid_value")
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        return [{"role": role, "content": _text(content, "messages")}]

    def of(*kinds: str) -> list[dict[str, Any]]:
        return [block for block in content if block.get("type") in kinds]

    results, used = of("tool_result"), of("tool_use")
    parts = [block for block in content if block.get("type") not in BESIDE_TEXT]
    turn: dict[str, Any] = {"role": role, "content": _text(parts, "messages")}
    if thought := "".join(str(block.get("thinking") or "") for block in of("thinking")):
        turn["reasoning_content"] = thought
    if used:
        turn["tool_calls"] = [_call(block) for block in used]
    turns = [turn] if parts or used or not results else []
    return [*map(_result, results), *turns]


def _call(block: dict[str, Any]) -> dict[str, Any]:
    function = {"name": block.get("name"), "arguments": json.dumps(block.get("input") or {})}
    return {"id": block.get("id"), "type": "function", "function": function}


def _result(block: dict[str, Any]) -> dict[str, Any]:
    text = _text(block.get("content") or "", "messages")
    failed = {"is_error": True} if block.get("is_error") is True else {}
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text, **failed}


def _text(content: Any, param: str, without: re.Pattern[str] | None = None) -> str:
    texts = texts_of(content, param, ("text",))
    return "".join(without.sub("", text) if without else text for text in texts)


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    if (tool.get("type") or "custom") != "custom":
        raise unsupported(f"tools of type {str(tool['type'])[:64]!r}", "tools")
    function = {"name": tool.get("name"), "description": tool.get("description")}
    return {"type": "function", "function": {**function, "parameters": tool.get("input_schema")}}


def _choice(choice: dict[str, Any] | None) -> Any:
    kind = (choice or {}).get("type", "auto")
    if kind == "tool":
        return {"type": "function", "function": {"name": (choice or {}).get("name")}}
    return {"any": "required"}.get(kind, kind) if isinstance(kind, str) else "unknown"


async def whole(begun: chat.Chat) -> dict[str, Any]:
    """Return the answer in one object."""
    answer, blocks = dict[str, Any](), Blocks()
    async for kind, fields in _events(begun, blocks):
        answer |= fields.get("message", {})
        if kind == "message_delta":
            answer |= {**fields.pop("delta"), **fields}
    return {**answer, "content": blocks.content}


async def streamed(begun: chat.Chat) -> AsyncIterator[bytes]:
    """Yield the answer's events."""
    async for kind, fields in _events(begun, Blocks()):
        yield event({"type": kind, **fields}, kind)


async def _events(begun: chat.Chat, blocks: "Blocks") -> AsyncIterator[Event]:
    """Yield the events with their names, as they fill the blocks."""
    prompt, tokens = begun.pending.prompt_tokens, 0
    message: dict[str, Any] = {"id": deltas.new_id("msg"), "type": "message", "role": "assistant"}
    message |= {"model": begun.pending.model, "container": None, "content": []}
    message |= {"stop_reason": None, "stop_sequence": None, "stop_details": None}
    yield "message_start", {"message": {**message, "usage": _usage(deltas.usage(prompt, 0, 0))}}
    async for kind, value, piece in deltas.deltas(begun.pending, begun.new_parser()):
        tokens += piece.tokens
        for each in blocks.end() if kind == "end" else blocks.add(kind, value):
            yield each
        if kind == "end":
            used = _usage(deltas.usage(prompt, tokens, piece.report["cached_tokens"]))
            delta = _end(value, piece.report)
            yield "message_delta", {"delta": delta, "usage": used, "x_kakeya": piece.report}
    yield "message_stop", {}


class Blocks:
    """The blocks of an answer, its ``content``. Only the last one can be open."""

    def __init__(self) -> None:
        self.content: list[dict[str, Any]] = []
        self._kind, self._arguments = "", ""  # of the open block; no kind if none is open

    def add(self, kind: str, value: Any) -> list[Event]:
        """Return the events of a delta from ``engine.serve.dialects.deltas.deltas``."""
        events = []
        if kind == "call" or (kind in ("text", "thinking") and kind != self._kind):
            events = self._close()
            self._kind, self._arguments = kind, ""
            more: dict[str, Any] = {"signature": SIGNATURE} if kind == "thinking" else {"citations": []}
            block: dict[str, Any] = {"type": kind, kind: "", **more}
            if kind == "call":
                block = {"type": "tool_use", **value, "input": {}, "caller": DIRECT}
            self.content.append(block)
            events.append(self._event("start", content_block=dict(block)))
        if kind in ("text", "thinking"):
            self.content[-1][kind] += value
            events.append(self._event("delta", delta={"type": f"{kind}_delta", kind: value}))
        elif kind == "arguments":
            self._arguments += value
            events.append(self._event("delta", delta={"type": "input_json_delta", "partial_json": value}))
        return events

    def end(self) -> list[Event]:
        """Return the events at the answer's end. Clients read a first block, so an empty answer has one."""
        return [*([] if self.content else self.add("text", "")), *self._close()]

    def _close(self) -> list[Event]:
        """Return the events that end the open block, if there is one."""
        kind, self._kind = self._kind, ""
        if kind == "call":
            self.content[-1]["input"] = calls.as_object(self._arguments)
        stop = [self._event("stop")] if kind else []
        if kind == "thinking":  # clients send a thought back only if its signature came
            signature = {"type": "signature_delta", "signature": SIGNATURE}
            stop.insert(0, self._event("delta", delta=signature))
        return stop

    def _event(self, name: str, **fields: Any) -> Event:
        return f"content_block_{name}", {"index": len(self.content) - 1, **fields}


def failed(error: ApiError) -> bytes:
    """Return the event that ends a stream with an error."""
    return event(error.body(ANTHROPIC), "error")


def _end(reason: str, report: dict[str, Any]) -> dict[str, Any]:
    stop = (reason == "stop" and report.get("stop")) or None
    end = "stop_sequence" if stop else STOPS.get(reason, "end_turn")
    return {"stop_reason": end, "stop_sequence": stop, "stop_details": None}


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"] - cached,
        "output_tokens": usage["completion_tokens"],
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "cache_creation": None,
        "output_tokens_details": None,
        "server_tool_use": None,
        "service_tier": "standard",
        "inference_geo": None,
    }
