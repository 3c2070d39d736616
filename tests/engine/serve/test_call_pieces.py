"""Long calls are given out while the model writes them, and are those that a parser of the whole text reads."""

import itertools
import json
import random
from copy import deepcopy
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlx_lm import tokenizer_utils

from engine.lm import mlx_lm  # noqa: F401 - its parsers come after it
from engine.serve.dialects.deltas import merge
from engine.serve.formats import call_forms, call_gemma, call_xml
from engine.serve.formats.call_forms import reader_of
from engine.serve.formats.call_parsers import PARSERS, XTML, parser_for
from engine.serve.formats.calls import as_object, parse_json, read
from engine.serve.formats.harmony import Harmony
from engine.serve.formats.output_parser import OutputParser

BIG = 'x = 1  # né ✓ 🙂 "quoted" \\ <b> {y}\n\ttwo\n\n' * 30 + "end"
SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "deep": {"type": "boolean"},
        "tags": {"type": "array"},
        "where": {"type": "object"},
        "limit": {"type": ["integer", "null"]},
        "any": {},
    },
    "required": ["text"],
}
TOOLS = [{"name": "write", "parameters": SCHEMA}, {"name": "now"}]
ARGUMENTS = {
    "text first": {"text": BIG, "path": "a.txt"},
    "text last": {"path": "a.txt", "count": 3, "text": BIG},
    "all types": {"count": -7, "share": 0.5, "deep": True, "tags": ["a", None], "where": {"a": [[]]}, "text": BIG},
    "long list": {"tags": [{"n": i, "of": "é"} for i in range(80)], "text": ""},
    "untyped": {"any": BIG, "text": "y"},
    "untyped object": {"any": {"a": BIG}, "text": "y"},
    "unknown": {"text": BIG, "more": {"deep": [BIG]}},
    "text like JSON": {"text": json.dumps({"a": BIG})},
    "text that is null": {"text": BIG, "path": "null"},
    "short": {"text": "z"},
}  # fmt: skip


def text_of(value):
    return value if isinstance(value, str) else json.dumps(value)


def xml(head, argument, foot):
    def write(arguments):
        inner = "".join(argument.format(name, text_of(value)) for name, value in arguments.items())
        return head + inner + foot

    return write


def bar(text):
    return text.replace("|", "\uff5c")


def called(arguments, **more):
    return json.dumps({"name": "write", "arguments": arguments, **more})


def gemma(value):
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{gemma(each)}" for name, each in value.items()) + "}"
    return f"[{','.join(map(gemma, value))}]" if isinstance(value, list) else json.dumps(value)


K3 = '<|open|>argument key="{}" type="string"<|sep|>{}<|close|>argument<|sep|>'
FORMS = {
    "hermes": ("json", lambda a: f"\n{called(a)}\n"),
    "hermes in ASCII and lines": ("json", lambda a: json.dumps(json.loads(called(a)), indent=1)),
    "an id before": ("json", lambda a: json.dumps({"id": "c7", "name": "write", "arguments": a})),
    "llama": ("json", lambda a: json.dumps({"name": "write", "parameters": a})),
    "arguments in a string": ("json", lambda a: called(json.dumps(a))),
    "arguments before the name": ("json", lambda a: json.dumps({"arguments": a, "name": "write"})),
    "deepseek v3.1": (
        "json",
        lambda a: bar(f"<|tool▁call▁begin|>write<|tool▁sep|>{json.dumps(a)}<|tool▁call▁end|>"),
    ),
    "deepseek r1": (
        "json",
        lambda a: (
            bar("<|tool▁call▁begin|>function<|tool▁sep|>write\n```json\n")
            + json.dumps(a)
            + bar("\n```<|tool▁call▁end|>\n")
        ),
    ),
    "mistral list": ("mistral", lambda a: f"[{called(a, id='a12345678')}]"),
    "mistral": ("mistral", lambda a: f"write[ARGS]{json.dumps(a)}"),
    "kimi": (
        "kimi_k2",
        lambda a: (
            f"<|tool_call_begin|>functions.write:0<|tool_call_argument_begin|>{json.dumps(a)}<|tool_call_end|>"
        ),
    ),
    "qwen3-coder": (
        "qwen3_coder",
        xml("\n<function=write>\n", "<parameter={}>\n{}\n</parameter>\n", "</function>\n"),
    ),
    "glm": ("glm47", xml("write\n", "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n", "")),
    "longcat": (
        "longcat",
        xml(
            "write\n",
            "<longcat_arg_key>{}</longcat_arg_key>\n<longcat_arg_value>{}</longcat_arg_value>\n",
            "",
        ),
    ),
    "minimax": (
        "minimax_m2",
        xml('\n<invoke name="write">\n', '<parameter name="{}">{}</parameter>\n', "</invoke>\n"),
    ),
    "minicpm": ("minicpm5", xml('"write">', '<param name="{}">{}</param>', "")),
    "muse": (
        "muse_spark",
        xml(
            '<atem:invoke name="write">\n',
            '<atem:parameter name="{}">{}</atem:parameter>\n',
            "</atem:invoke>",
        ),
    ),
    "gemma4": ("gemma4", lambda a: f"call:write{gemma(a)}"),
    "kimi k3": ("kimi_k3", xml('<|open|>call tool="write" index="1"<|sep|>', K3, "<|close|>call<|sep|>")),
}
PIECES = set(FORMS) - {"arguments in a string", "arguments before the name"}
# Parsers of forms whose texts end with a mark of their own.
QUOTING = ("json", "mistral", "kimi_k2", "gemma4")


@pytest.fixture(params=["mlx-lm", "without mlx-lm"])
def parsers(request, monkeypatch):
    """Both sources of the parsers of whole calls."""
    if request.param != "mlx-lm":
        monkeypatch.setitem(globals(), "parser_of", own_parser_of)


def own_parser_of(module):
    return parse_json if module == "json" else PARSERS[module]


def mlx_lm_parser_of(module):
    return parse_json if module == "json" else import_module(f"mlx_lm.tool_parsers.{module}").parse_tool_call


parser_of = mlx_lm_parser_of


def told(text, size, module, **options):
    """Return the message, and the deltas, of a call that arrives in pieces of a size; 0 for sizes by chance."""
    marks = options.pop("calling", ("<c>", "</c>"))
    parts = OutputParser(calling=marks, call_text=partial(reader_of, parser_of(module), TOOLS), **options)
    deltas, at, chance = [], 0, random.Random(len(text))
    while at < len(text):
        step = size or chance.randint(1, 40)
        deltas += parts.add(text[at : at + step])
        at += step
    deltas += parts.add("", last=True)
    message = {}
    for delta in deepcopy(deltas):
        merge(message, delta)
    return message, deltas, parts


def functions(message):
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return [(each["name"], json.loads(each["arguments"])) for each in calls]


@pytest.mark.usefixtures("parsers")
@pytest.mark.rows(6)
@pytest.mark.parametrize("form", FORMS)
def test_a_call_in_pieces_is_the_whole_one(form):
    for arguments, size in itertools.product(ARGUMENTS, [0, 1]):
        module, write = FORMS[form]
        text = write(ARGUMENTS[arguments])
        (whole,) = read(text, parser_of(module), TOOLS)
        expected = whole["name"], json.loads(whole["arguments"])
        if arguments == "text like JSON":  # Muse Spark's parser reads and writes it
            expected = "write", ARGUMENTS[arguments]
        message, deltas, parts = told(f"<c>{text}</c>", size, module)
        assert functions(message) == [expected], (arguments, size)
        assert (message.get("content"), parts.calls, parts.broken) == (None, 1, False)
        if arguments.startswith("text ") and form in PIECES and size:
            first = deltas[0]["tool_calls"][0]["function"]
            assert (first["name"], len(deltas) > 50) == ("write", True)
            longest = max(len(each["tool_calls"][0]["function"]["arguments"]) for each in deltas)
            assert longest < 200


@pytest.mark.usefixtures("parsers")
@pytest.mark.parametrize("text", ["a</c>", "</c><c>", f"{BIG}</c>{BIG}"], ids=["short", "both", "long"])
@pytest.mark.parametrize("form", sorted(form for form in PIECES if FORMS[form][0] in QUOTING))
def test_a_mark_in_a_quoted_text_ends_no_call(form, text):
    """As in the source of a chat template, which an agent writes."""
    module, write = FORMS[form]
    for size in (0, 1, 10_000):
        message, _, parts = told(f"<c>{write({'path': text, 'text': text})}</c>\nso", size, module)
        assert functions(message) == [("write", {"path": text, "text": text})], size
        assert (message["content"], parts.broken) == ("so", False)


@pytest.mark.usefixtures("parsers")
@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("form", FORMS)
def test_several_calls_in_one_section(form, size):
    module, write = FORMS[form]
    if form in ("minicpm", "glm", "longcat", "qwen3-coder"):  # one call between two marks
        return
    one, two = write({"text": BIG}), write({"text": "b", "count": 2})
    joined = f"{one}, {two}" if module == "json" and one.strip()[0] == "{" else f"{one}{two}"
    joined = joined if joined == f"{one}{two}" else f"[{joined}]"
    joined = joined.replace("][", ", ") if form == "mistral list" else joined
    joined = joined.replace("}write[ARGS]", "}[TOOL_CALLS]write[ARGS]")
    expected = [
        (each["name"], json.loads(each["arguments"])) for each in read(joined, parser_of(module), TOOLS)
    ]
    assert len(expected) == 2
    message, _, parts = told(f"<c>{joined}</c>", size, module)
    assert functions(message) == expected
    assert (message.get("content"), parts.calls, parts.broken) == (None, 2, False)
    single, _, _ = told(f"<c>{joined}</c>", size, module, single=True)
    assert functions(single) == expected[:1]


HARMONY = "<|channel|>commentary to=functions.write <|constrain|>json<|message|>"


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_call_of_harmony_in_pieces(size):
    parts, deltas = Harmony(TOOLS), []
    text = f"{HARMONY}{json.dumps(ARGUMENTS['all types'])}<|call|>"
    for at in range(0, len(text), size):
        deltas += parts.add(text[at : at + size])
    message = {}
    for delta in [*deltas, *parts.add("", last=True)]:
        merge(message, delta)
    assert functions(message) == [("write", ARGUMENTS["all types"])]


NOT_CALLS = [
    "is how one begins a call, " + "and so on, " * 20,
    '{"name": "other", "arguments": {"text": "' + "x" * 300 + '"}}',
    "{'name': 'write', " + "x" * 300,
    '{"x": ' + "[" * 300,
    '["' + "x" * 300,
]


@pytest.mark.parametrize("size", [1, 9, 1000])
@pytest.mark.parametrize("end", ["</c>", ""])
@pytest.mark.parametrize("text", NOT_CALLS)
def test_what_is_no_call_is_given_out_as_it_arrives(text, end, size):
    message, deltas, parts = told(f"so <c>{text}{end}", size, "json", calling=("<c>", end))
    assert (message["content"], parts.calls, parts.broken) == (f"so {text}", 0, False)
    if size == 1:
        assert max(len(each["content"]) for each in deltas) < 200


@pytest.mark.parametrize("size", [1, 9, 1000])
@pytest.mark.parametrize("end", ["</c>", "", "STOP"])
@pytest.mark.parametrize(
    "fault",
    [
        "",
        ",, ",
        ' "y": NaN}}',
        ' "y": 1e999}}',
        ' "y": "\\ud83d"}}',
        ' "count": "many"}}',
        ' "y": \t}}',
        " ]",
    ],
)
def test_a_long_call_that_is_malformed_stays_incomplete(fault, end, size):
    begun = '{"name": "write", "arguments": {"text": "' + "x" * 300 + '"'
    text = f"<c>{begun}{fault and ','}{fault}{end}"
    message, _, parts = told(text, size, "json", calling=("<c>", end and "</c>"), stop=["STOP"])
    (call,) = message["tool_calls"]
    arguments = call["function"]["arguments"]
    assert arguments.startswith('{"text": "xxx')
    assert as_object(arguments)["text"] == "x" * 300
    with pytest.raises(ValueError, match=r"delimiter|Expecting"):
        json.loads(arguments)
    assert (parts.calls, parts.broken) == (1, True)


HALF = json.dumps("\ud83d")
HALVES = {
    "arguments in a string": (called(json.dumps({"text": "x" * 99 + "\ud83d"})), 0),
    "a name in a string": (called(json.dumps({"x" * 99 + "\ud83d": 1})), 0),
    "an object in a string": (called({"where": f'{{"a": {HALF}}}'}), 0),
    "behind a long text": (called({"text": BIG, "where": f'{{"a": {HALF}}}'}), 1),
    "an id": (f'{{"id": {HALF}, "name": "now"}}', 0),
    "an id before the name": (f'{{"arguments": {{}}, "id": {HALF}, "name": "now"}}', 0),
}


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("case", HALVES)
def test_half_a_character_is_never_given_out(case, size):
    text, calls = HALVES[case]
    message, _, parts = told(f"<c>{text}</c>", size, "json")
    json.dumps(message, ensure_ascii=False).encode()
    assert (parts.calls, parts.broken) == (calls, case == "behind a long text")
    assert calls or message["content"] == text


@pytest.mark.parametrize("size", [1, 9, 1000])
def test_text_behind_a_long_call_is_text(size):
    text = FORMS["llama"][1](ARGUMENTS["text first"]) + "\nI <think>really</think> did."
    options = {"calling": ("<|python_tag|>", ""), "bare": True, "thinking": ("<think>", "</think>")}
    message, _, parts = told(text, size, "json", **options)
    assert functions(message) == [("write", ARGUMENTS["text first"])]
    assert (message["content"], message["reasoning_content"]) == ("I  did.", "really")
    assert not parts.broken


@pytest.mark.usefixtures("parsers")
@pytest.mark.parametrize("size", [0, 1])
def test_a_call_of_function_gemma_in_pieces(size):
    """Its parser ends a call at the first brace, also within text."""
    text = f"call:write{{text:<escape>{BIG}<escape>,path:<escape>a.txt<escape>,count:3}}"
    message, deltas, parts = told(f"<c>{text}</c>", size, "function_gemma")
    assert functions(message) == [("write", {"text": BIG, "path": "a.txt", "count": 3})]
    assert len(deltas) > 20
    assert not parts.broken


K3_JSON = '<|open|>json type="object"<|sep|>{"text": "a", "count": 3}<|close|>json<|sep|>'
WHOLE = {
    "no argument, glm": ("glm47", "now"),
    "JSON, glm": ("glm47", '{"name": "write", "arguments": {"text": "a"}}'),
    "a name and JSON, glm": ("glm47", 'write\n{"text": "a", "count": 2}'),
    "unknown arguments, glm": ("glm47", "write<arg_key>more</arg_key><arg_value>[1, true]</arg_value>"),
    "no argument, qwen": ("qwen3_coder", "<function=now>\n</function>"),
    "CDATA": ("minicpm5", '"write"><param name="text"><![CDATA[a < b && c]]></param>'),
    "single quotes": ("minimax_m2", "<invoke name='write'><parameter name='text'>a</parameter></invoke>"),
    "JSON, K3": (
        "kimi_k3",
        f'<|open|>call tool="write" index="1"<|sep|>{K3_JSON}<|close|>call<|sep|>',
    ),
    "Python": ("pythonic", "[write(text='a', tags=[1, true, null], where={'x': False}), now()]"),
    "Python, one call": ("pythonic", '[write(text="a, b=(c)")]'),
    "Kimi without marks": ("kimi_k2", 'functions.write:3<|tool_call_argument_begin|>{"text": "a"}'),
    "Mistral, several": ("mistral", 'write[ARGS]{"text": "a"}now[ARGS]{}'),
    "Gemma, nested": (
        "gemma4",
        'call:write{text:<|"|>call:now{}, "x"<|"|>,where:{a:[{b:<|"|>c<|"|>}]},count:-3}',
    ),
    "Gemma, several": ("gemma4", 'call:write{text:<|"|>a<|"|>}call:now{}'),
    "function Gemma": ("function_gemma", "call:write{text:<escape>a, b<escape>,count:3}"),
    "Muse": (
        "muse_spark",
        '<atem:invoke name="write"><atem:parameter name="tags">["a"]</atem:parameter></atem:invoke>',
    ),
    "Laguna": ("laguna", "write<arg_key>count</arg_key>\n<arg_value>3</arg_value>"),
    "LongCat, JSON": ("longcat", '{"name": "write", "arguments": {"text": "a"}}'),
}


@pytest.mark.parametrize("case", WHOLE)
def test_whole_calls_are_those_that_mlx_lm_reads(case):
    module, text = WHOLE[case]
    assert read(text, own_parser_of(module), TOOLS) == read(text, mlx_lm_parser_of(module), TOOLS)


@pytest.mark.parametrize(
    "text", ["", "x", "a b c", "{", "[", "call:", "<function=", "write[ARGS]", "[f(1)]", "é" * 999]
)
def test_text_without_a_call_is_refused_by_every_parser(text):
    for parser in PARSERS.values():
        with pytest.raises((ValueError, LookupError, SyntaxError, AttributeError)):
            read(text, parser, TOOLS)


def test_every_form_that_the_server_reads_has_a_parser():
    """Those whose calls arrive in pieces, and Python's, which are read as a whole."""
    assert PARSERS.keys() == {
        *call_xml.FORMS,
        *call_gemma.QUOTES,
        *call_forms.JSON_FORMS,
        "json_tools",
        "pythonic",
    }
    for name, parser in PARSERS.items():
        theirs = import_module(f"mlx_lm.tool_parsers.{name}")
        assert (parser.start, parser.end) == (theirs.tool_call_start, theirs.tool_call_end)


TEMPLATES = sorted((Path(__file__).parent / "templates").iterdir(), key=str)
SPOKEN = [
    "<minimax:tool_call>", "<|tool_call>x<tool_call|>", "<start_function_call>", "<longcat_tool_call>", "<arg_key>",
    "<|tool_list_start|>", "<tool_call>\n<function=", r"<tool_call>\n<function=", "<|tool_calls_section_begin|>",
    '<function name="a"><param name="b">', "[TOOL_CALLS]", "<atem:function_calls>", "{{ tool_call.name }}<tool_call>",
    "<tool_call>", "no tools", None,
]  # fmt: skip
WORDS = [{}, {"<|tool_call_start|>": 1, "<|tool_call_end|>": 2}, dict.fromkeys(XTML, 1)]


@pytest.mark.parametrize("vocabulary", WORDS, ids=["no marks", "Python", "XTML"])
def test_a_template_teaches_the_form_that_mlx_lm_finds_in_it(vocabulary):
    for template in [*SPOKEN, *(path.read_text() for path in TEMPLATES)]:
        tokenizer = SimpleNamespace(chat_template=template, get_vocab=lambda: vocabulary)
        ours = parser_for(template, vocabulary)
        assert (ours and ours.form) == tokenizer_utils._infer_tool_parser(tokenizer), template
    assert parser_for("[TOOL_CALLS]", {}, "laguna").form == "laguna"
