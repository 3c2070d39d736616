"""What a model writes as a call leaves as JSON with the types of the tool's schema, or as text."""

import json
import time
from functools import partial
from importlib import import_module

import pytest

from engine.lm import mlx_lm  # noqa: F401 - its parsers come after it
from engine.serve.formats.call_forms import reader_of
from engine.serve.formats.call_parsers import PARSERS
from engine.serve.formats.calls import parse_json, read
from engine.serve.formats.output_parser import OutputParser

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "deep": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"$ref": "#/$defs/place"},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "level": {"enum": [1, 2, 3]},
        "to": {"type": ["string", "array"]},
        "any": {},
    },
    "required": ["text"],
    "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
TOOLS = [{"name": "f", "parameters": SCHEMA}, {"name": "now"}]
TYPED = [
    ("text", "12", "12"),
    ("text", "true", "true"),
    ("text", '{"a": 1}', '{"a": 1}'),
    ("text", "007 \n", "007 \n"),
    ("count", "12", 12),
    ("count", "12.0", 12),
    ("share", "0.5", 0.5),
    ("share", "2", 2),
    ("deep", "true", True),
    ("deep", "False", False),
    ("tags", '["a", "b"]', ["a", "b"]),
    ("tags", "['a']", ["a"]),
    ("where", '{"city": "Oslo"}', {"city": "Oslo"}),
    ("limit", "5", 5),
    ("limit", "null", None),
    ("level", "2", 2),
    ("to", "Bob", "Bob"),
    ("to", "5", "5"),
    ("to", '["a"]', ["a"]),
    ("any", "5", "5"),
    ("any", "[5]", [5]),
]


def qwen3_coder(name, value):
    return f"\n<function=f>\n<parameter={name}>\n{value}\n</parameter>\n</function>\n"


def glm47(name, value):
    return f"f\n<arg_key>{name}</arg_key>\n<arg_value>{value}</arg_value>\n"


def minimax_m2(name, value):
    return f'\n<invoke name="f">\n<parameter name="{name}">{value}</parameter>\n</invoke>\n'


def longcat(name, value):
    return f"f\n<longcat_arg_key>{name}</longcat_arg_key>\n<longcat_arg_value>{value}</longcat_arg_value>\n"


def minicpm5(name, value):
    return f'"f"><param name="{name}">{value}</param></function>'


# Parameters whose references and alternatives have more paths than could ever be followed: for each, an argument's text
# and its value.
NAMED = {"type": "object", "properties": {"a": {"$ref": "#"}}}
ENDLESS = {
    "itself": ({**NAMED, "anyOf": [{"$ref": "#"}] * 30}, '{"a": 1}', {"a": 1}),
    "itself in all": ({**NAMED, "allOf": [{"$ref": "#"}] * 30}, '{"a": 1}', {"a": 1}),
    "two in turn": (
        {
            "properties": {"a": {"$ref": "#/$defs/x"}},
            "$defs": {
                "x": {"anyOf": [{"$ref": "#/$defs/y"}] * 30},
                "y": {"oneOf": [{"$ref": "#/$defs/x"}] * 30},
            },
        },
        "[1]",
        [1],
    ),
    "doubling": (
        {
            "properties": {"a": {"$ref": "#/$defs/0"}},
            "$defs": {
                **{str(i): {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}] * 2} for i in range(20)},
                "20": {"type": "integer"},
            },
        },
        "5",
        5,
    ),
    "too many": ({"properties": {"a": {"anyOf": [{"type": "integer"}] * 300_000}}}, "5", "5"),
    "a long enum": ({"properties": {"a": {"enum": [1] * 300_000}}}, "5", "5"),
    "a long reference": ({"properties": {"a": {"$ref": "#" + "/a" * 300_000}}}, "5", "5"),
    "a long chain": (
        {
            "properties": {"a": {"$ref": "#/$defs/0"}},
            "$defs": {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(100_000)},
        },
        "5",
        "5",
    ),
    "odd words": (
        {
            "properties": {"a": {"$ref": 5, "type": [{}, "integer"], "anyOf": {}, "allOf": 3}},
            "required": "a",
        },
        "5",
        5,
    ),
    "spelled otherwise": (
        {
            "properties": {"a": {"$ref": "#/$defs/%3C%5B0%5D%3E~1~0"}, "b": {"$ref": "#/x/1"}},
            "$defs": {"<[0]>/~": {"type": "integer"}},
        },
        "5",
        5,
    ),
}


FORMS = [qwen3_coder, glm47, minimax_m2, longcat, minicpm5]


def parser_of(form):
    return import_module(f"mlx_lm.tool_parsers.{form.__name__}").parse_tool_call


def parsers_of(form):
    """Return mlx-lm's parser and the one for a machine without it."""
    return parser_of(form), PARSERS[form.__name__]


@pytest.mark.parametrize(("name", "value", "expected"), TYPED)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_arguments_written_as_text_get_their_schemas_types(form, name, value, expected):
    if form is not qwen3_coder and value != value.strip():
        expected = value.strip()  # these forms do not say what is around a value
    for parser in parsers_of(form):
        (call,) = read(form(name, value), parser, TOOLS)
        assert call["name"] == "f"
        assert json.loads(call["arguments"]) == {name: expected}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"count": "5"}, {"count": 5}),
        ({"text": 5}, {"text": "5"}),
        ({"count": None}, {}),
        ({"limit": None}, {"limit": None}),
        ({"tags": '["a"]'}, {"tags": ["a"]}),
        ({"text": "x", "unknown": [1]}, {"text": "x", "unknown": [1]}),
        ('{"count": 5}', {"count": 5}),
        (None, {}),
        ("", {}),
    ],
)
def test_arguments_written_as_json_get_their_schemas_types(arguments, expected):
    (call,) = read(json.dumps({"name": "f", "arguments": arguments}), parse_json, TOOLS)
    assert json.loads(call["arguments"]) == expected


DEEPSEEK = [
    '<|tool▁call▁begin|>f<|tool▁sep|>{"count": "5"}<|tool▁call▁end|>',
    '<|tool▁call▁begin|>function<|tool▁sep|>f\n```json\n{"count": 5}\n```<|tool▁call▁end|>\n',
]


@pytest.mark.parametrize("text", DEEPSEEK)
def test_calls_of_deepseek_are_read(text):
    """Their marks have wide bars."""
    calls = 2 * text.replace("|", "\uff5c")
    assert read(calls, parse_json, TOOLS) == [{"name": "f", "arguments": '{"count": 5}'}] * 2


FAULTS = {
    "no JSON": "nonsense",
    "nothing": "",
    "an empty list": "[]",
    "a list with a broken entry": '[{"name": "now", "arguments": {}}, {"name": "f"',
    "a list with an entry of another kind": '[{"name": "now", "arguments": {}}, 7]',
    "a list with an entry without a name": '[{"name": "now", "arguments": {}}, {"arguments": {}}]',
    "another function": '{"name": "g", "arguments": {}}',
    "a name that is no text": '{"name": 7, "arguments": {}}',
    "a name that is a list": '{"name": ["f"], "arguments": {}}',
    "arguments in a list": '{"name": "f", "arguments": [1]}',
    "arguments that are a number": '{"name": "f", "arguments": 7}',
    "arguments that are other text": '{"name": "f", "arguments": "x"}',
    "half a surrogate": '{"name": "f", "arguments": {"text": "\\ud83d"}}',
    "half a surrogate in a key": '{"name": "f", "arguments": {"\\udc00": 1}}',
    "half a surrogate in text": '{"name": "f", "arguments": "{\\"text\\": \\"\\\\ud83d\\"}"}',
    "no number": '{"name": "f", "arguments": {"share": NaN}}',
    "an endless number": '{"name": "f", "arguments": {"share": -Infinity}}',
    "a number that is too large": '{"name": "f", "arguments": {"share": 1e999}}',
    "an integer of many digits": '{"name": "f", "arguments": {"count": ' + "9" * 5000 + "}}",
    "deep lists": '{"name": "f", "arguments": {"any": ' + "[" * 900 + "]" * 900 + "}}",
    "a word for a number": '{"name": "f", "arguments": {"count": "many"}}',
    "a list for an object": '{"name": "f", "arguments": {"where": [1]}}',
}


@pytest.mark.rows(128)
@pytest.mark.parametrize("text", FAULTS.values(), ids=FAULTS)
def test_what_is_no_call_is_text_and_no_promise(text):
    parts = OutputParser(calling=("<c>", "</c>"), call_text=partial(reader_of, parse_json, TOOLS))
    deltas = parts.add(f"<c>{text}</c>", last=True)
    assert "".join(delta["content"] for delta in deltas) == text
    assert parts.calls == 0


VAGUE = [
    {"properties": 7},
    {"properties": {"x": 7}},
    {"properties": {"x": {"$ref": "#/x"}}},
    {"properties": {"x": {"$ref": "#"}}},
    {"properties": {"x": {"type": [7, "no"]}}},
    {"properties": {"x": {"allOf": [{"type": "null"}, {"type": "string"}]}}},
]


@pytest.mark.parametrize("schema", VAGUE)
def test_a_schema_that_says_nothing_takes_everything(schema):
    (call,) = read(
        '{"name": "f", "arguments": {"x": "y"}}', parse_json, [{"name": "f", "parameters": schema}]
    )
    assert json.loads(call["arguments"]) == {"x": "y"}


def test_a_call_keeps_the_id_that_the_model_gave():
    kimi = import_module("mlx_lm.tool_parsers.kimi_k2").parse_tool_call
    text = '<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"count": "5"}<|tool_call_end|>'
    assert read(text, kimi, TOOLS) == [{"name": "f", "arguments": '{"count": 5}', "id": "functions.f:0"}]


@pytest.mark.parametrize("name", ENDLESS)
def test_types_are_found_in_few_steps(name):
    """By recursion, the first of these schemas has 30 ** 16 paths."""
    parameters, text, value = ENDLESS[name]
    call = qwen3_coder("a", text)
    began = time.thread_time()
    (found,) = read(call, parser_of(qwen3_coder), [{"name": "f", "parameters": parameters}])
    assert json.loads(found["arguments"]) == {"a": value}
    assert time.thread_time() - began < 1


def test_many_calls_share_the_steps():
    parameters = {"properties": {"a": {"anyOf": [{"type": "integer"}] * 1000}}}
    tools = [{"name": f"f{i}", "parameters": parameters} for i in range(200)]
    call = "".join(qwen3_coder("a", "5").replace("=f>", f"=f{i}>") for i in range(200))
    read(call, parser_of(qwen3_coder), tools)
    began = time.thread_time()
    read(call, parser_of(qwen3_coder), tools)
    assert time.thread_time() - began < 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("glm47", "f" + "<arg_key>a</arg_key>" * 5000),
        ("glm47", "f" + "<arg_key>" * 20_000),
        ("qwen3_coder", "<function=" * 20_000),
        ("qwen3_coder", "<function=f>" + "<parameter=a>" * 20_000),
        ("longcat", "f" + "<longcat_arg_key>a</longcat_arg_key>" * 5000),
        ("minimax_m2", '<invoke name="f">' * 20_000),
        ("minicpm5", '"f">' + '<param name="a">' * 20_000),
    ],
)
def test_a_text_that_takes_long_to_parse_is_no_call(name, text):
    began = time.thread_time()
    with pytest.raises(ValueError, match="too long"):
        read(text, import_module(f"mlx_lm.tool_parsers.{name}").parse_tool_call, TOOLS)
    assert time.thread_time() - began < 1


ARGUMENT = '<|open|>argument key="a" type="string"<|sep|>x<|close|>argument<|sep|>'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kimi_k3", '<|open|>call tool="f"<|sep|>' + ARGUMENT * 20_000),
        ("kimi_k3", '<|open|>call tool="f"<|sep|>' * 40_000),
        ("muse_spark", '<atem:invoke name="f">' * 40_000),
        ("gemma4", "call:f{a:" * 40_000),
        ("mistral", "f[ARGS]" * 40_000),
        ("mistral", "f" * 200_000),
        ("kimi_k2", "f:0" * 40_000 + "x"),
        ("pythonic", "[" * 90_000),
        ("function_gemma", "call:" + "f" * 200_000),
    ],
)
def test_the_parsers_without_mlx_lm_read_a_text_once(name, text):
    began = time.thread_time()
    with pytest.raises((ValueError, RecursionError, MemoryError, SyntaxError)):
        read(text, PARSERS[name], TOOLS)
    assert time.thread_time() - began < 1


@pytest.mark.parametrize("form", FORMS)
def test_a_long_argument_stays_one(form):
    text = "<p>x</p>\n" * 40_000 + "end"
    for parser in parsers_of(form):
        (call,) = read(form("text", text), parser, TOOLS)
        assert json.loads(call["arguments"])["text"].strip() == text
