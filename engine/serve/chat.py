"""``POST /v1/chat/completions``: from messages to an answer, whole or streamed."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

from engine.serve import grammar
from engine.serve.errors import ApiError, unsupported
from engine.serve.job import Options, Piece
from engine.serve.models import Resident
from engine.serve.parts import Delta, Parts
from engine.serve.prompts import render
from engine.serve.protocol import ChatRequest
from engine.serve.server import Asked, Server
from engine.serve.streams import DONE, event

GENERIC_CALL = ("<tool_call>", "</tool_call>")
REFUSED = ("audio", "web_search_options", "functions", "function_call")


@dataclass
class Chat:
    """A chat request on its way.

    Attributes:
        request: as it came.
        resident: the model.
        asked: its answers.
        forced: whether the answer is one call of a tool.
        thinks: whether the prompt has begun a thought.
    """

    request: ChatRequest
    resident: Resident
    asked: Asked
    forced: bool
    thinks: bool

    def parts(self) -> Parts:
        """Return what tells one answer's text apart."""
        tokenizer = self.resident.pair.tokenizer
        start, end, parser = tokenizer.think_start, tokenizer.think_end, tokenizer.tool_parser
        thinking = (start, end) if start is not None and end is not None else None
        calling: tuple[str, str] | None = None
        parse: Callable[[str], Any] = json.loads
        if self.request.tools and self.request.tool_choice != "none" and not self.forced:
            calling = GENERIC_CALL
            if tokenizer.tool_call_start is not None and parser is not None:
                calling = (tokenizer.tool_call_start, tokenizer.tool_call_end or "\n")
                parse = lambda text: parser(text, None)  # noqa: E731
        return Parts(
            thinking=thinking,
            open_thought=self.thinks,
            calling=calling,
            parse_call=parse,
            only_call=self.forced,
        )


async def begin(server: Server, request: ChatRequest) -> Chat:
    """Queue the answers to a request; ApiError if it cannot be served."""
    for name in REFUSED:
        if (request.model_extra or {}).get(name):
            raise unsupported(name)
    if request.top_logprobs and not request.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true.", param="top_logprobs", code="invalid_value")
    chosen = server.choose(request)
    resident = await server.resident(chosen)
    tools, forced = _tools(request)

    def prepare() -> tuple[list[int], str]:
        text = render(resident, request.messages, tools, request.chat_template_kwargs)
        return resident.encode(text), text

    ids, text = await asyncio.to_thread(prepare)
    if not ids:
        raise ApiError(400, "The messages make an empty prompt.", param="messages", code="invalid_value")
    most = request.max_completion_tokens or request.max_tokens
    options = server.options(request, chosen, resident, ids, most)
    options = await asyncio.to_thread(_constrained, request, options, resident, tools if forced else [])
    asked = server.ask(chosen, [ids], options, request.n or 1)
    start = resident.pair.tokenizer.think_start
    thinks = start is not None and text.rstrip().endswith(start)
    return Chat(request, resident, asked, forced, thinks)


def _tools(request: ChatRequest) -> tuple[list[dict[str, Any]], bool]:
    """Return the functions to tell the model of, and whether it has to call one of them."""
    functions = []
    for tool in request.tools or []:
        if tool.type != "function" or tool.function is None:
            raise unsupported(f"tools of type {tool.type!r}", "tools")
        functions.append(tool.function.model_dump(exclude_none=True))
    choice = request.tool_choice
    if choice is None or choice == "auto":
        return functions, False
    if choice == "none":
        return [], False
    if not functions:
        raise ApiError(400, "tool_choice needs tools.", param="tool_choice", code="invalid_value")
    if choice == "required":
        return functions, True
    if isinstance(choice, dict) and isinstance(function := choice.get("function"), dict):
        named = [each for each in functions if each["name"] == function.get("name")]
        if named:
            return named, True
    raise ApiError(
        400,
        "tool_choice has to be auto, none, required or the name of one of the tools.",
        param="tool_choice",
        code="invalid_value",
    )


def _constrained(
    request: ChatRequest, options: Options, resident: Resident, tools: list[dict[str, Any]]
) -> Options:
    """Add log-probabilities and the grammar to the options; ApiError for one that cannot be enforced."""
    if request.logprobs:
        options = replace(options, logprobs=request.top_logprobs or 0)
    if tools:
        made = grammar.of_tools(tools)
        resident.grammars.check(made, "tools")
        return replace(options, grammar=made)
    return replace(options, grammar=of_format(request.response_format, resident))


def of_format(wanted: Any, resident: Resident) -> str | None:
    """Return the grammar of a ``response_format``, None for text."""
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        made = grammar.of_schema({"type": "object"})
    elif wanted.type == "json_schema":
        if wanted.json_schema is None or wanted.json_schema.schema_ is None:
            said = "response_format json_schema needs json_schema.schema."
            raise ApiError(400, said, param="response_format", code="missing")
        made = grammar.of_schema(wanted.json_schema.schema_)
    else:
        raise unsupported(f"response_format {wanted.type!r}", "response_format")
    resident.grammars.check(made, "response_format")
    return made


async def whole(chat: Chat) -> dict[str, Any]:
    """Return the answer in one object."""
    n = chat.request.n or 1
    texts = [chat.parts() for _ in range(n)]
    empty = {"role": "assistant", "content": None, "refusal": None}
    messages: list[dict[str, Any]] = [{**empty, "annotations": []} for _ in range(n)]
    choices: list[dict[str, Any]] = [{"index": i, "message": messages[i], "logprobs": None} for i in range(n)]
    tokens = cached = 0
    async for piece in chat.asked.pieces():
        choice, parts, message = choices[piece.index], texts[piece.index], messages[piece.index]
        tokens += piece.tokens
        for delta in parts.add(piece.text, last=piece.finish_reason is not None):
            _merge(message, delta)
        if piece.logprobs is not None:
            choice["logprobs"] = choice["logprobs"] or {"content": [], "refusal": None}
            choice["logprobs"]["content"] += logprobs_of(chat.resident, piece)
        if piece.finish_reason:
            choice["finish_reason"] = _finish(piece, parts)
            choice["x_kakeya"] = piece.report
            cached = max(cached, piece.report["cached_tokens"])
    for message in messages:
        if message["content"] is None and "tool_calls" not in message:
            message["content"] = ""
    return {
        "id": new_id("chatcmpl"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": chat.asked.model,
        "choices": choices,
        "usage": usage(chat.asked.prompt_tokens, tokens, cached),
        "x_kakeya": choices[0]["x_kakeya"],
    }


async def streamed(chat: Chat) -> AsyncIterator[bytes]:
    """Yield the answer's events."""
    head = {
        "id": new_id("chatcmpl"),
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": chat.asked.model,
    }
    n = chat.request.n or 1
    texts = [chat.parts() for _ in range(n)]
    tokens = cached = 0

    def chunk(index: int, delta: Delta, **more: Any) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **more}
        return event({**head, "choices": [choice]})

    for i in range(n):
        yield chunk(i, {"role": "assistant", "content": ""})
    try:
        async for piece in chat.asked.pieces():
            parts = texts[piece.index]
            tokens += piece.tokens
            deltas = parts.add(piece.text, last=piece.finish_reason is not None)
            logprobs = None
            if piece.logprobs:
                logprobs = {"content": logprobs_of(chat.resident, piece), "refusal": None}
                deltas = deltas or [{"content": ""}]
            for delta in deltas:
                yield chunk(piece.index, delta, logprobs=logprobs)
                logprobs = None
            if piece.finish_reason:
                cached = max(cached, piece.report["cached_tokens"])
                yield chunk(piece.index, {}, finish_reason=_finish(piece, parts), x_kakeya=piece.report)
    except ApiError as error:
        yield event(error.body())
        return
    if chat.request.stream_options and chat.request.stream_options.include_usage:
        yield event({**head, "choices": [], "usage": usage(chat.asked.prompt_tokens, tokens, cached)})
    yield event(DONE)


async def deltas(chat: Chat) -> AsyncIterator[tuple[str, Any, Piece]]:
    """Yield the only answer in parts: ``text``, ``thinking``, ``call``, ``arguments``, and ``end`` with its reason.

    With each comes a piece whose tokens count once: of the parts of one piece only the first has them.
    """
    parts = chat.parts()
    async for piece in chat.asked.pieces():
        counted = piece
        for delta in parts.add(piece.text, last=piece.finish_reason is not None):
            for kind, value in _told(delta):
                yield kind, value, counted
                counted = replace(piece, tokens=0)
        if piece.finish_reason:
            yield "end", _finish(piece, parts), counted
        elif counted is piece:
            yield "nothing", None, counted


def _told(delta: Delta) -> list[tuple[str, Any]]:
    if "content" in delta:
        return [("text", delta["content"])]
    if "reasoning_content" in delta:
        return [("thinking", delta["reasoning_content"])]
    found: list[tuple[str, Any]] = []
    for call in delta["tool_calls"]:
        function = call["function"]
        if "id" in call:
            found.append(("call", {"id": call["id"], "name": function["name"]}))
        if function["arguments"]:
            found.append(("arguments", function["arguments"]))
    return found


def logprobs_of(resident: Resident, piece: Piece) -> list[dict[str, Any]]:
    """Return the log-probabilities of a piece as chat answers have them."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        raw = resident.grammars.token_bytes(token)
        return {
            "token": raw.decode("utf-8", "replace"),
            "logprob": max(logprob, -9999.0),
            "bytes": list(raw),
        }

    return [
        {**entry(token, logprob), "top_logprobs": [entry(*each) for each in best]}
        for token, logprob, best in piece.logprobs or []
    ]


def usage(prompt: int, completion: int, cached: int) -> dict[str, Any]:
    """Return the ``usage`` of an answer."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def new_id(prefix: str) -> str:
    """Return an id for an answer."""
    return f"{prefix}-{secrets.token_hex(12)}"


def _finish(piece: Piece, parts: Parts) -> str:
    closed = piece.finish_reason == "stop" or piece.report.get("closed_early")
    return "tool_calls" if parts.calls and closed else str(piece.finish_reason)


def _merge(message: dict[str, Any], delta: Delta) -> None:
    for name in ("content", "reasoning_content"):
        if name in delta:
            message[name] = (message.get(name) or "") + delta[name]
    for call in delta.get("tool_calls", ()):
        calls = message.setdefault("tool_calls", [])
        if "id" in call:
            calls.append({name: call[name] for name in ("id", "type", "function")})
        else:
            calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
