"""An answer begins where its prompt ends: in a thought, a call or a text that the request or the template left open."""

import json

import pytest

from engine.serve.dialects.deltas import merge
from engine.serve.errors import ApiError
from tests.engine.serve.test_prompts import CITY, TOOL, TOOLS, World, turn

USER = turn("user", "q")
THINK = turn("assistant", "", reasoning_content="I should")
INLINE = turn("assistant", "<think>I should")
CONTINUE = {"continue_final_message": True}
THINKING = ("qwen2.5", "qwen3", "qwen3.5", "glm4.5", "hermes", "mistral", "gemma2", "llama3.1")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("openings"))
    yield made
    made.server.engine.stop()


def told(world, name, dialect, answer, **body):
    """Return what the client gets of an answer to a request."""
    begun, message = world.begun(name, dialect, **body), {}
    parts = (begun.chat if dialect == "responses" else begun).new_parser()
    for letter in answer:
        for delta in parts.add(letter):
            merge(message, delta)
    for delta in parts.add("", last=True):
        merge(message, delta)
    return message


def blocks(*content):
    return [USER, turn("assistant", list(content))]


ASKED = [
    ("chat", {"messages": [USER, THINK], **CONTINUE}),
    ("chat", {"messages": [USER, INLINE], **CONTINUE}),
    ("messages", {"messages": blocks({"type": "thinking", "thinking": "I should", "signature": ""})}),
    ("messages", {"messages": [USER, INLINE]}),
    (
        "responses",
        {"input": [USER, {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I should"}]}]},
    ),
]


@pytest.mark.parametrize(("dialect", "body"), ASKED)
@pytest.mark.parametrize("name", THINKING)
def test_a_thought_that_is_open_is_continued(world, name, dialect, body):
    prompt = world.prompt(name, dialect, **body)
    assert prompt.endswith("I should")
    assert prompt.rindex("<think>") > prompt.rfind("</think>")
    assert told(world, name, dialect, " add.</think>\n\nIt is 4.", **body) == {
        "reasoning_content": " add.",
        "content": "It is 4.",
    }


@pytest.mark.parametrize(("dialect", "body"), ASKED[:1] + ASKED[2:3] + ASKED[4:])
def test_a_thought_on_a_channel_is_continued(world, dialect, body):
    assert world.prompt("gpt-oss", dialect, **body).endswith("<|channel|>analysis<|message|>I should")
    answer = " add.<|end|><|start|>assistant<|channel|>final<|message|>It is 4."
    assert told(world, "gpt-oss", dialect, answer, **body) == {
        "reasoning_content": " add.",
        "content": "It is 4.",
    }


@pytest.mark.parametrize("name", [*THINKING, "gpt-oss"])
def test_json_follows_an_open_thought(world, name):
    form = {"type": "json_schema", "json_schema": {"schema": CITY}}
    begun = world.begun(name, "chat", messages=[USER, THINK], response_format=form, **CONTINUE)
    (job,) = begun.pending.jobs
    matcher, resident = job.options.grammar.matcher(), begun.resident
    text = " add.</think>\n"
    if name == "gpt-oss":
        text = " add.<|end|><|start|>assistant<|channel|>final<|message|>"
    tokens = resident.encode(f'{text}{{"city":"Oslo"}}')
    assert matcher.validate_tokens(tokens) == len(tokens)


def test_a_last_thought_is_shown_or_refused(world):
    """Chat continues a turn only if it is asked to."""
    assert "I should" in world.prompt("qwen3.5", "chat", messages=[USER, THINK])
    with pytest.raises(ApiError, match="thought") as error:
        world.prompt("hermes", "chat", messages=[USER, THINK])
    assert error.value.status == 400
    assert world.prompt("hermes", "chat", messages=[USER, THINK, USER])


@pytest.mark.parametrize(
    ("content", "answer", "expected"),
    [
        ("It is", " 4.", {"content": " 4."}),
        ("<think>So.</think>\n\nIt is", " 4.", {"content": " 4."}),
        ("What <think> means:", " a mark.", {"reasoning_content": " a mark."}),
        ("It is", "<think>no</think>\n\n4.", {"reasoning_content": "no", "content": "4."}),
    ],
)
def test_a_text_is_continued(world, content, answer, expected):
    body = {"messages": [USER, turn("assistant", content)], **CONTINUE}
    assert told(world, "qwen2.5", "chat", answer, **body) == expected


def test_a_users_marks_open_nothing(world):
    turns = [turn("user", "What does <think> mean? And <tool_call>?")]
    for name in THINKING:
        assert told(world, name, "chat", "A mark.", messages=turns, tools=[TOOL]) == {"content": "A mark."}


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_a_call_that_is_open_is_continued_and_told_whole(world, dialect):
    begun = 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city":'
    body = {"messages": [USER, turn("assistant", begun)], "tools": TOOLS[dialect]}
    body |= CONTINUE if dialect == "chat" else {}
    message = told(world, "hermes", dialect, ' "Oslo"}}\n</tool_call>', **body)
    (call,) = message["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (
        "weather",
        {"city": "Oslo"},
    )
    assert "content" not in message
    long = told(world, "hermes", dialect, f' "{"o" * 200}"}}}}\n</tool_call> Done.', **body)
    assert json.loads(long["tool_calls"][0]["function"]["arguments"]) == {"city": "o" * 200}
    assert told(world, "hermes", dialect, " nonsense</tool_call>", **body) == {"content": " nonsense"}


def test_a_call_without_marks_is_continued(world):
    body = {"messages": [USER, turn("assistant", '{"name": "weather", "parameters": {"city": "Os')]}
    message = told(world, "llama3.1", "chat", 'lo"}}', **body, tools=[TOOL], **CONTINUE)
    assert message["tool_calls"][0]["function"]["arguments"] == '{"city": "Oslo"}'
