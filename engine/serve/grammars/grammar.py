"""The texts of grammars for answers, in llguidance's languages: JSON, a JSON schema, or a tool call.

``engine.serve.grammars.compiled`` compiles them.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import llguidance

from engine.serve.errors import ApiError
from engine.serve.formats import schemas

COMPACT = {"whitespace_flexible": False}
SPACED = {**COMPACT, "item_separator": ", ", "key_separator": ": "}  # as models write calls
# A function without this field takes no arguments, as in OpenAI's API.
NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


def schema_grammar(schema: Any) -> str:
    """Return the grammar of a JSON schema; ApiError if the schema is invalid or cannot be enforced exactly."""
    schemas.check(schema, "response_format")
    try:
        return llguidance.LLMatcher.grammar_from_json_schema(json.dumps(_ours(schema)))
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"The JSON schema cannot be read: {error}", param="response_format") from error


def _ours(schema: Any, options: dict[str, Any] = COMPACT) -> Any:
    """Return a schema with our options for llguidance: a client's own options could disable its checks."""
    schema = {} if schema is True else schema
    return {**schema, "x-guidance": options} if isinstance(schema, dict) else schema


def after_thought(grammar: str, end: Sequence[int]) -> str:
    """Return a grammar, of ``schema_grammar`` or ``tools_grammar``, after the tokens that ``end`` a thought."""
    mark = " ".join(f"<[{token}]>" for token in end)
    if grammar.startswith("{"):
        rules = f"answer: %json {json.dumps(_schema_of(grammar))}"
    else:
        rules = grammar.replace("start:", "answer:", 1)
    lark = f"start: thought {mark} gap answer\nthought: /(?s:.*)/\ngap: /\\n{{0,2}}/\n{rules}"
    return llguidance.LLMatcher.grammar_from_lark(lark)


def with_calls(answer: str, start: "Mark", end: "Mark", tools: Sequence[dict[str, Any]] | None) -> str:
    """Return a grammar of an answer (``schema_grammar``), or of calls in the model's own form instead.

    The form is ``{"name": ..., "arguments": ...}`` between two marks. Without ``tools``, a call's text is free.
    """
    if tools is None:
        body, behind = _free("body", end)
    else:
        body = "body: " + " | ".join(_call(tool, SPACED) for tool in tools)
        behind = f"line {end.rule}"
    return llguidance.LLMatcher.grammar_from_lark(
        "start: formatted | call+\n"
        f"formatted: %json {json.dumps(_schema_of(answer))}\n"
        f"call: {start.rule} line body {behind} line\n"
        f"{body}\n"
        "line: /\\n{0,2}/"
    )


def on_channels(answer: str, mark: "Callable[[str], Mark]", tools: Sequence[dict[str, Any]]) -> str:
    """Return a grammar of an answer (``schema_grammar``) or a call in the harmony format, after other messages.

    ``mark`` returns a text as a mark of the tokenizer.
    """
    names = ("channel", "message", "start", "constrain")
    channel, message, start, constrain = (mark(f"<|{name}|>").rule for name in names)
    text, behind = _free("text", mark("<|end|>"))
    calls = []
    for tool in tools:
        name, arguments = json.dumps(f" to=functions.{tool['name']}"), json.dumps(_ours(_parameters(tool)))
        heads = f'{channel} "commentary" {name} | {name} {channel} "commentary"'
        calls.append(f"({heads}) kind {message} %json {arguments}")
    return llguidance.LLMatcher.grammar_from_lark(
        "start: other* (formatted | call)\n"
        f'other: {channel} ("analysis" | "commentary") {message} text {behind} {start} "assistant"\n'
        f'formatted: {channel} "final" kind {message} %json {json.dumps(_schema_of(answer))}\n'
        f"call: {' | '.join(calls)}\n"
        f'kind: (" "? {constrain}? "json")?\n'
        f"{text}"
    )


def _free(name: str, end: "Mark") -> tuple[str, str]:
    """Return the rule for free text up to a mark, and the symbol after it. The rule includes a mark without token."""
    suffix = f"[suffix={json.dumps(end.text)}]" if end.text and end.token is None else ""
    return f"{name}{suffix}: /(?s:.*)/", end.rule if end.token is not None else ""


@dataclass(frozen=True)
class Mark:
    """A text before or after a call."""

    text: str
    token: int | None  # its token, if it has one of its own

    @property
    def rule(self) -> str:
        """The mark in a grammar."""
        return json.dumps(self.text) if self.token is None else f"<[{self.token}]>"


def _schema_of(grammar: str) -> Any:
    """Return the schema of a grammar by ``schema_grammar``."""
    return json.loads(grammar)["grammars"][0]["json_schema"]


def _parameters(tool: dict[str, Any]) -> Any:
    """Return the schema of a function's arguments; ApiError if it cannot be enforced exactly."""
    parameters = tool.get("parameters", NO_PARAMETERS) or {"type": "object"}
    schemas.check(parameters, "tools")
    return parameters


def tools_grammar(tools: Sequence[dict[str, Any]]) -> str:
    """Return the grammar of a call to one of these functions: ``{"name":"...","arguments":{...}}``."""
    calls = (_call(tool, COMPACT) for tool in tools)
    return llguidance.LLMatcher.grammar_from_lark("start: " + "\n  | ".join(calls))


def _call(tool: dict[str, Any], options: dict[str, Any]) -> str:
    """Return the rule for a call. Its schema stays a document of its own: references begin at its root."""
    item, key = options.get("item_separator", ","), options.get("key_separator", ":")
    head = f'{{"name"{key}{json.dumps(tool["name"])}{item}"arguments"{key}'
    return f'{json.dumps(head)} %json {json.dumps(_ours(_parameters(tool), options))} "}}"'
