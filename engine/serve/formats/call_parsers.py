"""Parsers of whole calls for both backends, and the form of calls that a chat template teaches a model.

They read the forms that mlx-lm's parsers read, and give the same calls. Each reads the text once, from left to right,
so its time is linear in the text, whatever a model writes.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from engine.serve.formats import calls
from engine.serve.formats.call_gemma import QUOTES
from engine.serve.formats.call_xml import ATEM, FORMS
from engine.serve.formats.call_xml_whole import Convert, whole_calls

ARGS = "[ARGS]"
NO_NAME = re.compile(r"[^\w-]")
KIMI = re.compile(r"((?:functions\.)?(.+?):\d+)", re.DOTALL)
KIMI_ARGUMENTS = "<|tool_call_argument_begin|>"
GEMMA = re.compile(r"call:([\w-]+)(?=\{)")
BARE_KEY = re.compile(r"([{,]\s*)([\w-]+)\s*:")
PYTHON_CALL = re.compile(r"\[([\w.]+)\(")
PYTHON_ARGUMENT = re.compile(r"""\b(\w+)=(?:"([^"]*)"|'([^']*)'|([^,]+))(?:,\s*|$)""")
CONSTANTS = {"true": True, "false": False, "null": None}
XTML = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")  # the marks of Kimi K3


@dataclass(frozen=True)
class CallParser:
    """The parser of one form, with the marks around its calls. An empty mark is the answer's end."""

    linear = True  # in the text; ``calls.read`` asks
    form: str  # the name that mlx-lm gives it
    start: str
    end: str
    parse: calls.Parser = field(repr=False)

    def __call__(self, text: str, tools: Any) -> Any:
        """Return the calls in the text between the marks; ValueError if there is none."""
        return self.parse(text, tools)


def _literal(text: str, declared: bool) -> Any:
    """Return a declared argument's text, or the value that another one's text writes in JSON or Python."""
    for read in () if declared or len(text) > calls.LONGEST else (json.loads, ast.literal_eval):
        with suppress(Exception):  # both fail in many ways
            return read(text)
    return text


def _json(text: str, _: bool) -> Any:
    with suppress(ValueError):
        return json.loads(text)
    return text


def _nullable(text: str, _: bool) -> Any:
    return None if text.lower() == "null" else text


def _text(text: str, _: bool) -> str:
    return text


def _mistral(text: str, _: Any) -> list[dict[str, Any]]:
    if text.lstrip().startswith("["):
        return [call if isinstance(call, dict) else {} for call in json.loads(text)]
    parsed, at, decoder = [], 0, json.JSONDecoder()
    while (ends := text.find(ARGS, at)) >= 0:
        name = NO_NAME.split(text[at:ends].rstrip())[-1]
        if not name:  # as mlx-lm: the mark alone is not a call
            at = ends + len(ARGS)
            continue
        begins = text.find("{", ends)
        if begins < 0 or text[ends + len(ARGS) : begins].strip():
            raise ValueError("there is no object")
        arguments, at = decoder.raw_decode(text, begins)
        parsed.append({"name": name, "arguments": arguments})
    return parsed


def _kimi(text: str, _: Any) -> list[dict[str, Any]]:
    parts = [part.partition("<|tool_call_end|>")[0] for part in text.split("<|tool_call_begin|>")[1:]]
    parsed = []
    for part in parts or [text]:
        head, _mark, arguments = part.partition(KIMI_ARGUMENTS)
        match = KIMI.fullmatch(head.strip())
        if match is None:
            raise ValueError("there is no call")
        parsed.append({"id": match[1], "name": match[2], "arguments": json.loads(arguments)})
    return parsed


def _gemma(quote: str, text: str, _: Any) -> list[dict[str, Any]]:
    segments = text.split(quote)
    for i, segment in enumerate(segments):
        segments[i] = json.dumps(segment) if i % 2 else BARE_KEY.sub(r'\1"\2":', segment)
    plain, decoder, parsed, at = "".join(segments), json.JSONDecoder(), [], 0
    while (match := GEMMA.search(plain, at)) is not None:
        arguments, at = decoder.raw_decode(plain, match.end())
        parsed.append({"name": match[1], "arguments": arguments})
    return parsed


def _python(text: str, _: Any) -> list[dict[str, Any]]:
    start, end = text.find("["), text.rfind("]")
    if start < 0 or len(text) > calls.LONGEST:
        raise ValueError("there is no call")
    try:
        body = ast.parse(text[start : end + 1], mode="eval").body
        parsed = [*map(_python_call, body.elts if isinstance(body, ast.List) else [])]
    except (SyntaxError, ValueError):
        return [_almost_python(text)]
    return parsed


def _almost_python(text: str) -> dict[str, Any]:
    """Return a call whose arguments are not all Python, such as words without quotes."""
    match = PYTHON_CALL.search(text)
    end = text.find(")]", match.end()) if match is not None else -1
    if match is None or end < 0:
        raise ValueError("there is no call")
    arguments = {}
    for each in PYTHON_ARGUMENT.finditer(text[match.end() : end]):
        key, double, single, bare = each.groups()
        value = bare.strip() if bare is not None else single if double is None else double
        with suppress(ValueError, SyntaxError):
            value = ast.literal_eval(value)
        arguments[key] = value
    return {"name": match[1], "arguments": arguments}


class _Constants(ast.NodeTransformer):
    """Chat templates write lists and objects as JSON, with its names for Python's constants."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(CONSTANTS[node.id]) if node.id in CONSTANTS else node


def _python_call(node: ast.expr) -> dict[str, Any]:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("there is no call")
    values = {str(word.arg): ast.literal_eval(_Constants().visit(word.value)) for word in node.keywords}
    return {"name": ast.unparse(node.func), "arguments": values}


def _parsers() -> Iterator[CallParser]:
    tool_call = ("<tool_call>", "</tool_call>")
    yield CallParser("json_tools", *tool_call, calls.parse_json)
    marks: Mapping[str, tuple[str, str, Convert]] = {
        "qwen3_coder": (*tool_call, _nullable),
        "glm47": (*tool_call, _literal),
        "laguna": (*tool_call, _literal),
        "longcat": ("<longcat_tool_call>", "</longcat_tool_call>", _literal),
        "minimax_m2": ("<minimax:tool_call>", "</minimax:tool_call>", _nullable),
        "minicpm5": ("<function name=", "</function>", _nullable),
        "muse_spark": (f"<{ATEM}function_calls>", f"</{ATEM}function_calls>", _json),
        "kimi_k3": ("<|open|>tools<|sep|>", "<|close|>tools<|sep|>", _text),
    }
    for name, (start, end, convert) in marks.items():
        yield CallParser(name, start, end, partial(whole_calls, FORMS[name], convert))
    yield CallParser("mistral", "[TOOL_CALLS]", "", _mistral)
    yield CallParser("kimi_k2", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", _kimi)
    yield CallParser("pythonic", "<|tool_call_start|>", "<|tool_call_end|>", _python)
    yield CallParser("gemma4", "<|tool_call>", "<tool_call|>", partial(_gemma, QUOTES["gemma4"]))
    function = ("<start_function_call>", "<end_function_call>")
    yield CallParser("function_gemma", *function, partial(_gemma, QUOTES["function_gemma"]))


PARSERS = {parser.form: parser for parser in _parsers()}
# What a chat template contains that teaches a form, in the order in which mlx-lm looks: all parts of one of the texts.
TAUGHT: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("minimax_m2", ("<minimax:tool_call>",)),
    ("gemma4", ("<|tool_call>", "<tool_call|>")),
    ("function_gemma", ("<start_function_call>",)),
    ("longcat", ("<longcat_tool_call>",)),
    ("glm47", ("<arg_key>",)),
    ("pythonic", ("<|tool_list_start|>",)),
    ("pythonic", ("<|tool_call_start|>",)),
    ("qwen3_coder", ("<tool_call>\\n<function=",)),
    ("qwen3_coder", ("<tool_call>\n<function=",)),
    ("kimi_k2", ("<|tool_calls_section_begin|>",)),
    ("minicpm5", ('<function name="', '<param name="')),
    ("mistral", ("[TOOL_CALLS]",)),
    ("muse_spark", (f"<{ATEM}function_calls>",)),
    ("json_tools", ("<tool_call>", "tool_call.name")),
)


def parser_for(template: Any, vocabulary: Mapping[str, int], named: str | None = None) -> CallParser | None:
    """Return the parser of a model's calls, whose form may be ``named`` in its settings; None if it is unknown."""
    if named is not None:
        return PARSERS.get(named)
    for form, parts in TAUGHT if isinstance(template, str) else ():
        if all(part in template for part in parts):
            return PARSERS[form]
    if all(mark in vocabulary for mark in XTML):
        return PARSERS["kimi_k3"]
    python = PARSERS["pythonic"]
    return python if python.start in vocabulary and python.end in vocabulary else None
