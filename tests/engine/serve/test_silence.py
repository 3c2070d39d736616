"""Streams that have nothing to say yet: clients and proxies give up on those that stay silent."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier

import pytest

from engine.serve.resident import expected_weights
from tests.engine.serve.world import serving

TURN = [{"role": "user", "content": "x"}]
ASKED = {
    "/v1/chat/completions": {"messages": TURN, "max_tokens": 3},
    "/v1/completions": {"prompt": "x", "max_tokens": 3},
    "/v1/messages": {"messages": TURN, "max_tokens": 3},
    "/v1/responses": {"input": "x", "max_output_tokens": 3},
}
ALIVE = dict.fromkeys(ASKED, ": keep-alive") | {"/v1/messages": 'data: {"type": "ping"}'}
# One answer that takes minutes: the slowest cache, and no end but the model's context.
ENDLESS = {
    "messages": TURN,
    "max_tokens": 100_000,
    "logit_bias": {"0": -100, "2": -100},
    "x_kakeya": {"draft": "none", "cache": "e8v@4.25:best"},
}

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def tight(tmp_path_factory):
    """A server that has room for one of its two models, and for one answer."""
    sizes = [expected_weights(name, "auto", "float32") for name in ("tiny", "tiny-hybrid")]
    budget = max(sizes) + min(sizes) - (1 << 20)
    options = (
        "--model",
        "tiny",
        "--model",
        "tiny-hybrid",
        "--max-active",
        "1",
        "--memory-budget",
        str(budget),
    )
    with serving(tmp_path_factory.mktemp("tight"), *options) as server:
        yield server


@contextmanager
def occupied(server):
    """Keep the server's only place occupied until the end of the block."""
    body = {"model": "tiny", "stream": True, **ENDLESS}
    with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = response.iter_lines()  # whose end would close the response
        next(lines)
        yield response


def lines_of(server, path, model, on_alive):
    """Return the lines of a stream; ``on_alive`` is called at the first sign of life."""
    lines = []
    with server.http.stream("POST", path, json={"model": model, "stream": True, **ASKED[path]}) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line == ALIVE[path] and line not in lines:
                on_alive()
            lines.append(line)
    return lines


def test_streams_in_the_queue_show_that_they_are_alive(tight):
    with occupied(tight) as occupant:
        all_alive = Barrier(len(ASKED), action=occupant.close, timeout=60)
        with ThreadPoolExecutor(len(ASKED)) as pool:
            streams = [pool.submit(lines_of, tight, path, "tiny", all_alive.wait) for path in ASKED]
    for path, stream in zip(ASKED, streams, strict=True):
        lines = stream.result()
        assert ALIVE[path] in lines
        data = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        assert not [each for each in data if each.get("type") == "error" or each.get("error")]
        assert len(data) > 1


def test_stream_that_waits_for_its_model_shows_that_it_is_alive(tight):
    with occupied(tight) as occupant:
        lines = lines_of(tight, "/v1/messages", "tiny-hybrid", occupant.close)
    assert lines.index(ALIVE["/v1/messages"]) < lines.index("event: message_start")
    assert "event: message_stop" in lines


def test_client_that_leaves_while_its_model_is_awaited(tight):
    with occupied(tight):
        body = {"model": "tiny-hybrid", "stream": True, **ASKED["/v1/messages"]}
        with tight.http.stream("POST", "/v1/messages", json=body) as response:
            assert next(response.iter_lines()) == "event: ping"
    assert tight.chat(max_tokens=1).status_code == 200
    assert tight.stats()["waiting"] == 0
    assert "Traceback" not in tight.said()
