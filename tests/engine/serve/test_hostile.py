"""What hostile clients send, and what they hold open."""

import asyncio
import contextlib
import json
import socket
import time
from http.client import HTTPResponse

import httpx
import pytest

from bridge.common import listening
from engine.serve.dialects.deltas import tokens_in
from engine.serve.grammars import compiled
from engine.serve.grammars.compiled import Grammars
from engine.serve.grammars.grammar import schema_grammar
from engine.serve.resident import load_resident
from tests.engine.serve.world import serving


@pytest.fixture(scope="module")
def resident():
    return load_resident("tiny-chat", "none", "float32")


def asked(server, schema, **fields):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return server.chat(response_format=form, max_tokens=48, **fields)


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "object", "not": {"required": ["x"]}}, "keyword not"),
        ({"type": "array", "uniqueItems": True}, "keyword uniqueItems"),
        ({"type": "array", "contains": {"type": "integer"}}, "keyword contains"),
        ({"type": "object", "if": {"required": ["x"]}, "then": {"required": ["y"]}}, "keyword if, then"),
        ({"type": "object", "propertyNames": {"pattern": "^a"}}, "keyword propertyNames"),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, "keyword dependentRequired"),
        ({"type": "string", "format": "phone-number"}, "format phone-number"),
        ({"type": "string", "pattern": "^(?=a)b"}, "look-around"),
        # A client's options for the library below must not turn its refusal off.
        ({"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}}, "keyword uniqueItems"),
    ],
)
@pytest.mark.parametrize("where", ["response_format", "tools"])
def test_keyword_that_cannot_be_enforced_is_named(server, schema, named, where):
    if where == "tools":
        function = {"name": "f", "parameters": schema}
        answer = server.chat(tools=[{"type": "function", "function": function}], tool_choice="required")
    else:
        answer = asked(server, schema)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported", where)
    assert named in error["message"]


@pytest.mark.parametrize(
    ("schema", "right"),
    [
        (
            {
                "$defs": {"a": {"type": "integer", "maximum": 9}},
                "type": "object",
                "properties": {"x": {"$ref": "#/$defs/a"}},
                "required": ["x"],
                "additionalProperties": False,
            },
            lambda found: list(found) == ["x"] and found["x"] <= 9,
        ),
        ({"anyOf": [{"const": 1}, {"const": None}]}, lambda found: found in (1, None)),
        ({"type": "string", "pattern": "^a[0-9]{2}$"}, lambda found: found[0] == "a" and found[1:].isdigit()),
        # The brackets that close other values are characters here: the way to an end needs a digit.
        ({"type": "string", "pattern": "[0-9]"}, lambda found: any(map(str.isdigit, found))),
        (True, lambda found: found is not ...),
    ],
)
def test_schema_is_enforced(server, schema, right):
    answer = asked(server, schema)
    assert answer.status_code == 200, answer.text
    assert right(json.loads(answer.json()["choices"][0]["message"]["content"]))


@pytest.mark.parametrize("schema", [{"$ref": "#"}, False, {"type": "integer", "minimum": 2, "maximum": 1}])
def test_schema_that_nothing_satisfies_is_refused(server, schema):
    answer = asked(server, schema)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == "response_format"


def test_way_to_an_end_does_not_run_in_a_circle(resident):
    grammars = Grammars(resident.pair.tokenizer, resident.vocabulary)
    state = grammars.compiled(schema_grammar({"type": "string", "pattern": "[0-9]"}), "tools").start()
    (quote,) = resident.encode('"')
    (letter,) = resident.encode("x")
    assert state.fit([quote, letter], 4, None) == [quote, letter]
    state.commit([quote, letter])
    (digit,) = state.fit([letter], 2, None)
    assert resident.decode([digit]).isdigit()
    assert state.forced_to_end


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """A server whose connections nobody else uses."""
    with serving(tmp_path_factory.mktemp("crowded")) as running:
        yield running


@pytest.mark.long
def test_head_that_does_not_end_is_cut_off(crowded):
    """One of these connections, of the few hundred that a server takes, is freed for others."""
    host, port = crowded.url.removeprefix("http://").split(":")
    began = time.monotonic()
    with contextlib.ExitStack() as held:
        peers = [
            held.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(3)
        ]
        peers[0].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        peers[1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with HTTPResponse(peers[1]) as answer:
            answer.begin()
            assert (answer.status, bool(answer.read())) == (200, True)
        peers[1].sendall(b"G")  # the second request of a connection
        for _ in range(3):
            time.sleep(1)
            peers[0].sendall(b"x")  # a byte now and then gives no more time
        assert [peer.recv(1) for peer in (peers[0], peers[2])] == [b"", b""]
        assert peers[1].recv(1) == b""
        passed = time.monotonic() - began
    assert listening.HEAD_S - 1 < passed < listening.HEAD_S + 45
    assert httpx.get(f"{crowded.url}/health", timeout=60).status_code == 200


@pytest.mark.long
@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"GET /health HTTP/1.1\r\nX-Slow: ", b""),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 200"),
    ],
    ids=["half heads", "idle"],
)
def test_connections_without_a_request_make_way(crowded, sent, answer):
    with contextlib.ExitStack() as held:
        host, port = crowded.url.removeprefix("http://").split(":")
        for _ in range(522):  # ten more than it takes
            peer = held.enter_context(socket.create_connection((host, int(port)), timeout=60))
            peer.sendall(sent)
            assert peer.recv(len(answer)) == answer
        began = time.monotonic()
        assert httpx.get(f"{crowded.url}/health", timeout=60).status_code == 200
        assert time.monotonic() - began < listening.HEAD_S


def test_text_that_cannot_fit_is_refused_before_it_is_encoded(server, resident):
    """Encoding it took ten seconds, and requests that needed the same tokenizer waited for that long."""
    assert resident.longest >= resident.context * 37  # the longest token of this vocabulary
    refused = server.chat("a" * 3_900_000)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    assert "3900" in refused.json()["error"]["message"]  # characters: nobody counted tokens
    assert "characters" in refused.json()["error"]["message"]


def test_loop_goes_on_while_the_tokenizer_is_occupied(resident):
    """The tokens of a thought are counted while another request's prompt is being encoded."""

    async def counted():
        counting = asyncio.create_task(tokens_in(resident, ["a thought", ""]))
        ticks = 0
        while ticks < 20:
            await asyncio.sleep(0.01)
            ticks += 1
        assert not counting.done()
        resident.lock.release()
        return await counting

    resident.lock.acquire()
    assert asyncio.run(asyncio.wait_for(counted(), 120)) == len(resident.encode("a thought"))


@pytest.mark.rows(1)
@pytest.mark.parametrize("depth", [150, 900, 100_000])
def test_arguments_of_a_tool_call_may_be_nested_as_deep_as_they_like(server, depth):
    call = {"name": "f", "arguments": "[" * depth + "]" * depth}
    said = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": call}]}
    body = {"model": "tiny", "max_tokens": 2, "messages": [said, {"role": "user", "content": "x"}]}
    answer = server.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == (200 if depth < 1000 else 400), answer.text


def test_grammar_is_compiled_before_the_engine_begins_the_answer(resident, monkeypatch):
    """Compiling takes seconds for a large schema, and all answers would wait for the engine's thread."""
    grammars = Grammars(resident.pair.tokenizer, resident.vocabulary)
    large = {f"v{i}": {"type": "integer"} for i in range(50)}
    made = schema_grammar({"type": "object", "properties": large, "required": ["v7"]})
    first = grammars.compiled(made, "response_format")

    def compiled_again(*_, **__):
        raise AssertionError("it is compiled already")

    monkeypatch.setattr("engine.serve.grammars.compiled.llguidance.LLMatcher", compiled_again)
    first.start().commit(resident.encode('{"v1":1'))
    second = first.start()
    assert second.accepted_length(resident.encode('{"v')) > 0  # at the beginning, wherever the first one is
    assert grammars.compiled(made, "response_format") is first


def test_compiled_grammars_are_few(resident, monkeypatch):
    monkeypatch.setattr(compiled, "MOST_KEPT", 3)
    grammars = Grammars(resident.pair.tokenizer, resident.vocabulary)
    made = [schema_grammar({"const": i}) for i in range(compiled.MOST_KEPT + 5)]
    for each in made:
        grammars.compiled(each, "tools")
    compile_one, seen = compiled.llguidance.LLMatcher, []

    def counted(tokenizer, text, **options):
        seen.append(text)
        return compile_one(tokenizer, text, **options)

    monkeypatch.setattr("engine.serve.grammars.compiled.llguidance.LLMatcher", counted)
    for each in reversed(made):
        grammars.compiled(each, "tools")
    assert seen == made[4::-1]


@pytest.mark.long
def test_requests_of_one_connection_are_answered_in_their_order(server):
    """Sent without waiting: chat, stream, chunked body, health. Then what is no HTTP closes the connection."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"

    def post(**fields):
        body = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 2, "temperature": 0, **fields})
        return body.encode()

    plain, stream, chunks = post(), post(stream=True), post(max_tokens=3)
    sent = head + b"Content-Length: %d\r\n\r\n" % len(plain) + plain
    sent += head + b"Content-Length: %d\r\n\r\n" % len(stream) + stream
    sent += head + b"Transfer-Encoding: chunked\r\n\r\n"
    sent += b"".join(b"1\r\n%c\r\n" % byte for byte in chunks) + b"0\r\n\r\n"
    sent += b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nnonsense\r\n\r\n"
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as peer:
        peer.sendall(sent)
        found = b"".join(iter(lambda: peer.recv(1 << 16), b""))
    marks = [b'"text_completion"', b"[DONE]", b'"completion_tokens":3', b'"status":"ok"', b"Invalid HTTP"]
    places = [found.rindex(mark) if mark == b'"status":"ok"' else found.index(mark) for mark in marks]
    assert places == sorted(places)
    assert found.count(b"HTTP/1.1 200") == 4
