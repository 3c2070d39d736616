"""Requests that cannot be served: each has its status and an error object, and none disturbs the server."""

import json
import re

import pytest

ON_BOTH_BACKENDS = True

CHAT = "/v1/chat/completions"
TURN = [{"role": "user", "content": "x"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nonsense"}}}
OVERLAP = {
    "type": "json_schema",
    "json_schema": {"schema": {"oneOf": [{"type": "integer"}, {"type": "number"}]}},
}
ITSELF = {"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}}
BACK = {"type": "json_schema", "json_schema": {"schema": {"type": "string", "pattern": "^(a)\\1$"}}}

REFUSED = [
    ("no JSON", b"hello", 400, None),
    ("empty", b"", 400, None),
    ("a list", b"[]", 400, None),
    ("not UTF-8", b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}', 400, None),
    ("half a surrogate", b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400, None),
    ("deep lists", b'{"messages": ' + b"[" * 200_000, 400, None),
    ("deep objects", b'{"a":' * 50_000 + b"1" + b"}" * 50_000, 400, None),
    ("a long number", b'{"messages": [], "seed": ' + b"9" * 100_000 + b"}", 400, None),
    ("no messages", {}, 400, "messages"),
    ("no message", {"messages": []}, 400, "messages"),
    ("messages are text", {"messages": "hi"}, 400, "messages"),
    ("a strange role", {"messages": [{"role": "king", "content": "x"}]}, 400, "messages.0.role"),
    ("an image", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages"),
    ("text without text", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, 400, "messages"),
    ("a part of no kind", {"messages": [{"role": "user", "content": [{}]}]}, 400, "messages"),
    ("too hot", {"messages": TURN, "temperature": 3}, 400, "temperature"),
    (
        "NaN",
        b'{"model": "tiny", "messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        400,
        "temperature",
    ),
    (
        "infinite",
        b'{"model": "tiny", "messages": [{"role": "user", "content": "x"}], "top_p": 1e999}',
        400,
        "top_p",
    ),
    ("text for a number", {"messages": TURN, "max_tokens": "5"}, 400, "max_tokens"),
    ("none of it", {"messages": TURN, "max_tokens": 0}, 400, "max_tokens"),
    ("too many answers", {"messages": TURN, "n": 1000}, 400, "n"),
    ("an empty stop", {"messages": TURN, "stop": ""}, 400, "stop"),
    ("a seed of 80 bits", {"messages": TURN, "seed": 1 << 80}, 400, "seed"),
    ("a bias of no token", {"messages": TURN, "logit_bias": {"999999": 1}}, 400, "logit_bias"),
    ("a bias of no number", {"messages": TURN, "logit_bias": {"²": 1}}, 400, "logit_bias"),
    ("too many stops", {"messages": TURN, "stop": ["a"] * 65}, 400, "stop"),
    ("top_logprobs alone", {"messages": TURN, "top_logprobs": 2}, 400, "top_logprobs"),
    ("a strange format", {"messages": TURN, "response_format": {"type": "xml"}}, 400, "response_format"),
    ("no schema", {"messages": TURN, "response_format": {"type": "json_schema"}}, 400, "response_format"),
    ("a bad schema", {"messages": TURN, "response_format": SCHEMA}, 400, "response_format"),
    ("a strange tool", {"messages": TURN, "tools": [{"type": "web"}]}, 400, "tools"),
    ("a tool of no name", {"messages": TURN, "tools": [{"type": "function", "function": {}}]}, 400, None),
    ("choice without tools", {"messages": TURN, "tool_choice": "required"}, 400, "tool_choice"),
    ("a strange choice", {"messages": TURN, "tools": [TOOL], "tool_choice": "maybe"}, 400, "tool_choice"),
    (
        "a choice of no tools",
        {
            "messages": TURN,
            "tools": [TOOL],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}},
        },
        400,
        "tool_choice",
    ),
    ("a search", {"messages": TURN, "web_search_options": {}}, 400, "web_search_options"),
    ("alternatives that overlap", {"messages": TURN, "response_format": OVERLAP}, 400, "response_format"),
    ("a schema that is itself", {"messages": TURN, "response_format": ITSELF}, 400, "response_format"),
    ("a pattern that looks back", {"messages": TURN, "response_format": BACK}, 400, "response_format"),
    ("audio", {"messages": TURN, "audio": {"voice": "x"}}, 400, "audio"),
    ("no model", {"messages": TURN, "model": None}, 400, "model"),
    ("no such model", {"messages": TURN, "model": "gpt-4"}, 404, "model"),
    ("no such channel", {"messages": TURN, "model": "tiny@e9-q1"}, 404, "model"),
    ("another's channel", {"messages": TURN, "model": "huge@e8-q38"}, 404, "model"),
    ("a path", {"messages": TURN, "model": "../../etc/passwd"}, 404, "model"),
    ("a strange cache", {"messages": TURN, "x_kakeya": {"cache": "e9"}}, 422, "x_kakeya.cache"),
    ("a strange draft", {"messages": TURN, "x_kakeya": {"draft": "/etc"}}, 422, "x_kakeya.draft"),
    ("a strange option", {"messages": TURN, "x_kakeya": {"speed": 9}}, 422, "x_kakeya.speed"),
    ("options are text", {"messages": TURN, "x_kakeya": "fast"}, 422, "x_kakeya"),
    (
        "a boundary of all layers",
        {"messages": TURN, "x_kakeya": {"cache": "e8@q38", "boundary": 64}},
        422,
        "x_kakeya.boundary",
    ),
    ("a negative boundary", {"messages": TURN, "x_kakeya": {"boundary": -1}}, 422, "x_kakeya.boundary"),
    ("too long", {"messages": [{"role": "user", "content": "x = 1\n" * 4000}]}, 400, "messages"),
]


@pytest.mark.rows(12)
@pytest.mark.parametrize(
    ("body", "status", "param"), [row[1:] for row in REFUSED], ids=[r[0] for r in REFUSED]
)
@pytest.mark.parametrize("stream", [False, True])
def test_refusal(server, body, status, param, stream):
    if isinstance(body, dict):
        body = json.dumps({"model": "tiny", **body, "stream": stream}).encode()
    response = server.http.post(CHAT, content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].endswith(".")
    assert "<state>" not in error["message"]
    if param:
        assert error["param"].startswith(param)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("chat/completions", "messages"),
        ("completions", "prompt"),
        ("responses", "input"),
        ("messages", "messages"),
    ],
)
def test_prompt_that_is_too_long_is_refused_in_words_that_agents_know(server, path, field):
    text = "x = 1\n" * 4000
    prompt = [{"role": "user", "content": text}] if field == "messages" else text
    response = server.http.post(f"/v1/{path}", json={"model": "tiny", "max_tokens": 9, field: prompt})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error.get("param", field) == field
    message = error["message"]
    assert re.search(r"prompt is too long: \d{5} tokens > 4096 maximum", message)
    assert "This model's maximum context length is 4096 tokens" in message


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
@pytest.mark.parametrize(
    ("field", "idle", "value"),
    [
        ("guided_json", None, {"type": "object"}),
        ("structured_outputs", None, {"regex": "a+"}),
        ("stop_token_ids", [], [3]),
        ("min_tokens", 0, 5),
        ("ignore_eos", False, True),
    ],
)
def test_another_servers_option_that_would_change_the_answer_is_refused(server, path, field, idle, value):
    body = {
        "model": "tiny",
        "max_tokens": 2,
        **({"prompt": "x"} if path == "completions" else {"messages": TURN}),
    }
    assert server.http.post(f"/v1/{path}", json={**body, field: idle}).status_code == 200
    error = server.http.post(f"/v1/{path}", json={**body, field: value}).json()["error"]
    assert (error["param"], error["code"]) == (field, "unsupported")


def test_another_route_and_method(server):
    assert server.http.get("/v1/nothing").status_code == 404
    assert server.http.get(CHAT).status_code == server.http.head(CHAT).status_code == 405
    for path in ("/", "/health", "/metrics", "/v1/models/tiny"):
        head = server.http.head(path)  # as `wget --spider` sends it
        assert (head.status_code, head.content) == (200, b"")
    assert server.http.get("/v1/models/other").json()["error"]["code"] == "model_not_found"
    assert (
        server.http.post("/v1/completions", json={"model": "tiny", "prompt": ""}).json()["error"]["param"]
        == "prompt"
    )
    assert server.http.post("/v1/completions", json={"model": "tiny", "prompt": [99999]}).status_code == 400
    assert (
        server.http.post("/v1/completions", json={"model": "tiny", "prompt": "x", "echo": True}).status_code
        == 400
    )


def test_too_large(server):
    assert server.http.post(CHAT, content=b"x" * (5 << 20)).status_code == 413
    chunks = (b"x" * 65536 for _ in range(100))
    assert server.http.post(CHAT, content=chunks).status_code == 413


def test_a_cache_that_the_model_cannot_have(server):
    odd = {"model": "tiny", "messages": TURN, "x_kakeya": {"cache": "affine@4g128"}}  # heads of 64
    response = server.http.post(CHAT, json=odd)
    assert response.status_code == 422
    assert "can use" in response.json()["error"]["message"]
    streamed = server.http.post(CHAT, json={**odd, "stream": True})
    # Found out too late for the status, on a busy machine: the stream says it then.
    assert streamed.status_code == 422 or "can use" in streamed.text


ODD = {
    "nearly cold": {"temperature": 5e-324},
    "hot": {"temperature": 2, "top_k": 1 << 20, "top_p": 1e-300, "min_p": 1.0},
    "all forbidden": {"logit_bias": {str(token): -100 for token in range(1024)}},
    "odd penalties": {"frequency_penalty": -2, "presence_penalty": 2, "repetition_penalty": 0.01},
    "the least seed": {"seed": -(1 << 63)},
    "many": {"n": 8, "max_tokens": 1, "stream_options": {}},
    "null everywhere": dict.fromkeys(("temperature", "stop", "n", "tools", "response_format", "user")),
    "odd text": {"messages": [{"role": "user", "content": "\0\u200b\U0001f9ea<|im_end|>\u0300\ufffd"}]},
    "no text": {"messages": [{"role": "assistant", "content": None}, {"role": "user", "content": ""}]},
    "a tool's wild arguments": {
        "messages": [
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[" * 20_000}}]},
            {"role": "tool", "content": "x"},
        ]
    },
    "template options": {
        "chat_template_kwargs": {"tokenize": True, "messages": "x", "a b": 1, "x": {"y": 1}}
    },
    "odd stops": {"stop": ["\n", "\U0001f9ea", "\0", "x" * 1000]},
    "an empty schema": {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
    "no schema at all": {"response_format": {"type": "json_schema", "json_schema": {"schema": True}}},
    "a schema in a loop": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "schema": {
                    "$ref": "#/$defs/a",
                    "$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}]}},
                }
            },
        }
    },
    "a schema that nothing meets": {
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": []}}}
    },
    "a remote schema": {
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "http://localhost/x"}}}
    },
    "a slow pattern": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"schema": {"type": "string", "pattern": "(a|a)*(a|a)*b{9999}"}},
        }
    },
}


@pytest.mark.parametrize("fields", ODD.values(), ids=ODD)
@pytest.mark.parametrize("draft", ["none", "dflash"])
def test_odd_request_is_answered_or_refused_but_no_bug(server, fields, draft):
    body = {"model": "tiny", "messages": TURN, "max_tokens": 4, "x_kakeya": {"draft": draft}, **fields}
    response = server.http.post(CHAT, json=body)
    assert response.status_code in (200, 400), response.text
    assert server.http.get("/health").status_code == 200


def test_nothing_of_it_was_a_bug(server):
    assert server.chat().status_code == 200
    assert "err-" not in server.said()
    assert "Traceback" not in server.said()
