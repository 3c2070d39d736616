"""The two other APIs: the same answers, in their own words."""

import json

import jsonschema
import pytest

ON_BOTH_BACKENDS = True

TURN = [{"role": "user", "content": "def read_lines(path):"}]
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}


def chat(server, **fields):
    return server.chat(TURN[0]["content"], max_tokens=24, **fields).json()["choices"][0]["message"]["content"]


def messages(server, **fields):
    body = {"model": "tiny", "max_tokens": 24, "temperature": 0, "messages": TURN, **fields}
    return server.http.post("/v1/messages", json=body)


def events(server, path, body):
    with server.http.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200
        lines = [line for line in response.iter_lines() if line]
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    found = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert names == [each["type"] for each in found]
    return found


@pytest.mark.long
def test_message(server):
    found = messages(server).json()
    assert found["content"] == [{"type": "text", "text": chat(server), "citations": []}]
    assert (found["type"], found["role"], found["stop_reason"]) == ("message", "assistant", "end_turn")
    assert found["usage"]["output_tokens"] > 0
    assert found["usage"]["input_tokens"] + found["usage"]["cache_read_input_tokens"] > 0
    assert messages(server, max_tokens=3).json()["stop_reason"] == "max_tokens"
    word = chat(server)[3:6]
    stopped = messages(server, stop_sequences=["zzz", word]).json()
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", word)


@pytest.mark.long
def test_message_that_follows_a_schema(server):
    wanted = {"format": {"type": "json_schema", "schema": CITY}}
    (block,) = messages(server, max_tokens=64, output_config=wanted).json()["content"]
    jsonschema.validate(json.loads(block["text"]), CITY)
    assert messages(server, output_config={"format": {"type": "xml"}}).status_code == 400
    assert messages(server, output_config={"effort": "low"}).status_code == 200


def test_message_with_system_and_blocks(server):
    blocks = [{"type": "text", "text": TURN[0]["content"]}]
    found = messages(
        server, messages=[{"role": "user", "content": blocks}], system=[{"type": "text", "text": "x"}]
    )
    said = [{"role": "system", "content": "x"}, *TURN]
    same = server.http.post(
        "/v1/chat/completions", json={"model": "tiny", "messages": said, "max_tokens": 24, "temperature": 0}
    )
    assert found.json()["content"][0]["text"] == same.json()["choices"][0]["message"]["content"]


def test_streamed_message(server):
    body = {"model": "tiny", "max_tokens": 24, "temperature": 0, "messages": TURN}
    found = events(server, "/v1/messages", body)
    kinds = [each["type"] for each in found]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert "".join(each["delta"]["text"] for each in found[2:-3]) == chat(server)
    assert found[-2]["delta"]["stop_reason"] == "end_turn"
    assert found[-2]["usage"]["output_tokens"] == messages(server).json()["usage"]["output_tokens"]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
def test_message_tool_use(server, choice):
    fields = {"tools": [{"name": "weather", "input_schema": CITY}], "tool_choice": choice}
    found = messages(server, **fields).json()
    (call,) = found["content"]
    assert (call["type"], call["name"]) == ("tool_use", "weather")
    jsonschema.validate(call["input"], CITY)
    assert found["stop_reason"] in ("tool_use", "max_tokens")
    body = {"model": "tiny", "max_tokens": 24, "temperature": 0, "messages": TURN, **fields}
    told = events(server, "/v1/messages", body)
    assert told[1]["content_block"]["type"] == "tool_use"
    parts = [each["delta"]["partial_json"] for each in told if each["type"] == "content_block_delta"]
    assert json.loads("".join(parts)) == call["input"]
    answer = [{"type": "tool_result", "tool_use_id": call["id"], "content": "sunny"}]
    turns = [*TURN, {"role": "assistant", "content": found["content"]}, {"role": "user", "content": answer}]
    assert messages(server, messages=turns, tools=fields["tools"]).status_code == 200


@pytest.mark.long
def test_message_with_as_many_tools_and_as_long_names_as_the_api_allows(server):
    tools = [{"name": f"{i:0128}", "input_schema": CITY} for i in range(200)]
    chosen = {"type": "tool", "name": tools[7]["name"]}
    found = messages(server, tools=tools, tool_choice=chosen, max_tokens=200).json()
    assert found["content"][0]["name"] == tools[7]["name"]


def test_message_with_more_stop_sequences_than_openai_allows(server):
    answer = messages(server, stop_sequences=[f"<{i}>" for i in range(8)])
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("fields", "status", "kind"),
    [
        ({"max_tokens": None}, 400, "invalid_request_error"),
        ({"messages": [{"role": "king", "content": "x"}]}, 400, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": 5}]}, 400, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, "invalid_request_error"),
        ({"model": "claude"}, 404, "not_found_error"),
        ({"tool_choice": {"type": ["x"]}, "tools": [{"name": "a"}]}, 400, "invalid_request_error"),
        ({"tools": [{"name": 7}]}, 400, "invalid_request_error"),
        ({"mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}]}, 400, "invalid_request_error"),
        ({"tool_choice": {"type": "any"}}, 400, "invalid_request_error"),
        ({"tool_choice": {"type": "tool", "name": "a"}}, 400, "invalid_request_error"),
    ],
)
def test_message_refusals(server, fields, status, kind):
    refused = messages(server, **fields)
    assert refused.status_code == status, refused.text
    assert refused.json()["type"] == "error"
    assert refused.json()["error"]["type"] == kind


def test_message_that_is_too_large(server):
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        refused = server.http.post(path, content=b"x" * (5 << 20))
        assert (refused.status_code, refused.json()["error"]["type"]) == (413, "request_too_large")


def test_message_with_nulls_where_the_api_allows_them(server):
    tools = [{"type": None, "name": "weather", "input_schema": CITY, "cache_control": None}]
    assert messages(server, tools=tools, stop_sequences=None, system=None).status_code == 200
    for choice in ("auto", "none"):
        assert messages(server, tool_choice={"type": choice}).status_code == 200


def test_response(server):
    given = {"model": "tiny", "temperature": 0, "max_output_tokens": 24, "input": TURN[0]["content"]}
    found = server.ai.responses.create(**given)
    assert found.output_text == chat(server)
    assert found.status == "completed"
    assert found.usage.total_tokens == found.usage.input_tokens + found.usage.output_tokens
    cut = server.ai.responses.create(**{**given, "max_output_tokens": 3})
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    kinds, text = [], ""
    with server.ai.responses.stream(**given) as stream:
        for each in stream:
            kinds.append(each.type)
            text += each.delta if each.type == "response.output_text.delta" else ""
        assert stream.get_final_response().output_text == text == chat(server)
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-1] == "response.completed"


def test_response_follows_a_schema(server):
    text = {"format": {"type": "json_schema", "name": "city", "schema": CITY}}
    found = server.ai.responses.create(
        model="tiny", temperature=0, max_output_tokens=24, input=TURN, instructions="Be brief.", text=text
    )
    jsonschema.validate(json.loads(found.output_text), CITY)


def test_response_calls_a_function(server):
    tools = [{"type": "function", "name": "weather", "parameters": CITY}]
    given = {"model": "tiny", "temperature": 0, "max_output_tokens": 24, "tools": tools}
    found = server.ai.responses.create(**given, input=TURN, tool_choice="required")
    (call,) = found.output
    assert (call.type, call.name) == ("function_call", "weather")
    jsonschema.validate(json.loads(call.arguments), CITY)
    told = events(server, "/v1/responses", {**given, "input": TURN, "tool_choice": "required"})
    parts = [each["delta"] for each in told if each["type"] == "response.function_call_arguments.delta"]
    assert "".join(parts) == call.arguments
    assert [each["sequence_number"] for each in told] == list(range(len(told)))
    items = [
        *TURN,
        {"type": "function_call", "call_id": call.call_id, "name": "weather", "arguments": call.arguments},
        {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
    ]
    assert server.ai.responses.create(**given, input=items).status in ("completed", "incomplete")


def test_a_namespaces_function_is_called_under_both_names(server):
    inner = {"type": "function", "name": "weather", "parameters": CITY}
    space = {"type": "namespace", "name": "mcp__maps", "description": "Maps.", "tools": [inner]}
    given = {"model": "tiny", "temperature": 0, "max_output_tokens": 24, "input": TURN}
    found = server.ai.responses.create(**given, tools=[space], tool_choice="required")
    assert (found.output[0].namespace, found.output[0].name) == ("mcp__maps", "weather")
    named = {"type": "function", "namespace": "mcp__maps", "name": "weather"}
    told = events(server, "/v1/responses", {**given, "tools": [space], "tool_choice": named})
    (item,) = [each["item"] for each in told if each["type"] == "response.output_item.added"]
    assert (item["namespace"], item["name"]) == ("mcp__maps", "weather")


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
@pytest.mark.parametrize("names", [["b"], ["a", "c"]])
def test_choice_of_several_tools(server, path, names):
    chat = path == "chat/completions"

    def named(name, **more):
        function = {"name": name, **more}
        return {"type": "function", "function": function} if chat else {"type": "function", **function}

    allowed = {"mode": "required", "tools": [named(name) for name in names]}
    choice = {"type": "allowed_tools", **({"allowed_tools": allowed} if chat else allowed)}
    asked = {"messages": TURN, "max_tokens": 40} if chat else {"input": TURN, "max_output_tokens": 40}
    tools = [named(name, parameters=CITY) for name in "abc"]
    body = {"model": "tiny", "temperature": 0, **asked, "tools": tools, "tool_choice": choice}
    answer = server.http.post(f"/v1/{path}", json=body).json()
    if chat:
        called = answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"]
    else:
        called = answer["output"][0]["name"]
    assert called in names
    allowed["tools"].append(named("unknown"))
    assert server.http.post(f"/v1/{path}", json=body).status_code == 400


@pytest.mark.parametrize("parallel", [None, True, False])
def test_response_says_whether_calls_may_be_parallel(server, parallel):
    fields = {} if parallel is None else {"parallel_tool_calls": parallel}
    found = server.ai.responses.create(model="tiny", max_output_tokens=2, input=TURN, **fields)
    assert found.parallel_tool_calls is (parallel is not False)


def test_counted_tokens(server):
    fields = {"messages": TURN, "system": "Be brief."}
    counted = server.http.post("/v1/messages/count_tokens", json={"model": "tiny", **fields})
    usage = messages(server, **fields, x_kakeya={"prefix": False}).json()["usage"]
    assert counted.json() == {"input_tokens": usage["input_tokens"]}
    refused = server.http.post("/v1/messages/count_tokens", json={"model": "gone", **fields})
    assert (refused.status_code, refused.json()["type"]) == (404, "error")


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"input": "x", "tool_choice": "required"}, 400),
        ({"input": [{"role": "king", "content": "x"}]}, 400),
        ({"input": []}, 400),
        ({"input": "x", "reasoning": {"effort": 5}}, 400),
        ({"input": None}, 400),
        ({"input": [{"type": "item_reference", "id": "x"}]}, 400),
        ({"input": [{"role": "user", "content": 5}]}, 400),
        ({"input": "x", "previous_response_id": "resp_1"}, 400),
        ({"input": "x", "prompt": {"id": "pmpt_1"}}, 400),
        ({"input": "x", "top_logprobs": 2}, 400),
        ({"input": "x", "include": ["message.output_text.logprobs"]}, 400),
        ({"input": "x", "tools": [{"type": "web_search"}]}, 400),
        ({"input": "x", "tools": [{"type": "namespace", "name": "a", "tools": [{"type": "custom"}]}]}, 400),
        ({"input": "x", "tools": [{"type": "namespace", "name": "a"}]}, 400),
        ({"input": [{"role": "assistant", "content": 5}, {"role": "assistant", "content": "x"}]}, 400),
        ({"input": "x", "text": {"format": {"type": "json_schema"}}}, 400),
        *(
            ({"input": [{"type": "reasoning", name: value}]}, 400)
            for name in ("content", "summary")
            for value in (7, {"text": "x"}, ["x"], [{"text": "x"}], [{"type": "summary_text", "text": 7}])
        ),
    ],
)
def test_response_refusals(server, fields, status):
    refused = server.http.post("/v1/responses", json={"model": "tiny", **fields})
    assert refused.status_code == status, refused.text
    error = refused.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"].split(".")[0] in fields


NO_SCHEMA = {"output_config": {"format": {"type": "json_schema"}}}


@pytest.mark.parametrize(
    ("path", "fields", "named"),
    [
        ("responses", {"input": []}, "input: "),
        ("responses", {"input": [{"role": "user", "content": {"a": 1}}]}, "input.content: "),
        ("responses", {"input": "x", "tools": [{"type": "function", "name": ""}]}, "tools.name: "),
        ("messages", {"messages": TURN, "max_tokens": 5, "stop_sequences": [""]}, "stop_sequences: "),
        ("messages", {"messages": TURN, "max_tokens": 5, "tools": [{"name": 7}]}, "tools.name: "),
        ("messages", {"messages": TURN, "max_tokens": 5, **NO_SCHEMA}, "output_config.format of type "),
        ("responses", {"input": "x", "text": NO_SCHEMA["output_config"]}, "text.format of type "),
    ],
)
def test_a_refusal_names_the_field_that_was_sent(server, path, fields, named):
    refused = server.http.post(f"/v1/{path}", json={"model": "tiny", **fields})
    assert refused.json()["error"]["message"].startswith(named)


def test_a_compressed_body_is_named_as_such(server):
    refused = server.http.post("/v1/messages", content=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
    assert refused.status_code == 415
    assert "'gzip'" in refused.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
@pytest.mark.parametrize("field", ["metadata", "reasoning", "text", "tools"])
def test_response_repeats_no_number_that_is_no_json(server, field, number, stream):
    value = f'[{{"type": "function", "name": "f", "parameters": {{"minimum": {number}}}}}]'
    value = value if field == "tools" else f'{{"a": {number}}}'
    body = json.dumps(
        {"model": "tiny", "input": "x", "max_output_tokens": 2, "stream": stream, field: "HERE"}
    )
    refused = server.http.post("/v1/responses", content=body.replace('"HERE"', value))
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)


@pytest.mark.long
def test_page(server):
    page = server.http.get("/")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "<script>" not in page.text
    assert " style=" not in page.text
    assert not [word for word in page.text.split() if word.startswith("on") and "=" in word]
    for path in ("/page.js", "/page.css"):
        assert server.http.get(path).status_code == 200
