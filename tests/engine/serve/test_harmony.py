"""Answers in the harmony format of gpt-oss: thoughts, calls and the final text, however the text is cut."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.models import registry
from engine.serve.dialects.deltas import merge
from engine.serve.formats.harmony import Harmony, is_open, is_spoken_by
from engine.serve.grammars import grammar
from engine.serve.resident import load_resident
from tests.engine.serve.world import serving

TEMPLATES = Path(__file__).parent / "templates"
TOOLS = [
    {"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}}}},
    {"name": "noop"},
]
THOUGHT = "<|channel|>analysis<|message|>They ask a < b.<|end|>"
NEXT = "<|start|>assistant"
FINAL = "<|channel|>final<|message|>Hello!"
CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}'
OTHER_ORDER = ' to=functions.get_weather<|channel|>commentary json<|message|>{"city":\n "Oslo"}'
OSLO = ("get_weather", {"city": "Oslo"})


def told(text, size, *, cut=False, tools=TOOLS, single=False):
    """Return content, thoughts and calls of an answer that arrives in pieces."""
    parts = Harmony(tools, single=single)
    deltas = [each for at in range(0, len(text), size) for each in parts.add(text[at : at + size])]
    deltas += parts.add("", last=True, cut=cut)
    message = {}
    for delta in deltas:
        merge(message, delta)
    content, thought = (message.get(name, "") for name in ("content", "reasoning_content"))
    functions = [call["function"] for call in message.get("tool_calls", ())]
    assert parts.calls == len(functions)
    assert parts.thought == thought
    return content, thought, [(each["name"], json.loads(each["arguments"])) for each in functions]


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize(
    ("text", "content", "thought", "calls"),
    [
        (FINAL, "Hello!", "", []),
        (THOUGHT + NEXT + FINAL, "Hello!", "They ask a < b.", []),
        (FINAL + "<|return|>", "Hello!", "", []),
        (THOUGHT + NEXT + CALL, "", "They ask a < b.", [OSLO]),
        (OTHER_ORDER, "", "", [OSLO]),
        (
            CALL + "<|call|>" + NEXT + CALL.replace("Oslo", "Rome"),
            "",
            "",
            [OSLO, (OSLO[0], {"city": "Rome"})],
        ),
        ("<|channel|>commentary<|message|>First.<|end|>" + NEXT + CALL, "First.", "", [OSLO]),
        (THOUGHT + NEXT, "", "They ask a < b.", []),
        (THOUGHT + NEXT + "<|channel|>fin", "", "They ask a < b.", []),
        (CALL.replace("get_weather", "unknown"), '{"city": "Oslo"}', "", []),
        ("no channels at all", "no channels at all", "", []),
        ("<|channel|>final<|message|>a <|en", "a <|en", "", []),
    ],
)
def test_parts_of_an_answer(text, size, content, thought, calls):
    assert told(text, size) == (content, thought, calls)


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_a_stop_ends_the_final_text_only(size):
    parts, message = Harmony(TOOLS, stop=["STOP"]), {}
    text = f"<|channel|>analysis<|message|>A STOP.<|end|>{NEXT}<|channel|>final<|message|>One STOP two"
    for at in range(0, len(text), size):
        for delta in parts.add(text[at : at + size]):
            merge(message, delta)
    assert message == {"reasoning_content": "A STOP.", "content": "One "}
    assert parts.stopped == "STOP"
    called = Harmony(TOOLS, stop=["Oslo"])
    called.add(CALL)
    assert called.stopped is None


@pytest.mark.parametrize("size", [1, 1000])
def test_text_without_channels_is_not_held_back_for_long(size):
    text = "no channels " * 50
    assert told(text, size) == (text, "", [])
    parts = Harmony(TOOLS)
    assert any(parts.add(letter) for letter in text)


def test_text_is_given_out_as_it_arrives():
    parts = Harmony([])
    assert parts.add("<|channel|>analysis<|message|>So") == [{"reasoning_content": "So"}]
    assert parts.add("<|end|><|start|>assistant<|channel|>final<|message|>Hel") == [{"content": "Hel"}]
    assert parts.add("lo<") == [{"content": "lo"}]


def test_a_message_that_is_continued_is_given_out_as_it_arrives():
    parts = Harmony([])
    parts.begin("<|channel|>final<|message|>Hel")
    assert parts.add("lo") == [{"content": "lo"}]
    assert parts.add("!<|end|>" + NEXT + "<|channel|>analysis<|message|>x", last=True) == [
        {"content": "!"},
        {"reasoning_content": "x"},
    ]


@pytest.mark.parametrize(
    ("prompt", "is_in_message"),
    [(NEXT, False), (NEXT + FINAL, True), (NEXT + FINAL + "<|end|>" + NEXT, False)],
)
def test_a_prompt_may_end_inside_a_message(prompt, is_in_message):
    assert is_open("<|start|>user<|message|>Hi<|end|>" + prompt) == is_in_message


def test_call_that_is_cut_is_no_call():
    assert told(CALL, 3, cut=True)[2] == []


def test_only_the_first_call_if_one_is_wanted():
    assert told(f"{CALL}<|call|>{NEXT}{CALL}", 4, single=True)[2] == [OSLO]


def test_template_says_which_models_write_it():
    speaking = {
        path.stem
        for path in TEMPLATES.glob("*.jinja")
        if is_spoken_by(SimpleNamespace(chat_template=path.read_text(encoding="utf-8")))
    }
    assert speaking == {"gpt-oss"}
    assert not is_spoken_by(SimpleNamespace(chat_template=None))


@pytest.mark.long
def test_format_and_forced_call_are_written_to_the_final_channel(tmp_path):
    folder = tmp_path / "channels"
    shutil.copytree(registry.data() / "tiny" / "target", folder)
    about = json.loads((folder / "tokenizer_config.json").read_text())
    template = (TEMPLATES / "gpt-oss.jinja").read_text(encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({**about, "chat_template": template}))
    schema = {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}
    formatted = {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    with serving(tmp_path, "--model", str(folder)) as server:
        message = server.chat(model="channels", max_tokens=64, **formatted).json()["choices"][0]["message"]
        assert json.loads(message["content"]) == {"city": "Oslo"}
        forced = server.chat(model="channels", max_tokens=64, tools=tools, tool_choice="required").json()
        (call,) = forced["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}


JSON_FINAL = '<|channel|>final<|message|>["a",1]'
JSON_CALL = "<|channel|>commentary to=functions.noop <|constrain|>json<|message|>{}"


@pytest.mark.rows(3)
@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (JSON_FINAL, True),
        (JSON_FINAL.replace("<|message|>", " <|constrain|>json<|message|>"), True),
        (THOUGHT + NEXT + JSON_FINAL, True),
        (JSON_CALL, True),
        (THOUGHT + NEXT + "<|channel|>commentary<|message|>First.<|end|>" + NEXT + JSON_CALL, True),
        (" to=functions.noop<|channel|>commentary json<|message|>{}", True),
        (JSON_CALL.replace("noop", "other"), False),
        (FINAL, False),
        (THOUGHT, False),
        ('["a",1]', False),
    ],
)
def test_a_format_beside_tools_allows_an_answer_or_a_call(text, allowed):
    resident = load_resident("tiny", "none", "float32")
    answer = grammar.schema_grammar({"enum": [["a", 1]]})
    form = grammar.on_channels(answer, resident.grammars.mark, [{"name": "noop"}])
    matcher = resident.grammars.compiled(form, "tools").matcher()
    tokens = resident.encode(text)
    whole = matcher.validate_tokens(tokens) == len(tokens)
    assert (whole and matcher.consume_tokens(tokens) and matcher.is_accepting()) == allowed
