"""The HTTP layer over a backend without an engine: every API, streams, cancelling, errors, metrics and health."""

import json
import socket
import threading
import time

import httpx
import pytest
import uvicorn

from bridge.common.listening import Connection
from engine.serve.app import make_app
from engine.serve.server import Server
from engine.serve.settings import Settings
from tests.engine.serve.echo_backend import ANSWER, BROKEN, ENDLESS, EchoBackend

CHAT, TEXT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
PATHS = (CHAT, TEXT, MESSAGES, RESPONSES)


@pytest.fixture(scope="module")
def http():
    """A client of a server over the backend, on a port of this machine."""
    server = Server(Settings(models=("echo", "absent"), draft="none"), EchoBackend)
    listener = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(uvicorn.Config(make_app(server), log_config=None, http=Connection, ws="none"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60) as client:
        yield client
    running.should_exit = True
    thread.join(30)


def body(path, prompt="How are you?", **more):
    turns = [{"role": "user", "content": prompt}]
    own = {
        CHAT: {"messages": turns, "max_tokens": 64},
        TEXT: {"prompt": prompt, "max_tokens": 64},
        MESSAGES: {"messages": turns, "max_tokens": 64},
        RESPONSES: {"input": prompt, "max_output_tokens": 64},
    }
    return {"model": "echo", **own[path], **more}


def text_of(path, answer):
    if path in (CHAT, TEXT):
        (choice,) = answer["choices"]
        return choice["text"] if path == TEXT else choice["message"]["content"]
    return answer["content"][0]["text"] if path == MESSAGES else answer["output"][0]["content"][0]["text"]


def streamed(path, events):
    if path in (CHAT, TEXT):
        choices = [choice for event in events for choice in event["choices"]]
        return "".join(
            choice["text"] if path == TEXT else choice["delta"].get("content", "") for choice in choices
        )
    deltas = [
        event["delta"] for event in events if event["type"].endswith(("text.delta", "content_block_delta"))
    ]
    return "".join(delta if path == RESPONSES else delta["text"] for delta in deltas)


def events(http, path, **more):
    lines = http.post(path, json=body(path, stream=True, **more)).text.splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


@pytest.mark.parametrize("path", PATHS)
def test_an_answer_comes_whole_and_as_a_stream(http, path):
    assert text_of(path, http.post(path, json=body(path)).json()) == ANSWER
    assert streamed(path, events(http, path)) == ANSWER


@pytest.mark.parametrize("path", PATHS)
def test_an_error_has_its_status_and_ends_a_stream(http, path):
    refused = http.post(path, json=body(path, BROKEN))
    assert (refused.status_code, refused.json()["error"]["message"]) == (422, "It broke.")
    assert "It broke." in json.dumps(events(http, path, prompt=BROKEN)[-1])
    assert http.post(path, json=body(path, model="other")).status_code == 404
    assert http.post(path, json=body(path, model="absent")).status_code == 503
    assert http.post(path, content=b"{").status_code == 400


def test_masks_of_a_grammar_choose_the_tokens(http):
    schema = {"type": "json_schema", "json_schema": {"schema": {"enum": ["yes"]}}}
    answer = http.post(CHAT, json=body(CHAT, response_format=schema)).json()["choices"][0]
    assert (answer["message"]["content"], answer["finish_reason"]) == ('"yes"', "stop")


def test_a_client_that_leaves_cancels_its_answer(http):
    before = http.get("/v1/kakeya/stats").json()["cancelled"]
    with http.stream("POST", CHAT, json=body(CHAT, ENDLESS, stream=True, max_tokens=400)) as response:
        assert next(response.iter_lines()).startswith("data: ")
    end = time.monotonic() + 120
    while time.monotonic() < end and http.get("/v1/kakeya/stats").json()["cancelled"] == before:
        time.sleep(0.02)
    assert http.get("/v1/kakeya/stats").json()["cancelled"] == before + 1


def test_tokens_are_counted(http):
    counted = http.post(
        "/v1/messages/count_tokens", json={"model": "echo", "messages": body(CHAT)["messages"]}
    )
    assert counted.json() == {"input_tokens": len("user: How are you?\nassistant:")}
    usage = http.post(TEXT, json=body(TEXT, max_tokens=3)).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len("How are you?"), 3)


def test_metrics_statistics_models_and_health(http):
    http.post(TEXT, json=body(TEXT))
    stats, health = http.get("/v1/kakeya/stats").json(), http.get("/health").json()
    assert (stats["cache_bytes"], stats["echo_bytes"], list(stats["models"])) == (7, 5, ["echo"])
    assert (health["backend"], health["missing"]) == ("echo", ["absent"])
    assert "kakeya_cache_bytes 7.0" in http.get("/metrics").text
    (echo, absent) = http.get("/v1/models").json()["data"]
    assert (echo["x_kakeya"]["loaded"], echo["x_kakeya"]["context"], absent["x_kakeya"]["loaded"]) == (
        True,
        512,
        False,
    )


def test_the_http_layer_loads_no_mlx(python):
    done = python("-c", "import engine.serve.app, engine.serve.shutdown, sys; print('mlx' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr
