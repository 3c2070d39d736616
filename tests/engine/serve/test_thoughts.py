"""Thoughts, calls and ends of a model that has them: the bundled `tiny-chat`."""

import json

import jsonschema
import pytest

from tests.engine.serve.world import backends, serving

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"location": {"type": "string"}},
            "required": ["location"],
        },
    },
}
THOUGHT_END, CALL_START = 2049, 2050
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FORM = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}


@pytest.fixture(scope="module", params=backends())
def chatting(tmp_path_factory, request):
    with serving(
        tmp_path_factory.mktemp("thoughts"), "--backend", request.param, "--model", "tiny-chat"
    ) as server:
        yield server


def asked(server, text, **fields):
    response = server.chat(text, model="tiny-chat", max_tokens=80, **fields)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.long
def test_answer_ends(chatting):
    choice = asked(chatting, "Count from 1 to 5.", reasoning_effort="none")["choices"][0]
    assert choice["message"]["content"] == "1, 2, 3, 4, 5"
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("draft", ["none", "lookup"])
def test_thought_is_split_off_and_counted(chatting, draft):
    found = asked(chatting, "My name is Alice.", reasoning_effort="low", x_kakeya={"draft": draft})
    message = found["choices"][0]["message"]
    assert message["content"].strip() == "Hello Alice!"
    assert "Alice" in message["reasoning_content"]
    assert "think>" not in message["content"] + message["reasoning_content"]
    assert (
        0
        < found["usage"]["completion_tokens_details"]["reasoning_tokens"]
        < found["usage"]["completion_tokens"]
    )


@pytest.mark.parametrize("effort", ["none", "high"])
def test_call_is_found_in_an_answer_that_is_free_to_make_it(chatting, effort):
    text = "What is the weather in San Francisco?"
    choice = asked(chatting, text, tools=[TOOL], reasoning_effort=effort)["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"location": "San Francisco"}
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("draft", ["none", "lookup"])
def test_required_call_may_follow_a_thought(chatting, draft):
    fields = {"tools": [TOOL], "tool_choice": "required", "x_kakeya": {"draft": draft}}
    choice = asked(chatting, "What is the weather in Oslo?", reasoning_effort="low", **fields)["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"location": "Oslo"}
    assert choice["message"]["reasoning_content"].strip()
    assert choice["message"]["content"] is None


@pytest.mark.parametrize("effort", ["none", "low"])
def test_a_required_format_leaves_the_choice_of_a_call(chatting, effort):
    fields = {"tools": [TOOL], "response_format": FORM, "reasoning_effort": effort}
    choice = asked(chatting, "What is the weather in Oslo?", **fields)["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"location": "Oslo"}
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")


def test_an_answer_beside_tools_has_the_required_format(chatting):
    never = {str(CALL_START): -100}
    fields = {"tools": [TOOL], "response_format": FORM, "logit_bias": never, "reasoning_effort": "none"}
    choice = asked(chatting, "What is the weather in Oslo?", **fields)["choices"][0]
    jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)
    assert "tool_calls" not in choice["message"]


def test_thought_without_end_leaves_room_for_the_json(chatting):
    never = {str(THOUGHT_END): -100}
    fields = {"response_format": FORM, "reasoning_effort": "low", "logit_bias": never}
    found = asked(chatting, "JSON with name.", **fields)["choices"][0]
    jsonschema.validate(json.loads(found["message"]["content"]), SCHEMA)
    assert found["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("draft", ["none", "lookup"])
def test_grammar_begins_behind_the_thought(chatting, draft, stream):
    fields = {"reasoning_effort": "low", "response_format": FORM, "x_kakeya": {"draft": draft}}
    if stream:
        body = {"model": "tiny-chat", "messages": [{"role": "user", "content": "JSON with name."}], **fields}
        chunks = chatting.ai.chat.completions.create(
            model=body["model"],
            messages=body["messages"],
            stream=True,
            temperature=0,
            max_tokens=80,
            reasoning_effort="low",
            response_format=FORM,
            extra_body={"x_kakeya": fields["x_kakeya"]},
        )
        deltas = [chunk.choices[0].delta for chunk in chunks]
        content = "".join(delta.content or "" for delta in deltas)
        thought = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    else:
        message = asked(chatting, "JSON with name.", **fields)["choices"][0]["message"]
        content, thought = message["content"], message.get("reasoning_content", "")
    jsonschema.validate(json.loads(content), SCHEMA)
    assert "{" not in thought
    assert thought.strip()


@pytest.mark.long
def test_other_dialects_think_only_if_asked(chatting):
    body = {
        "model": "tiny-chat",
        "messages": [{"role": "user", "content": "Hello."}],
        "max_tokens": 60,
        "temperature": 0,
    }
    plain = chatting.http.post("/v1/messages", json=body).json()
    assert [block["type"] for block in plain["content"]] == ["text"]
    thinking = {"type": "enabled", "budget_tokens": 1024}
    found = chatting.http.post("/v1/messages", json={**body, "thinking": thinking}).json()
    assert [block["type"] for block in found["content"]] == ["thinking", "text"]
    body = {"model": "tiny-chat", "input": "Hello.", "max_output_tokens": 60, "temperature": 0}
    plain = chatting.ai.responses.create(**body)
    assert [item.type for item in plain.output] == ["message"]
    with chatting.ai.responses.stream(**body, reasoning={"effort": "low", "summary": "auto"}) as stream:
        kinds = {event.type for event in stream}
        found = stream.get_final_response()
    assert "response.reasoning_summary_text.delta" in kinds
    assert [item.type for item in found.output] == ["reasoning", "message"]
    assert found.output[0].summary[0].text
    assert found.usage.output_tokens_details.reasoning_tokens > 0
