"""Translates a chat request's constraints (tool calls, JSON schemas) and log-probabilities into options."""

import asyncio
from dataclasses import replace
from typing import Any

from engine.serve.backend import Model, Options
from engine.serve.errors import ApiError, unsupported
from engine.serve.formats import grammar, harmony
from engine.serve.formats.calls import form_of, parse_json
from engine.serve.protocol import ChatRequest


def tools_of(request: ChatRequest) -> tuple[list[dict[str, Any]], bool]:
    """Return the functions to show to the model, and whether it must call one of them."""
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
    if isinstance(choice, dict) and choice.get("type") in ("allowed_tools", "custom"):
        raise unsupported(f"tool_choice {choice['type']!r}", "tool_choice")
    raise ApiError(
        400,
        "tool_choice has to be auto, none, required or the name of one of the tools.",
        param="tool_choice",
        code="invalid_value",
    )


async def constrained(
    request: ChatRequest, options: Options, resident: Model, tools: list[dict[str, Any]], *, forced: bool
) -> Options:
    """Add log-probabilities and the grammar to the options; ApiError if the grammar cannot be enforced.

    Args:
        request: the parsed body.
        options: the options so far.
        resident: the model.
        tools: the functions that may be called.
        forced: whether one of them must be called. Then stop strings, which end texts, have no effect.
    """
    if request.logprobs:
        options = replace(options, logprobs=request.top_logprobs or 0)
    if forced:
        tool_grammar = await asyncio.to_thread(grammar.of_tools, tools)
        await grammar.apart(resident.grammars.check, tool_grammar, "tools")
        return replace(options, grammar=tool_grammar, stop=())
    answer = await of_format(request.response_format, resident)
    if answer is not None and tools:
        tokenizer, grammars = resident.tokenizer, resident.grammars
        in_json = form_of(tokenizer)[2] is parse_json
        answer = (
            grammar.on_channels(answer, grammars.mark, tools)
            if harmony.speaks(tokenizer)
            else grammar.with_calls(answer, *grammars.marks(), tools if in_json else None)
        )
        await grammar.apart(resident.grammars.check, answer, "tools")
    return replace(options, grammar=answer)


async def of_format(wanted: Any, resident: Model) -> str | None:
    """Return the grammar of a ``response_format``; None for text."""
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        format_grammar = grammar.of_schema({"type": "object"})
    elif wanted.type == "json_schema":
        if wanted.json_schema is None or wanted.json_schema.schema_ is None:
            message = "response_format json_schema needs json_schema.schema."
            raise ApiError(400, message, param="response_format", code="missing")
        format_grammar = await asyncio.to_thread(grammar.of_schema, wanted.json_schema.schema_)
    else:
        raise unsupported(f"response_format {wanted.type!r}", "response_format")
    await grammar.apart(resident.grammars.check, format_grammar, "response_format")
    return format_grammar
