"""``POST /v1/chat/completions``: answers a conversation, as one object or as a stream."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from engine.serve.backend import Model, Options
from engine.serve.dialects.deltas import feed, finish, logprobs_of, merge, new_id, tokens_in, usage
from engine.serve.dialects.openings import Prompt
from engine.serve.dialects.prompts import prompt_of
from engine.serve.errors import ApiError, unsupported
from engine.serve.formats import call_forms, calls, harmony
from engine.serve.formats.output_parser import Delta, OutputParser
from engine.serve.grammars import grammar
from engine.serve.grammars.compiled import Compiled, run_in_thread
from engine.serve.http.streams import DONE, event
from engine.serve.http.streams import failed as failed  # noqa: PLC0414 - part of a dialect
from engine.serve.protocol import ChatRequest
from engine.serve.server import PendingAnswer, Server

Tools = list[dict[str, Any]]


@dataclass
class Chat:
    """A chat request in progress."""

    request: ChatRequest
    resident: Model
    pending: PendingAnswer
    new_parser: Callable[[], OutputParser]  # creates the parser that splits an answer's text into parts

    async def thought_tokens(self, parsers: Iterable[OutputParser]) -> int:
        """Return the number of tokens in the thoughts."""
        return await tokens_in(self.resident, [each.thought for each in parsers])


async def begin(server: Server, request: ChatRequest) -> Chat:
    """Queue the answers to a request; ApiError if it cannot be served."""
    if request.top_logprobs and not request.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true.", param="top_logprobs", code="invalid_value")
    chosen = server.choose(request)
    resident = await server.resident(chosen)
    tools, forced = tools_of(request)
    ids, prompt = await asyncio.to_thread(_prompt, resident, request, tools, forced=forced)
    if not ids:
        raise ApiError(400, "The messages make an empty prompt.", param="messages", code="invalid_value")
    most = request.max_completion_tokens or request.max_tokens
    options = server.options(request, chosen, resident, ids, most)
    channels = harmony.is_spoken_by(resident.tokenizer)
    continued = channels and harmony.is_open(prompt.text)
    callable_tools = tools if forced or not continued else []  # the continuation of a text is not a call
    options = await constrained(request, options, resident, callable_tools, forced=forced)
    bare = bool(tools) and options.grammar is None and await asyncio.to_thread(_writes_bare_calls, resident)
    form = _Form(request, tools, prompt, forced=forced, bare=bare, stop=options.stop)
    new_parser = partial(_parser, resident, form)
    if new_parser().state == "thought" and options.grammar is not None:
        ends = resident.encode(harmony.TO_FINAL) if channels else resident.tokenizer.think_end_tokens or ()
        thought = await compiled(resident, "messages", grammar.after_thought, options.grammar.text, ends)
        options = replace(options, grammar=thought)
    answer = PendingAnswer(server, chosen, [ids], replace(options, splitter=new_parser), request)
    return Chat(request, resident, answer, new_parser)


@dataclass
class _Form:
    """What the form of an answer depends on, beside the model."""

    request: ChatRequest
    tools: Tools
    prompt: Prompt
    forced: bool
    bare: bool
    stop: tuple[str, ...]


def _parser(resident: Model, form: _Form) -> OutputParser:
    """Return a parser that begins where the prompt ends."""
    tokenizer, single = resident.tokenizer, form.request.parallel_tool_calls is False
    channels = harmony.is_spoken_by(tokenizer)
    if channels and not form.forced and not form.prompt.text.endswith(harmony.FINAL):
        parser: OutputParser = harmony.Harmony(form.tools, single=single, stop=form.stop)
        parser.begin(harmony.begun(form.prompt.text))
        return parser
    start, end = tokenizer.think_start, tokenizer.think_end
    *marks, parse = call_forms.form_of(tokenizer)
    parser = OutputParser(
        thinking=(start, end) if start is not None and end is not None else None,
        calling=(marks[0], marks[1]) if form.tools and not form.forced else None,
        more_calling=calls.more_marks(tokenizer, bare=form.bare) if parse is calls.parse_json else (),
        bare=form.bare,
        call_text=partial(call_forms.reader_of, parse, form.tools),
        single=single,
        only_call=form.forced,
        stop=form.stop,
    )
    if form.prompt.begun:
        parser.begin(form.prompt.begun)
    return parser


def _writes_bare_calls(resident: Model) -> bool:
    with resident.lock:
        return resident.tokenizer.tool_parser is None and resident.template.bare_calls


async def count(server: Server, request: ChatRequest) -> int:
    """Return the number of tokens of a request's prompt; ApiError as ``begin``."""
    resident = await server.resident(server.choose(request))
    tools, forced = tools_of(request)
    ids, _ = await asyncio.to_thread(_prompt, resident, request, tools, forced=forced)
    return len(ids)


def _prompt(resident: Model, request: ChatRequest, tools: Tools, *, forced: bool) -> tuple[list[int], Prompt]:
    prompt = prompt_of(resident, request, tools)
    formatted = request.response_format is not None and request.response_format.type != "text"
    on_final = forced or (formatted and not tools)
    if harmony.is_spoken_by(resident.tokenizer) and on_final and not harmony.is_open(prompt.text):
        prompt = prompt._replace(text=prompt.text + harmony.FINAL)  # these answers have only this channel
    return resident.encode(prompt.text, begins=not resident.tokenizer.has_chat_template), prompt


async def whole(chat: Chat) -> dict[str, Any]:
    """Return the answer in one object."""
    n = chat.request.n or 1
    parsers = [chat.new_parser() for _ in range(n)]
    empty = {"role": "assistant", "content": None, "refusal": None}
    messages: list[dict[str, Any]] = [{**empty, "annotations": []} for _ in range(n)]
    choices: list[dict[str, Any]] = [{"index": i, "message": messages[i], "logprobs": None} for i in range(n)]
    tokens = cached = 0
    async for piece in chat.pending.pieces():
        choice, message = choices[piece.index], messages[piece.index]
        tokens += piece.tokens
        for delta in feed(parsers[piece.index], piece):
            merge(message, delta)
        if piece.logprobs is not None:
            choice["logprobs"] = choice["logprobs"] or {"content": [], "refusal": None}
            choice["logprobs"]["content"] += logprobs_of(chat.resident, piece)
        if piece.finish_reason:
            choice["finish_reason"] = finish(piece, parsers[piece.index])
            choice["x_kakeya"] = piece.report
            cached = max(cached, piece.report["cached_tokens"])
            if "tool_calls" not in message:
                message["content"] = message["content"] or ""
    return {
        **_head(chat, "chat.completion"),
        "choices": choices,
        "usage": usage(chat.pending.prompt_tokens, tokens, cached, await chat.thought_tokens(parsers)),
        "x_kakeya": choices[0]["x_kakeya"],
    }


def _head(chat: Chat, kind: str) -> dict[str, Any]:
    about = {"id": new_id("chatcmpl"), "object": kind, "created": int(time.time())}
    return {**about, "model": chat.pending.model}


async def streamed(chat: Chat) -> AsyncIterator[bytes]:
    """Yield the answer's events."""
    head = _head(chat, "chat.completion.chunk")
    n = chat.request.n or 1
    parsers = [chat.new_parser() for _ in range(n)]
    tokens = cached = 0

    def chunk(index: int, delta: Delta, report: dict[str, Any] | None = None, **more: Any) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **more}
        if report:
            choice["x_kakeya"] = report
        live = {"usage": usage(chat.pending.prompt_tokens, tokens, cached)} if chat.request.live else {}
        return event({**head, "choices": [choice], **live})

    for i in range(n):
        yield chunk(i, {"role": "assistant", "content": ""})
    async for piece in chat.pending.pieces():
        parser = parsers[piece.index]
        tokens += piece.tokens
        deltas = feed(parser, piece)
        logprobs = None
        if piece.logprobs:
            logprobs = {"content": logprobs_of(chat.resident, piece), "refusal": None}
            deltas = deltas or [{"content": ""}]
        report = piece.report if chat.request.live else None
        for delta in deltas:
            yield chunk(piece.index, delta, report, logprobs=logprobs)
            logprobs = None
        if piece.finish_reason:
            cached = max(cached, piece.report["cached_tokens"])
            yield chunk(piece.index, {}, piece.report, finish_reason=finish(piece, parser))
    if chat.request.stream_options and chat.request.stream_options.include_usage:
        used = usage(chat.pending.prompt_tokens, tokens, cached, await chat.thought_tokens(parsers))
        yield event({**head, "choices": [], "usage": used})
    yield event(DONE)


def tools_of(request: ChatRequest) -> tuple[Tools, bool]:
    """Return the functions to show to the model, and whether the model must call one of them."""
    functions = []
    for tool in request.tools or []:
        if tool.type != "function" or tool.function is None:
            raise unsupported(f"tools of type {tool.type!r}", "tools")
        functions.append(tool.function.model_dump(exclude_none=True))
    choice = request.tool_choice
    if choice in (None, "auto", "none"):
        return [] if choice == "none" else functions, False
    if not functions:
        raise ApiError(400, "tool_choice needs tools.", param="tool_choice", code="invalid_value")
    if choice == "required":
        return functions, True
    if isinstance(choice, dict):
        if choice.get("type") == "custom":
            raise unsupported("tool_choice 'custom'", "tool_choice")
        names, must_call = _chosen(choice)
        named = [each for each in functions if each["name"] in names]
        if named and len(named) == len(names):
            return named, must_call
    message = "tool_choice has to be auto, none, required or names of some of the tools."
    raise ApiError(400, message, param="tool_choice", code="invalid_value")


def _chosen(choice: dict[str, Any]) -> tuple[set[Any], bool]:
    """Return the names of the functions that a ``tool_choice`` allows, and whether one must be called."""
    if choice.get("type") != "allowed_tools":
        return {_name(choice)}, True
    allowed = choice.get("allowed_tools", choice)  # /v1/responses does not nest it
    tools = allowed.get("tools") if isinstance(allowed, dict) else None
    if not isinstance(tools, list) or allowed.get("mode") not in ("auto", "required"):
        return set(), False
    return {_name(tool) for tool in tools}, allowed["mode"] == "required"


def _name(tool: Any) -> str | None:
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


async def constrained(
    request: ChatRequest, options: Options, resident: Model, tools: Tools, *, forced: bool
) -> Options:
    """Add log-probabilities and the grammar to the options; ApiError if the grammar cannot be enforced.

    If one of the ``tools`` must be called (``forced``), stop strings, which end texts, have no effect.
    """
    if request.logprobs:
        options = replace(options, logprobs=request.top_logprobs or 0)
    if forced:
        called = await compiled(resident, "tools", grammar.tools_grammar, tools)
        return replace(options, grammar=called, stop=())
    answer = await of_format(request.response_format, resident)
    if answer is not None and tools:
        tokenizer, grammars = resident.tokenizer, resident.grammars
        in_json = call_forms.form_of(tokenizer)[2] is calls.parse_json
        if harmony.is_spoken_by(tokenizer):
            written = partial(grammar.on_channels, answer.text, grammars.mark, tools)
        else:
            written = partial(grammar.with_calls, answer.text, *grammars.marks(), tools if in_json else None)
        answer = await compiled(resident, "tools", written)
    return replace(options, grammar=answer)


def json_format(wanted: Any) -> Any:
    """Return a ``response_format`` for an output format of the other APIs, which do not nest the schema."""
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        return wanted
    return {"type": "json_schema", "json_schema": {name: wanted.get(name) for name in ("name", "schema")}}


async def of_format(wanted: Any, resident: Model) -> Compiled | None:
    """Return the grammar of a ``response_format``; None for text."""
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        schema: Any = {"type": "object"}
    elif wanted.type == "json_schema":
        schema = wanted.json_schema and wanted.json_schema.schema_
        if schema is None:
            message = "response_format of type json_schema needs a schema."
            raise ApiError(400, message, param="response_format", code="missing")
    else:
        raise unsupported(f"response_format {wanted.type!r}", "response_format")
    return await compiled(resident, "response_format", grammar.schema_grammar, schema)


async def compiled(resident: Model, param: str, form: Callable[..., str], *parts: Any) -> Compiled:
    """Return the grammar that ``form`` makes of some parts; ApiError if the schemas in ``param`` cannot be enforced.

    Other threads write and compile it: schemas can be large.
    """
    text = await asyncio.to_thread(form, *parts)
    return await run_in_thread(resident.grammars.compiled, text, param)
