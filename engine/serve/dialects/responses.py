"""``POST /v1/responses``: OpenAI's newer API, translated to a chat request and back. Nothing is stored."""

import json
import time
from collections.abc import AsyncIterator
from itertools import chain
from typing import Any

from pydantic import Field

from engine.serve.dialects import chat, deltas
from engine.serve.dialects.openings import is_only_thought
from engine.serve.dialects.prompts import TEXT_KINDS, one_turn_each, texts_of
from engine.serve.errors import ApiError, own_names, unsupported
from engine.serve.http.streams import event
from engine.serve.protocol import MOST_TOOLS, Body, ChatRequest, Real, Tokens, translated
from engine.serve.server import Server

SUMMARY = "response.reasoning_summary"
LOGPROBS = "message.output_text.logprobs"
# For each kind of delta: the item's field for its part, the index of the part in events, and the events of
# text and part. A thought is sent as its own summary, because OpenAI's clients and Open Responses disagree on
# other event names.
FORMS = {
    "text": ("content", "content_index", "response.output_text", "response.content_part"),
    "thinking": ("summary", "summary_index", f"{SUMMARY}_text", f"{SUMMARY}_part"),
}
# For each kind of delta: the type of its item, and how the item's id begins.
ITEMS = {"call": ("function_call", "fc"), "text": ("message", "msg"), "thinking": ("reasoning", "rs")}
FAILED = ("failed", "incomplete")  # what the status of a function's output may say beside "completed"
THOUGHTS = (*TEXT_KINDS, "reasoning_text", "summary_text")  # kinds of parts of a thought
Spaces = dict[str, tuple[str, str]]
ECHOED = ("metadata", "reasoning", "text", "tool_choice", "tools")
# The fields of a chat request that have other names here.
FIELDS = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
}


class ResponsesRequest(Body):
    """The translated fields."""

    model: str | None = Field(None, max_length=256)
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: Tokens | None = None
    stream: bool | None = None
    temperature: Real | None = None
    top_p: Real | None = None
    tools: list[dict[str, Any]] | None = Field(None, max_length=MOST_TOOLS)
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    previous_response_id: str | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    metadata: dict[str, Any] | None = None
    x_kakeya: Any = None


async def begin(server: Server, request: ResponsesRequest) -> "Response":
    """Queue the answer; ApiError if the request cannot be served."""
    with own_names(FIELDS):
        return await _begin(server, request)


async def _begin(server: Server, request: ResponsesRequest) -> "Response":
    for name in ("previous_response_id", "background", "conversation", "prompt", "top_logprobs"):
        if getattr(request, name):
            raise unsupported(name)
    if LOGPROBS in (request.include or ()):
        raise unsupported(LOGPROBS, "include")
    for name in ECHOED:
        if _endless(getattr(request, name)):
            raise ApiError(400, f"{name} holds a number that is no JSON.", param=name, code="invalid_value")
    turns = [{"role": "system", "content": request.instructions}] if request.instructions else []
    items = [{"role": "user", "content": request.input}] if isinstance(request.input, str) else request.input
    # Consecutive thoughts, texts and calls of the model become one turn.
    turns += one_turn_each(filter(None, map(_turn, items)), roles=("assistant",))
    names = ("model", "temperature", "top_p", "parallel_tool_calls", "x_kakeya")
    named = {name: getattr(request, name) for name in names}
    body = {**named, "messages": turns, "max_tokens": request.max_output_tokens}
    body["continue_final_message"] = bool(turns) and is_only_thought(turns[-1])
    body["reasoning_effort"] = (request.reasoning or {}).get("effort") or "none"
    body["response_format"] = chat.json_format((request.text or {}).get("format"))
    spaces: Spaces = {}
    body["tools"] = [flat for tool in request.tools or () for flat in _tools(tool, spaces)]
    body["tool_choice"] = _choice(request.tool_choice)
    return Response(await chat.begin(server, translated(ChatRequest, request, body, FIELDS)), request, spaces)


def _endless(value: Any) -> bool:
    """Return whether a value holds a number that no answer can repeat: NaN, or one that is too large, such as 1e999."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return True
    return False


def _turn(item: dict[str, Any]) -> dict[str, Any] | None:
    """Translate an item to a chat turn; None if the item is empty."""
    kind = item.get("type") or "message"
    if kind == "message":
        return {"role": item.get("role"), "content": item.get("content")}
    if kind == "function_call":
        name = _spaced(item.get("namespace"), item.get("name"))
        function = {"name": name, "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        return {"role": "assistant", "tool_calls": [call]}
    if kind == "function_call_output":
        failed = item.get("status") in FAILED or bool(item.get("error")) or item.get("is_error") is True
        turn = {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
        return {**turn, "is_error": True} if failed else turn
    if kind == "reasoning":
        thoughts = (texts_of(item.get(name) or "", "input", THOUGHTS) for name in ("content", "summary"))
        text = "\n\n".join(filter(None, chain(*thoughts)))
        return {"role": "assistant", "reasoning_content": text} if text else None
    raise unsupported(f"input of type {str(kind)[:64]!r}", "input")


def _tools(tool: dict[str, Any], spaces: Spaces) -> list[dict[str, Any]]:
    """Translate a tool. The functions of a namespace get its name as a prefix, which ``spaces`` maps back."""
    if tool.get("type") == "namespace" and isinstance(inner := tool.get("tools"), list):
        functions: list[dict[str, Any]] = []
        for each in inner:
            if not isinstance(each, dict) or each.get("type") != "function":
                raise unsupported("a namespace of other tools than functions", "tools")
            name = _spaced(tool.get("name"), each.get("name"))
            spaces[name] = str(tool.get("name")), str(each.get("name"))
            functions += _tools({**each, "name": name}, spaces)
        return functions
    if tool.get("type") != "function":
        raise unsupported(f"tools of type {str(tool.get('type'))[:64]!r}", "tools")
    function = {name: tool.get(name) for name in ("name", "description", "parameters")}
    return [{"type": "function", "function": function}]


def _spaced(space: Any, name: Any) -> Any:
    """Return the name by which the model knows a namespace's function."""
    return f"{space.rstrip('_')}__{name}" if isinstance(space, str) and isinstance(name, str) else name


def _choice(choice: Any) -> Any:
    if isinstance(choice, dict) and choice.get("type") == "function":
        name = _spaced(choice.get("namespace"), choice.get("name"))
        return {"type": "function", "function": {"name": name}}
    return choice


class Response:
    """An answer in progress. ``spaces`` has namespace and name of the functions that are in a namespace."""

    def __init__(self, begun: chat.Chat, request: ResponsesRequest, spaces: Spaces) -> None:
        self.chat, self.pending, self.request, self.spaces = begun, begun.pending, request, spaces
        self.id, self.created = deltas.new_id("resp"), int(time.time())
        self.output: list[dict[str, Any]] = []

    def body(self, status: str, usage: dict[str, Any] | None = None, report: Any = None) -> dict[str, Any]:
        """Return the object that the API calls a response."""
        request = self.request
        options = self.pending.jobs[0].options
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": None,
            "incomplete_details": cut,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "model": self.pending.model,
            "output": self.output,
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None, **(request.reasoning or {})},
            "store": False,
            "background": False,
            "temperature": options.temperature,
            "top_p": options.top_p if request.top_p is None else request.top_p,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "top_logprobs": 0,
            "max_tool_calls": None,
            "service_tier": "default",
            "safety_identifier": None,
            "prompt_cache_key": None,
            "text": request.text or {"format": {"type": "text"}},
            "tool_choice": request.tool_choice or "auto",
            "tools": [{"strict": None, "description": None, **tool} for tool in request.tools or []],
            "truncation": "disabled",
            "usage": usage,
            "metadata": request.metadata or {},
            **({"x_kakeya": report} if report is not None else {}),
        }


async def whole(begun: Response) -> dict[str, Any]:
    """Return the answer in one object."""
    response: dict[str, Any] = {}
    async for _, fields in _events(begun):
        response = fields.get("response", {})
    return response


async def streamed(begun: Response) -> AsyncIterator[bytes]:
    """Yield the answer's events."""
    number = 0
    try:
        async for kind, fields in _events(begun):
            yield event({"type": kind, "sequence_number": number, **fields}, kind)
            number += 1
    except ApiError as error:
        yield failed(error, number)


def failed(error: ApiError, number: int = 0) -> bytes:
    """Return the event that ends a stream with an error."""
    about = {"code": error.code, "message": error.message, "param": error.param}
    return event({"type": "error", "sequence_number": number, **about}, "error")


async def _events(begun: Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Yield the events with their names, without sequence numbers."""
    yield "response.created", {"response": begun.body("in_progress")}
    yield "response.in_progress", {"response": begun.body("in_progress")}
    item, tokens = Item(begun), 0
    async for kind, value, piece in deltas.deltas(begun.pending, begun.chat.new_parser()):
        tokens += piece.tokens
        status = "incomplete" if value == "length" else "completed"
        for each in item.close(status) if kind == "end" else item.add(kind, value):
            yield each
        if kind == "end":
            cached = piece.report["cached_tokens"]
            thoughts = [each["summary"][0]["text"] for each in begun.output if each["type"] == "reasoning"]
            thought_tokens = await deltas.tokens_in(begun.chat.resident, thoughts)
            used = _usage(begun.pending.prompt_tokens, tokens, cached, thought_tokens)
            yield f"response.{status}", {"response": begun.body(status, used, piece.report)}


class Item:
    """The output item that is being written."""

    def __init__(self, begun: Response) -> None:
        self._output, self._spaces = begun.output, begun.spaces
        self._item: dict[str, Any] = {}  # empty if no item is open
        self._kind = ""

    def add(self, kind: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
        """Return the events of a delta from ``engine.serve.dialects.deltas.deltas``."""
        events = []
        if kind == "call" or (kind in FORMS and kind != self._kind):
            events = [*self.close("completed"), *self._open(kind, value)]
        if kind == "arguments":
            self._item["arguments"] += value
            events.append(("response.function_call_arguments.delta", {**self._at(), "delta": value}))
        elif kind in FORMS:
            field, index, name, _ = FORMS[kind]
            self._item[field][0]["text"] += value
            events.append((f"{name}.delta", {**self._at(), index: 0, "delta": value, **self._logprobs()}))
        return events

    def close(self, status: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the events that end the open item, if there is one."""
        if not self._item:
            return []
        item, at, events = self._item, self._at(), []
        item["status"] = status
        if self._kind == "call":
            event = {**at, "name": item["name"], "arguments": item["arguments"]}
            events.append(("response.function_call_arguments.done", event))
        else:
            field, index, name, part_name = FORMS[self._kind]
            part = item[field][0]
            events.append((f"{name}.done", {**at, index: 0, "text": part["text"], **self._logprobs()}))
            events.append((f"{part_name}.done", {**at, index: 0, "part": dict(part)}))
        events.append(("response.output_item.done", {"output_index": at["output_index"], "item": item}))
        self._item, self._kind = {}, ""
        return events

    def _open(self, kind: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
        self._kind = kind
        more: dict[str, Any] = {"summary": [{"type": "summary_text", "text": ""}]}
        if kind == "call":
            more = {"call_id": value["id"], "name": value["name"], "arguments": ""}
            if space := self._spaces.get(value["name"]):
                more |= {"namespace": space[0], "name": space[1]}
        elif kind == "text":
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            more = {"role": "assistant", "content": [part]}
        name, prefix = ITEMS[kind]
        self._item = {"type": name, "id": deltas.new_id(prefix), "status": "in_progress", **more}
        self._output.append(self._item)
        at, shown = self._at(), dict(self._item)
        events = [("response.output_item.added", {"output_index": at["output_index"], "item": shown})]
        if kind in FORMS:
            field, index, _, part_name = FORMS[kind]
            shown[field] = []
            events.append((f"{part_name}.added", {**at, index: 0, "part": dict(self._item[field][0])}))
        return events

    def _logprobs(self) -> dict[str, Any]:
        return {"logprobs": []} if self._kind == "text" else {}

    def _at(self) -> dict[str, Any]:
        return {"item_id": self._item["id"], "output_index": len(self._output) - 1}


def _usage(prompt: int, completion: int, cached: int, thought: int) -> dict[str, Any]:
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": prompt + completion,
    }
