"""A call that the token limit cut or closed is told as cut in every dialect, and a whole one as whole."""

import json

import pytest

TURN = [{"role": "user", "content": "Pay Bob."}]
PARAMETERS = {
    "type": "object",
    "properties": {"digits": {"type": "string", "pattern": "^1{40,}$"}},
    "required": ["digits"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "pay", "parameters": PARAMETERS}}
CLOSED = 64  # tokens: the 40 digits fit, one token each, and the server closes the call in the middle of more


def chat(server, **fields):
    body = {"tools": [TOOL], "tool_choice": "required", "max_tokens": CLOSED, "messages": TURN, **fields}
    return server.http.post("/v1/chat/completions", json={"model": "tiny", "temperature": 0, **body})


def events(response):
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_chat_says_length(server):
    choice = chat(server).json()["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert set(json.loads(call["function"]["arguments"])) == {"digits"}
    assert choice["finish_reason"] == "length"
    chunks = [chunk["choices"][0] for chunk in events(chat(server, stream=True))]
    assert chunks[-1]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_messages_say_max_tokens(server, stream):
    tool = {"name": "pay", "input_schema": PARAMETERS}
    body = {"tools": [tool], "tool_choice": {"type": "any"}, "max_tokens": CLOSED, "messages": TURN}
    response = server.http.post(
        "/v1/messages", json={"model": "tiny", "temperature": 0, "stream": stream, **body}
    )
    found = events(response)[-2]["delta"] if stream else response.json()
    assert found["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("stream", [False, True])
def test_responses_say_incomplete(server, stream):
    tool = {"type": "function", "name": "pay", "parameters": PARAMETERS}
    body = {"tools": [tool], "tool_choice": "required", "max_output_tokens": CLOSED, "input": TURN}
    response = server.http.post(
        "/v1/responses", json={"model": "tiny", "temperature": 0, "stream": stream, **body}
    )
    found = events(response)[-1]["response"] if stream else response.json()
    assert (found["status"], found["output"][0]["status"]) == ("incomplete", "incomplete")
    assert found["incomplete_details"] == {"reason": "max_output_tokens"}


def test_a_call_that_needs_all_its_tokens_is_whole(server):
    tools = [{"type": "function", "function": {"name": "now"}}]
    free = chat(server, tools=tools).json()
    exact = chat(server, tools=tools, max_tokens=free["usage"]["completion_tokens"]).json()
    for found in (free, exact):
        assert found["choices"][0]["finish_reason"] == "tool_calls"
        assert found["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_cannot_be_closed_is_incomplete(server, stream):
    """As in the stream, where its beginning was sent before."""
    found = chat(server, max_tokens=20, stream=stream)
    if stream:
        choices = [chunk["choices"][0] for chunk in events(found)]
        deltas = [call for each in choices for call in each["delta"].get("tool_calls", ())]
        function, reason = deltas[0]["function"], choices[-1]["finish_reason"]
        arguments = "".join(each["function"]["arguments"] for each in deltas)
    else:
        choice = found.json()["choices"][0]
        assert choice["message"]["content"] is None
        (call,) = choice["message"]["tool_calls"]
        function, reason, arguments = call["function"], choice["finish_reason"], call["function"]["arguments"]
    assert (function["name"], reason) == ("pay", "length")
    assert arguments.startswith('{"digits":"1')
    assert not arguments.endswith("}")


def test_stop_strings_do_not_cut_a_forced_call(server):
    for stop in ("1", '"'):
        (call,) = chat(server, stop=stop).json()["choices"][0]["message"]["tool_calls"]
        assert set(json.loads(call["function"]["arguments"])) == {"digits"}
