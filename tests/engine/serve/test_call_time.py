"""Each parser takes time linear in the text, whatever a model writes, and reads honest calls as mlx-lm does."""

import time
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules
from types import SimpleNamespace

import pytest

from engine.lm import mlx_lm  # noqa: F401 - its parsers come after it
from engine.serve.formats import call_gemma, call_xml
from engine.serve.formats.call_forms import form_of, reader_of
from engine.serve.formats.call_parsers import PARSERS
from engine.serve.formats.calls import LONGEST, parse_json, read

LETTERS = 200_000
TOOLS = [
    {"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "b": {}}}},
    {"name": "g", "parameters": {}},
]


def marks_of(name):
    """Return the marks of a form, and words that begin a call in it."""
    form = call_xml.FORMS.get(name)
    own = [] if form is None else [form.opens, form.named, form.key, form.keyed, form.value, form.closes]
    own += list(form.whole or ()) if form is not None else []
    if name in call_gemma.QUOTES:
        own += [call_gemma.QUOTES[name], "call:f{", "call:f{a:"]
    if name == "kimi_k2":
        own += ["<|tool_call_begin|>", "<|tool_call_begin|>f:0<|tool_call_argument_begin|>"]
    return list(filter(None, [PARSERS[name].start, PARSERS[name].end, *own]))


def hostile(name):
    """Return pieces to repeat, each of which has stalled some parser of some form."""
    form, marks = call_xml.FORMS.get(name), marks_of(name)
    yield from marks
    yield from (first + second for first in marks for second in marks if first != second)
    yield from [
        "a",
        " ",
        "\n",
        "{",
        "[",
        "[{",
        '{"a":',
        '"',
        "\\",
        "(",
        "-",
        "'",
        "call:",
        "call:a",
        "a:",
        ",a",
        ", ",
    ]
    yield from [
        "[ARGS]",
        "f[ARGS]",
        "f [ARGS] {",
        "f[ARGS]{}",
        "[f(",
        "f(a=",
        "a=,",
        'a=",',
        "[a",
        "a.",
        ":1",
        "0",
    ]
    if form is not None:
        call = f"{form.opens}f{form.named}"
        yield from [call, call + form.closes, f"{call}{form.key}a{form.keyed}{form.value}"]
        yield f"{form.key}a{form.keyed}{form.value}[{form.valued}"
        yield f'{form.opens} tool="f"{form.named}{form.closes}'
        yield 'tool="'


def texts(name):
    letters = LONGEST if name == "pythonic" else LETTERS  # it reads no longer text
    form = call_xml.FORMS.get(name)
    begun = [""] if form is None else ["", f"{form.opens}f{form.named}"]
    begun += ["[", '[{"name": "f", "arguments": ', "f[ARGS]", "[f(a=", "call:f{a:"]
    pieces = [*dict.fromkeys(hostile(name))]
    for piece in pieces:
        yield piece * (letters // len(piece))
    for before in begun[1:]:
        for piece in pieces[-30:]:
            yield before + piece * ((letters - len(before)) // len(piece))


@pytest.mark.long
@pytest.mark.parametrize("name", PARSERS)
def test_no_text_stalls_a_parser(name):
    for text in texts(name):
        began = time.thread_time()
        with suppress(Exception):  # parsers fail in many ways
            read(text, PARSERS[name], TOOLS)
        seconds = time.thread_time() - began
        assert seconds < 1, (seconds, text[:60])


def test_mistrals_letters_stall_no_answer():
    """As the server reads them: as they come, and whole at the end."""
    form, text = PARSERS["mistral"], "a" * LETTERS
    began = time.thread_time()
    reader = reader_of(form, TOOLS)
    for at in range(0, LETTERS, 1000):
        reader.add(text[at : at + 1000])
    reader.end()
    with pytest.raises(ValueError, match="no call"):
        read(text, form, TOOLS)
    assert time.thread_time() - began < 1


def theirs_of(name):
    return import_module(f"mlx_lm.tool_parsers.{name}")


def test_both_backends_read_calls_by_one_table():
    """Each form that mlx-lm has is read by our parser, also for a tokenizer that mlx-lm wrapped."""
    forms = {module.name for module in iter_modules(import_module("mlx_lm.tool_parsers").__path__)}
    assert forms == PARSERS.keys()
    for name in forms:
        theirs = theirs_of(name)
        tokenizer = SimpleNamespace(
            tool_call_start=theirs.tool_call_start,
            tool_call_end=theirs.tool_call_end,
            tool_parser=theirs.parse_tool_call,
        )
        start, end, parse = form_of(tokenizer)
        assert (start, end) == (PARSERS[name].start, PARSERS[name].end)
        own = parse_json if name == "json_tools" else PARSERS["glm47" if name == "laguna" else name]
        assert parse is own  # mlx-lm reads Laguna's calls by the parser of GLM's


def test_a_form_that_only_mlx_lm_knows_is_read_by_mlx_lm():
    def parse_tool_call(text, tools):
        return {"name": "f", "arguments": {"a": text}}

    tokenizer = SimpleNamespace(tool_call_start="<x>", tool_call_end="</x>", tool_parser=parse_tool_call)
    assert form_of(tokenizer) == ("<x>", "</x>", parse_tool_call)


HONEST = {
    "mistral": [
        'f[ARGS]{"a": "x"}', 'f[ARGS]{"a": "x"}g[ARGS]{}', 'f [ARGS] {"a": "[ARGS]"}',
        '[{"name": "f", "arguments": {"a": "x"}, "id": "abc123456"}]',
        '[{"name": "f", "arguments": "{\\"a\\": \\"x\\"}"}]',
        '[{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]', '![ARGS]{}f[ARGS]{"a": "x"}',
    ],
    "pythonic": [
        '[f(a="x")]', '[f(a="x"), g()]', "[f(a='x', b=[1, true, null])]", "[f(a=hello world)]", "[f(a=hello, b=3)]",
        '[f(a="it is", b=word)]', '[f(a="x" y)]', "[g()]",
    ],
    "qwen3_coder": ["<function=f>\n<parameter=a>\nx\n</parameter>\n</function>", "<function=g>\n</function>"],
    "glm47": ["f<arg_key>a</arg_key><arg_value>x</arg_value><arg_key>b</arg_key><arg_value>[1]</arg_value>", "g"],
    "kimi_k2": ['<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": "x"}<|tool_call_end|>'],
    "gemma4": ['call:f{a:<|"|>x{,b:<|"|>,b:{c:[1,2]}}', "call:g{}"],
    "function_gemma": ["call:f{a:<escape>x<escape>}"],
    "minicpm5": ['"f"><param name="a">x</param>', '"f"><param name="a"><![CDATA[x\n<y>]]></param>'],
    "minimax_m2": ['<invoke name="f"><parameter name="a">x</parameter></invoke><invoke name="g"></invoke>'],
    "muse_spark": ['<atem:invoke name="f"><atem:parameter name="a">x</atem:parameter></atem:invoke>'],
    "longcat": ["f<longcat_arg_key>a</longcat_arg_key><longcat_arg_value>x</longcat_arg_value>"],
    "laguna": ["f<arg_key>a</arg_key>\n<arg_value>x</arg_value>"],
    "kimi_k3": [
        '<|open|>call tool="f"<|sep|><|open|>argument key="a"<|sep|>x<|close|>argument<|sep|><|close|>call<|sep|>'
    ],
    "json_tools": ['{"name": "f", "arguments": {"a": "x"}}'],
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_calls_are_those_that_mlx_lm_reads(name):
    assert HONEST.keys() == PARSERS.keys()
    for text in HONEST[name]:
        ours, theirs = read(text, PARSERS[name], TOOLS), read(text, theirs_of(name).parse_tool_call, TOOLS)
        assert ours == theirs, text
        assert ours
