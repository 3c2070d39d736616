"""Converts messages to a prompt with the model's chat template, in the form that the template takes."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from pydantic_core import from_json

from engine.marks import SEPARATOR
from engine.serve.backend import Model
from engine.serve.dialects.openings import (
    Prompt,
    in_thought,
    is_only_thought,
    no_thought,
    opened,
    with_open_thought,
    written,
)
from engine.serve.errors import ApiError, unsupported
from engine.serve.formats.template import Template, Turn
from engine.serve.protocol import ChatRequest, Message

# Arguments of transformers' function, which the server sets itself.
OWN = (
    "tokenize", "add_generation_prompt", "continue_final_message", "tools", "conversation", "messages",
    "chat_template", "return_dict", "return_tensors", "return_assistant_tokens_mask", "padding", "truncation",
    "max_length", "tokenizer_kwargs",
)  # fmt: skip
FAILED = "Error: the tool call failed."  # what the model reads above such a call's result
SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")
TEXTS = ("content", "reasoning_content")
TEXT_KINDS = ("text", "input_text", "output_text", "refusal")  # kinds of parts that are text


def render(resident: Model, request: ChatRequest, tools: list[dict[str, Any]]) -> str:
    """Return the text of ``prompt_of``."""
    return prompt_of(resident, request, tools).text


def prompt_of(resident: Model, request: ChatRequest, tools: list[dict[str, Any]]) -> Prompt:
    """Return a conversation up to the beginning of the model's answer, or to the end of a turn to continue.

    ApiError if the template refuses a message, or some content is not text.
    """
    turns = [_plain(message) for message in request.messages]
    continued = request.continue_final_message is True
    if continued and request.add_generation_prompt:
        refusal = "Only one of continue_final_message and add_generation_prompt can be true."
        raise ApiError(400, refusal, param="continue_final_message", code="invalid_value")
    if continued:
        turns[-1] = with_open_thought(turns[-1], resident.tokenizer)
    thinking = continued and is_only_thought(turns[-1])
    if continued and not thinking and not turns[-1]["content"].strip():
        turns, continued = turns[:-1] or turns, False  # an empty turn has nothing to continue
    with resident.lock:
        template, marks = resident.template, resident.marks
        extra = {name: marks.apart(value) for name, value in _arguments(resident, request).items()}
        apart, tools = [marks.turn(turn) for turn in turns], marks.apart(tools)
        if tools and template.tools:
            functions = tools if template.bare_tools else map(_completed, tools)
            extra["tools"] = [{"type": "function", "function": function} for function in functions]
        elif tools:
            apart = _with_tools(apart, tools)
        try:
            fitted = fit_to_template(apart, template)
            if thinking:
                return in_thought(fitted, resident, extra)
            text = template.render(fitted, continued=continued, **extra)
            begun = written(turns[-1], resident) if continued else opened(text, resident, extra)
        except ApiError:
            raise
        except Exception as error:  # a template is a program of the model's authors
            reason = " ".join(str(error).replace(SEPARATOR, "").split())[:300]
            message = f"The model's chat template refuses these messages: {reason}."
            raise ApiError(400, message, param="messages") from error
    if is_only_thought(turns[-1]) and apart[-1]["reasoning_content"].strip() not in text:
        raise no_thought()
    return Prompt(text, begun)


def _arguments(resident: Model, request: ChatRequest) -> dict[str, Any]:
    """Return the arguments for the template; ApiError 400 for one that the server sets itself."""
    extra = {name: value for name, value in request.template_kwargs.items() if value is not None}
    for name in extra.keys() & (request.chat_template_kwargs or {}).keys():
        if name in OWN:
            raise unsupported(f"chat_template_kwargs.{name}")
        if not resident.template.reads(name):
            request.ignored.append(f"chat_template_kwargs.{name[:100]}")
            del extra[name]
    if resident.drafted and "enable_thinking" not in extra and resident.tokenizer.think_start is not None:
        extra["enable_thinking"] = False  # published drafters were trained on answers without thoughts
    if request.add_generation_prompt is False:
        extra["add_generation_prompt"] = False
    return extra


def fit_to_template(turns: list[Turn], template: Template) -> list[Turn]:
    """Return a conversation in a form that the template accepts. Whatever the template accepts is not changed."""
    calls = [call for turn in turns for call in turn.get("tool_calls", ())]
    named = {call.get("id"): call["function"]["name"] for call in calls}
    if not template.parallel:
        turns = _one_call_each(turns)
    turns = [_fitted(turn, template, named) for turn in turns]
    begun = next((i for i, turn in enumerate(turns) if turn["role"] != "system"), len(turns))
    head, rest = turns[:begun], turns[begun:]
    if len(head) > 1 and not template.systems:
        head = [joined(head)]
    if not template.system:
        head = [{**turn, "role": "user"} for turn in head]
    if not template.late_system:
        rest = [{**turn, "role": "user"} if turn["role"] == "system" else turn for turn in rest]
    if not template.user_after_result:
        rest = _users_into_results(rest)
    turns = [*head, *rest]
    if not template.repeats or not template.system:
        turns = one_turn_each(turns)
    if template.parts:
        turns = [{**turn, "content": [{"type": "text", "text": turn["content"] or ""}]} for turn in turns]
    return turns


def one_turn_each(
    turns: Iterable[Turn], roles: Sequence[str] = ("system", "user", "assistant")
) -> list[Turn]:
    """Join consecutive turns of the same role, if it is one of these; results of tools stay separate."""
    alternating: list[Turn] = []
    for role, group in groupby(turns, key=lambda turn: turn["role"]):
        same = list(group)
        alternating += [joined(same)] if role in roles else same
    return alternating


def joined(turns: list[Turn]) -> Turn:
    """Return turns of one role as one turn."""
    if len(turns) == 1:
        return turns[0]
    whole = dict(turns[0])
    for name in TEXTS:
        if texts := [text for turn in turns if (text := "".join(texts_of(turn.get(name) or "")))]:
            whole[name] = "\n\n".join(texts)
    if calls := [call for turn in turns for call in turn.get("tool_calls") or ()]:
        whole["tool_calls"] = calls
    return whole


def _fitted(turn: Turn, template: Template, named: dict[Any, str]) -> Turn:
    """Return a turn with its calls or its tool's result in the form that a template takes."""
    if turn["role"] == "tool":
        if template.results is None:
            return {"role": "user", "content": f"<tool_response>\n{turn['content']}\n</tool_response>"}
        name = named.get(turn.get("tool_call_id"))
        turn = {"name": name, **turn} if template.results and name else turn
        if template.calls and template.calls.short:
            turn = {**turn, "tool_call_id": _short(turn.get("tool_call_id"))}
        return turn
    if "tool_calls" not in turn:
        return turn
    form, calls = template.calls, turn["tool_calls"]
    if form is None:
        texts = (json.dumps(call["function"], ensure_ascii=False) for call in calls)
        written = [f"<tool_call>\n{text}\n</tool_call>" for text in texts]
        return {"role": turn["role"], "content": "\n".join(filter(None, [turn["content"], *written]))}
    if form.text:
        calls = [{**call, "function": _with_text(call["function"])} for call in calls]
    if form.short:
        calls = [{**call, "id": _short(call.get("id"))} for call in calls]
    turn = {**turn, "tool_calls": calls}
    if turn["content"] and turn.get("reasoning_content") and not template.thought_beside_text:
        thought = f"{turn['reasoning_content']}\n\n{turn['content']}"
        turn |= {"reasoning_content": thought, "content": ""}
    return turn


def _with_text(function: dict[str, Any]) -> dict[str, Any]:
    return {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}


def _short(call_id: Any) -> str:
    """Return an id of nine letters and digits, always the same for the same id."""
    text = str(call_id)
    return text if SHORT_ID.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()[:9]


def _one_call_each(turns: list[Turn]) -> list[Turn]:
    """Spread the calls of a turn over several, each followed by its results."""
    single: list[Turn] = []
    waiting: list[Turn] = []
    for turn in turns:
        if turn["role"] == "tool" and waiting:
            ids = [each["tool_calls"][0].get("id") for each in waiting]
            wanted = turn.get("tool_call_id")
            single += [waiting.pop(ids.index(wanted) if wanted in ids else 0), turn]
            continue
        single += waiting
        first, *others = turn.get("tool_calls") or [None]
        rest = [{"role": turn["role"], "content": "", "tool_calls": [call]} for call in others]
        waiting = [{**turn, "tool_calls": [first]}, *rest] if others else []
        single += [] if others else [turn]
    return single + waiting


def _users_into_results(turns: list[Turn]) -> list[Turn]:
    """Append a user's text to the tool's result that it follows."""
    merged: list[Turn] = []
    for turn in turns:
        if turn["role"] == "user" and merged and merged[-1]["role"] == "tool":
            text = "\n\n".join(filter(None, [merged[-1]["content"], turn["content"]]))
            merged[-1] = {**merged[-1], "content": text}
        else:
            merged.append(turn)
    return merged


def _plain(message: Message) -> Turn:
    """Return a message in the form of templates, with its text in one piece."""
    role = {"developer": "system", "function": "tool"}.get(message.role, message.role)
    turn: Turn = {"role": role, "content": "".join(texts_of(message.content or ""))}
    if role == "tool" and (message.model_extra or {}).get("is_error") is True:
        turn["content"] = f"{FAILED}\n{turn['content']}".rstrip("\n")
    earlier = (message.model_extra or {}).get("function_call")  # the only call, before there were tool_calls
    if calls := message.tool_calls or ([{"type": "function", "function": earlier}] if earlier else []):
        turn["tool_calls"] = [_call(call) for call in calls]
    thought = message.reasoning_content or message.reasoning
    if thought and isinstance(thought, str):
        turn["reasoning_content"] = thought
    for name in ("name", "tool_call_id"):
        if getattr(message, name) is not None:
            turn[name] = getattr(message, name)
    return turn


def texts_of(content: Any, param: str = "messages", kinds: Sequence[str] = TEXT_KINDS) -> list[str]:
    """Return the texts of a content or of its parts; ApiError 400 if it holds anything else."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        message = "Content has to be text or a list of parts."
        raise ApiError(400, message, param=param, code="invalid_value")
    texts = []
    for part in content:
        kind = part.get("type")
        if kind not in kinds:
            raise unsupported(f"content of type {str(kind)[:64]!r}", param)
        text = part.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise ApiError(400, "A text part has no text.", param=param, code="invalid_value")
        texts.append(text)
    return texts


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ApiError(400, "A tool call names no function.", param="messages", code="invalid_value")
    arguments: Any = function.get("arguments")
    if isinstance(arguments, str) and arguments.strip():  # templates expect an object instead of JSON text
        with suppress(ValueError):
            arguments = from_json(arguments)  # refuses a nesting at which the templates' own code would fail
    if not isinstance(arguments, dict):  # templates read names and values from it
        arguments = {"arguments": arguments} if arguments else {}
    return {**call, "function": {"name": function["name"], "arguments": arguments}}


def _completed(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a function with the fields that templates read without a check."""
    parameters = {"type": "object", "properties": {}, **(tool.get("parameters") or {})}
    return {"description": "", **tool, "parameters": parameters}


def _with_tools(turns: list[Turn], tools: list[dict[str, Any]]) -> list[Turn]:
    """Add the functions to the system message, for templates without support for tools."""
    text = (
        "Functions, one JSON object a line:\n"
        + "\n".join(json.dumps(tool) for tool in tools)
        + '\nTo call one, write <tool_call>{"name": its name, "arguments": an object}</tool_call>.'
    )
    if turns and turns[0]["role"] == "system":
        return [{**turns[0], "content": f"{turns[0]['content']}\n\n{text}"}, *turns[1:]]
    return [{"role": "system", "content": text}, *turns]
