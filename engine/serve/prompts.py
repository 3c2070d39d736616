"""Converts messages to a prompt with the model's chat template."""

import json
from typing import Any

from jinja2 import TemplateError
from pydantic_core import from_json

from engine.serve.errors import ApiError, unsupported
from engine.serve.models import Resident
from engine.serve.protocol import Message


def render(resident: Resident, messages: list[Message], tools: list[dict[str, Any]], given: Any) -> str:
    """Return the text of a conversation up to the beginning of the model's answer.

    Args:
        resident: the model.
        messages: the conversation.
        tools: the functions that may be called.
        given: the request's ``chat_template_kwargs``.

    Raises:
        ApiError: the template refuses a message, or some content is not text.
    """
    tokenizer = resident.pair.tokenizer
    turns = [_plain(message) for message in messages]
    template = getattr(tokenizer, "chat_template", None)
    knows_tools = isinstance(template, str) and "tools" in template
    if tools and not knows_tools:
        turns = _with_tools(turns, tools)
    if not tokenizer.has_chat_template:
        return "".join(f"{turn['role']}: {turn['content']}\n" for turn in turns) + "assistant:"
    extra: dict[str, Any] = {
        name: value for name, value in (given or {}).items() if isinstance(value, str | bool | int)
    }
    if resident.drafted and "enable_thinking" not in extra and tokenizer.think_start is not None:
        extra["enable_thinking"] = False  # published drafters were trained on answers without thoughts
    for name in ("tokenize", "add_generation_prompt", "tools", "conversation", "messages", "chat_template"):
        extra.pop(name, None)
    if tools and knows_tools:
        extra["tools"] = [{"type": "function", "function": tool} for tool in tools]
    try:
        with resident.lock:
            return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **extra)
    except (TemplateError, TypeError, ValueError, KeyError) as error:
        said = " ".join(str(error).split())[:300]
        raise ApiError(
            400, f"The model's chat template refuses these messages: {said}.", param="messages"
        ) from error


def _plain(message: Message) -> dict[str, Any]:
    """Return a message in the form of templates, with its text in one piece."""
    turn: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": _text(message.content),
    }
    if message.tool_calls:
        turn["tool_calls"] = [_call(call) for call in message.tool_calls]
        if not turn["content"]:
            turn["content"] = "\n".join(
                json.dumps(call["function"], ensure_ascii=False) for call in turn["tool_calls"]
            )
    for name in ("name", "tool_call_id"):
        if getattr(message, name) is not None:
            turn[name] = getattr(message, name)
    return turn


def _text(content: str | list[dict[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = []
    for part in content:
        kind = part.get("type")
        if kind not in ("text", "input_text", "output_text", "refusal"):
            raise unsupported(f"content of type {str(kind)[:64]!r}", "messages")
        text = part.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise ApiError(400, "A text part has no text.", param="messages", code="invalid_value")
        parts.append(text)
    return "".join(parts)


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ApiError(400, "A tool call names no function.", param="messages", code="invalid_value")
    arguments: Any = function.get("arguments")
    if isinstance(arguments, str):  # templates expect an object instead of JSON text
        try:
            arguments = from_json(arguments)  # refuses depths at which the templates' own code fails
        except ValueError:
            arguments = {"arguments": arguments}
    return {**call, "function": {"name": function["name"], "arguments": arguments or {}}}


def _with_tools(turns: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the functions to the system message, for templates without support for tools."""
    said = "Functions, one JSON object a line:\n" + "\n".join(json.dumps(tool) for tool in tools)
    if turns and turns[0]["role"] == "system":
        return [{**turns[0], "content": f"{turns[0]['content']}\n\n{said}"}, *turns[1:]]
    return [{"role": "system", "content": said}, *turns]
