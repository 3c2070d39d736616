"""The server's life: a full queue, clients that leave or dawdle, its end, and who may ask."""

import json
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine.serve.world import cancelled, serving, until

# Without drafts: most tests look at what happens meanwhile, also on a machine where they are slow to do so.
LONG = {
    "model": "tiny",
    "prompt": "import os\n",
    "max_tokens": 4000,
    "temperature": 0,
    "logit_bias": {"0": -100, "2": -100},
    "x_kakeya": {"draft": "none"},
}


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """A server for one answer at a time and one more that waits."""
    options = ("--max-active", "1", "--max-queue", "1", "--max-body", "64kb")
    with serving(tmp_path_factory.mktemp("narrow"), *options) as server:
        server.chat()  # loads the model
        yield server


def occupied(server, **fields):
    """Open a stream that goes on for long; return it when its first event has come."""
    context = server.http.stream("POST", "/v1/completions", json={**LONG, "stream": True, **fields})
    response = context.__enter__()
    lines = response.iter_lines()
    next(lines)
    return context, lines


def leave(context):
    context.__exit__(None, None, None)


def test_full_queue_is_refused_with_retry_after(narrow):
    running, _ = occupied(narrow)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(narrow.http.post, "/v1/completions", json={**LONG, "max_tokens": 2})
        until(lambda: narrow.stats()["waiting"] == 1)
        refused = narrow.chat()
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_error"
        leave(running)
        assert waiting.result().status_code == 200
    assert narrow.chat().status_code == 200


def test_disconnected_stream_frees_its_slot(narrow):
    running, _ = occupied(narrow, max_tokens=4000)
    assert narrow.stats()["active"] == 1
    before = cancelled(narrow)
    leave(running)
    until(lambda: narrow.stats()["active"] == 0)
    assert cancelled(narrow) == before + 1
    assert narrow.stats()["cache_bytes"] == 0


@pytest.mark.parametrize("stream", [True, False])
def test_disconnected_request_frees_its_slot_before_an_answer(narrow, stream):
    body = json.dumps({**LONG, "max_tokens": 4000, "stream": stream}).encode()
    before = cancelled(narrow)
    host, port = narrow.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as peer:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        peer.sendall(head.encode() + body)
        until(lambda: narrow.stats()["active"] == 1)
    until(lambda: narrow.stats()["active"] == 0)
    assert cancelled(narrow) == before + 1


def test_disconnected_while_it_waits(narrow):
    running, _ = occupied(narrow)
    host, port = narrow.url.removeprefix("http://").split(":")
    body = b'{"model":"tiny","prompt":"x","max_tokens":1}'
    with socket.create_connection((host, int(port))) as peer:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        peer.sendall(head.encode() + body)
        until(lambda: narrow.stats()["waiting"] == 1)
    until(lambda: narrow.stats()["waiting"] == 0)
    leave(running)


def test_slow_client_stalls_nobody(narrow):
    host, port = narrow.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        # The other's body is awaited for as long as it is open.
        assert narrow.chat(max_tokens=2).status_code == 200


def test_reader_that_stops_reading_stalls_nobody(narrow):
    running, _ = occupied(narrow, max_tokens=200)
    assert narrow.chat(max_tokens=2).status_code == 200  # the slot is free although nobody read on
    leave(running)


def test_body_limit_is_the_one_asked_for(narrow):
    assert narrow.http.post("/v1/chat/completions", content=b" " * 70_000).status_code == 413


@pytest.mark.long
def test_late_request_is_ended(tmp_path):
    with serving(tmp_path, "--request-timeout", "1") as server:
        until(lambda: server.chat(max_tokens=1).status_code == 200)  # the model is loaded, in whatever time
        response = server.http.post("/v1/completions", json={**LONG, "max_tokens": 3000})
        assert response.status_code == 408
        assert response.headers["x-should-retry"] == "false"  # SDKs would send it three times
        assert server.stats()["active"] == 0


def test_running_answers_end_before_the_server_does(tmp_path):
    with serving(tmp_path) as server:
        running, lines = occupied(server, max_tokens=200)
        server.process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
        leave(running)
        assert rest[-1] == "data: [DONE]"
        assert server.process.wait(60) == 0
        assert "Traceback" not in server.said()


@pytest.mark.long
def test_drain_ends_what_takes_too_long(tmp_path):
    with serving(tmp_path, "--drain", "1") as server:
        server.chat(max_tokens=1)
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(server.http.post, "/v1/completions", json={**LONG, "max_tokens": 4000})
            until(lambda: server.stats()["active"] == 1)
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(120)
            assert late.result().status_code == 503


@pytest.mark.long
def test_key_is_asked_for(tmp_path):
    key = tmp_path / "key"
    key.write_text("sesame-sesame-sesame\n")
    with serving(tmp_path, "--api-key-file", str(key)) as server:
        assert server.chat().status_code == 401
        assert server.http.get("/v1/models").status_code == 401
        assert server.http.get("/metrics").status_code == 401
        refused = server.http.post("/v1/messages", json={}).json()  # in Anthropic's form
        assert (refused["type"], refused["error"]["type"]) == ("error", "authentication_error")
        assert server.http.get("/health").status_code == 200
        for headers in ({"Authorization": "Bearer wrong"}, {"Authorization": "sesame-sesame-sesame"}):
            assert server.http.get("/v1/models", headers=headers).status_code == 401
        for headers in (
            {"Authorization": "Bearer sesame-sesame-sesame"},
            {"x-api-key": "sesame-sesame-sesame"},
        ):
            assert server.http.get("/v1/models", headers=headers).status_code == 200
        assert "sesame" not in server.said()


def test_only_loopback_and_own_pages_may_ask_without_a_key(narrow):
    for host in ("evil.example", "evil.example:1339", "10.0.0.1", "[::2]", "[", ""):
        refused = narrow.http.get("/v1/models", headers={"Host": host})
        assert refused.status_code in (400, 403), host
    for host in ("localhost:99", "127.0.0.1", "[::1]:1339"):
        assert narrow.http.get("/v1/models", headers={"Host": host}).status_code == 200
    for origin in ("https://evil.example", "null", "http://["):
        refused = narrow.http.get("/v1/models", headers={"Origin": origin})
        assert refused.json()["error"]["code"] == "origin_not_allowed"
        assert "access-control-allow-origin" not in refused.headers
    own = {"Origin": "http://localhost:7", "Host": "localhost:7"}
    assert narrow.http.get("/v1/models", headers=own).status_code == 200


@pytest.mark.long
def test_allowed_origin_gets_cors(tmp_path):
    with serving(tmp_path, "--allow-origin", "https://app.example") as server:
        found = server.http.get("/v1/models", headers={"Origin": "https://app.example"})
        assert found.headers["access-control-allow-origin"] == "https://app.example"
        assert server.http.get("/v1/models", headers={"Origin": "https://b.example"}).status_code == 403
        sent = "anthropic-dangerous-direct-browser-access,anthropic-version,content-type,x-api-key,x-stainless-os"
        ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": sent}
        allowed = server.http.options("/v1/messages", headers={"Origin": "https://app.example", **ask})
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-headers"] == sent
        refused = server.http.options("/v1/messages", headers={"Origin": "https://b.example", **ask})
        assert "access-control-allow-origin" not in refused.headers


@pytest.mark.long
def test_idle_model_is_unloaded_and_comes_back(tmp_path):
    with serving(tmp_path, "--idle-unload", "0.5") as server:
        first = server.chat().json()["choices"]
        until(lambda: server.stats()["models"] == {})
        assert server.stats()["prefixes"]["bytes"] == 0
        assert server.chat().json()["choices"][0]["message"] == first[0]["message"]
