"""Reads the calls that a model wrote: JSON for one of the request's functions, with the types of its schema."""

import ast
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from pydantic_core import from_json

from engine.serve.formats.schemas import MOST_TYPE_STEPS, ArgumentTypes, Budget, properties_of, type_of
from engine.tokens import Tokenizer

Parser = Callable[[str, Any], Any]
LONGEST = 100_000  # characters of an argument that may be read as a Python value
# Words after which mlx-lm's parsers search for an end. If it is missing, each search goes through the whole text.
SEARCHED = re.compile(
    r"<(?:longcat_)?arg_key>|<function[= ]|<param(?:eter)?[= ]|<invoke |<\|?tool_call|<escape>|\bcall:|\[ARGS\]"
)
MOST_SEARCHED = 20_000_000  # characters of all these searches: half a second with the slowest parser

MARKS = ("<tool_call>", "</tool_call>")  # used by most models that write calls as JSON
# Forms without a parser in mlx-lm: DeepSeek's marks, and the text that may precede Llama's JSON.
DEEPSEEK = ("<\uff5ctool▁calls▁begin\uff5c>", "<\uff5ctool▁calls▁end\uff5c>")
LLAMA = ("<|python_tag|>", "")


class Functions:
    """The functions that a model may call, with the types of their arguments."""

    def __init__(self, tools: Sequence[dict[str, Any]]) -> None:
        self.tools = {tool["name"]: tool for tool in tools}
        self._parameters = {name: tool.get("parameters") or {} for name, tool in self.tools.items()}
        budget = Budget(MOST_TYPE_STEPS)
        self._types = {name: ArgumentTypes(each, budget) for name, each in self._parameters.items()}

    def types(self, name: str, argument: str) -> frozenset[str]:
        """Return the JSON types that a function allows for an argument."""
        return self._types[name].of(argument)

    def typed(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return arguments converted to the types that a function allows; ValueError if that is impossible."""
        return dict(_typed(arguments, self._parameters[name], self._types[name]))


def parse_json(text: str, _: Any) -> Any:
    """Return the call in the form ``{"name": ..., "arguments": ...}``, parsed as mlx-lm does; or DeepSeek's calls."""
    before, *calls = text.split("<\uff5ctool▁call▁begin\uff5c>")
    if before.strip() or not calls:
        return json.loads(text)
    return [_deepseek(call.split("<\uff5ctool▁call▁end\uff5c>")[0]) for call in calls]


def only_arguments(name: str, text: str, _: Any) -> Any:
    """Return the call of a function whose arguments are the whole text."""
    return {"name": name, "arguments": json.loads(text)}


def _deepseek(call: str) -> dict[str, Any]:
    """Return a call of DeepSeek V3.1; or of R1 and V3, which write its kind, and the arguments in a block of code."""
    name, _, arguments = call.partition("<\uff5ctool▁sep\uff5c>")
    if not arguments.lstrip().startswith("{"):
        name, _, arguments = arguments.partition("```json")
        arguments = arguments.strip().removesuffix("```")
    return {"name": name.strip(), "arguments": json.loads(arguments)}


def more_marks(tokenizer: Tokenizer, *, bare: bool) -> list[tuple[str, str]]:
    """Return further marks around calls that ``parse_json`` reads; ``bare`` is for models that use none."""
    template = getattr(tokenizer, "chat_template", None)
    own = [DEEPSEEK] if isinstance(template, str) and DEEPSEEK[0] in template else []
    return [*own, LLAMA] if bare else own


def form_name(parse: Parser) -> str:
    """Return the name of a parser's form, which is the name of mlx-lm's module that reads it."""
    return str(getattr(parse, "form", "")) or parse.__module__.rpartition(".")[2]


def read(text: str, parse: Parser, tools: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the calls in a text: ``name``, ``arguments`` as JSON text, and ``id`` if the model gave one.

    An argument whose type its schema does not allow is converted, and dropped if it is an optional null.
    The client has to check for missing arguments, because it can tell the model. The text is the model's output between
    the marks of a call, and ``parse`` is the parser of its form: one of ``call_parsers``, whose time is linear in the
    text, or mlx-lm's own.

    Raises:
        Exception: the text is no call of one of these functions, or would take too long to parse in the event loop.
            Parsers of many models raise it.
    """
    linear = parse is parse_json or getattr(parse, "linear", False)
    searches = 0 if linear else sum(1 for _ in SEARCHED.finditer(text))
    if len(text) * searches > MOST_SEARCHED:
        raise ValueError("it would take too long to parse")
    result = parse(text, [_as_text(tool) for tool in tools])
    calls = result if isinstance(result, list) else [result]
    if not calls:
        raise ValueError("there is no call")
    functions = Functions(tools)
    return [_call(call, functions) for call in calls]


def is_object(text: str) -> bool:
    """Return whether a text is a JSON object that every client can read: no infinite number, no lone surrogate."""
    try:
        value = from_json(text.encode(), allow_inf_nan=False)
        json.dumps(value, allow_nan=False)  # 1e999 is read as an infinite number
    except ValueError:
        return False
    return isinstance(value, dict)


def as_object(text: str) -> dict[str, Any]:
    """Return a call's arguments; if they were cut, the complete part of them."""
    try:
        value = from_json(text.encode(), allow_inf_nan=False, allow_partial=True)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _call(call: dict[str, Any], functions: Functions) -> dict[str, str]:
    name, arguments = call["name"], call.get("arguments", call.get("parameters"))  # Llama's word
    if isinstance(arguments, str) and arguments.strip():
        arguments = json.loads(arguments)
    if not isinstance(arguments or {}, dict):
        raise ValueError("arguments have to be an object")
    text = json.dumps(functions.typed(name, arguments or {}), ensure_ascii=False, allow_nan=False)
    if not is_object(text):
        raise ValueError("the arguments are no JSON")
    own = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
    "".join(own.values()).encode()  # ValueError for half a character, as in the arguments
    return {"name": name, "arguments": text, **own}


def _as_text(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool whose parameters are strings: a parser of untyped text leaves them as the model wrote them."""
    schema = tool.get("parameters") or {}
    properties = {name: {"type": "string"} for name in properties_of(schema)}
    return {"type": "function", "function": {**tool, "parameters": {**schema, "properties": properties}}}


def _typed(arguments: dict[str, Any], schema: dict[str, Any], of: ArgumentTypes) -> Iterator[tuple[str, Any]]:
    required = schema.get("required")
    for name, value in arguments.items():
        types = of.of(name)
        if value is None and "null" not in types and not (isinstance(required, list) and name in required):
            continue  # an optional argument that was left out
        for each in _readings(value, types):
            if type_of(each) in types:
                yield name, each
                break
        else:
            raise ValueError(f"{name} has a type that its schema does not allow")


def _readings(value: Any, types: frozenset[str]) -> Iterator[Any]:
    """Yield the possible values of a text, likeliest first. A number or truth value stays text if text is allowed."""
    if isinstance(value, str) and types != {"string"}:
        python = [ast.literal_eval] if len(value) <= LONGEST else []
        for decode in (lambda text: json.loads(text, strict=False), *python):
            with suppress(Exception):  # both fail in many ways
                decoded = decode(value.strip())
                if "string" not in types or decoded is None or isinstance(decoded, dict | list):
                    yield from _numbers(decoded)
    yield from _numbers(value)
    if not isinstance(value, str):
        yield json.dumps(value, ensure_ascii=False)


def _numbers(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, float) and value.is_integer():
        yield int(value)
