"""How the process ends: in order, within a limit although the engine hangs, and at once on a second signal."""

import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from engine.models import registry
from tests.engine.serve.test_life import LONG, occupied, until
from tests.engine.serve.world import serving

CLOSING = (503, "shutting_down")


@pytest.fixture
def hanging(tmp_path):
    """A model whose loading never ends: one of its files is a pipe that nobody writes to."""
    ((_, _, source),) = registry.find("tiny", False).parts()
    folder = tmp_path / "hanging"
    folder.mkdir()
    for each in Path(source).iterdir():
        (folder / each.name).symlink_to(each)
    os.mkfifo(folder / "generation_config.json")
    return str(folder)


def release(pipe):
    """Give the load what it waits for, now and whenever it looks again."""
    with pipe.open("w") as waiting:
        pipe.with_suffix(".new").write_text("{}")
        pipe.with_suffix(".new").replace(pipe)
        waiting.write("{}")


@pytest.mark.long
@pytest.mark.parametrize("asked", [False, True], ids=["prewarm", "request"])
def test_load_that_hangs_is_left_after_the_limit(tmp_path, hanging, asked):
    with serving(tmp_path, "--model", hanging, "--drain", "1", *(() if asked else ("--prewarm",))) as server:
        with ThreadPoolExecutor(1) as pool:
            request = pool.submit(server.chat, model="hanging") if asked else None
            until(lambda: server.http.get("/health").json()["loading"])
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(120) == 1  # by itself the load would never end
            if request is not None:
                assert (request.result().status_code, request.result().json()["error"]["code"]) == CLOSING
        assert "did not" in server.said()


@pytest.mark.long
def test_client_that_leaves_during_a_load_leaves_nothing_behind(tmp_path, hanging):
    with serving(tmp_path, "--model", hanging, "--model", "tiny") as server:
        url, body = httpx.URL(server.url), b'{"model":"hanging","prompt":"x"}'
        with socket.create_connection((url.host, url.port)) as client:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            until(lambda: server.http.get("/health").json()["loading"])
        assert server.http.get("/health").json()["loading"]
        release(Path(hanging) / "generation_config.json")
        until(lambda: server.stats()["models"])
        assert server.chat(max_tokens=2).status_code == 200
        assert server.chat(model="hanging", max_tokens=2).status_code == 200
        assert (server.stats()["active"], server.stats()["waiting"]) == (0, 0)


@pytest.mark.long
@pytest.mark.parametrize("signals", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)])
def test_second_signal_ends_it_at_once(tmp_path, hanging, signals):
    with serving(tmp_path, "--model", hanging, "--prewarm") as server:
        until(lambda: server.http.get("/health").json()["loading"])
        server.process.send_signal(signals[0])
        time.sleep(1)
        assert server.process.poll() is None
        server.process.send_signal(signals[1])
        assert server.process.wait(60) == 130


@pytest.mark.long
@pytest.mark.rows(1)
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_idle_server_ends_in_order(tmp_path, sent, code):
    with serving(tmp_path) as server:
        assert server.chat(max_tokens=2).status_code == 200
        server.process.send_signal(sent)
        assert server.process.wait(60) == code
        assert "Traceback" not in server.said()


@pytest.mark.long
def test_answers_beyond_the_drain_end_with_an_error(tmp_path):
    with serving(tmp_path, "--drain", "1", "--max-active", "1") as server:
        running, lines = occupied(server, max_tokens=4000)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(server.http.post, "/v1/completions", json=LONG)
            until(lambda: server.stats()["waiting"] == 1)
            server.process.send_signal(signal.SIGTERM)
            *_, last = [line for line in lines if line]
            assert '"code":"shutting_down"' in last.replace(" ", "")
            refused = waiting.result(60)
            assert (refused.status_code, refused.json()["error"]["code"]) == CLOSING
        running.__exit__(None, None, None)
        assert server.process.wait(60) == 0
        assert "Traceback" not in server.said()


@pytest.mark.long
def test_model_that_cannot_be_loaded_at_the_start_is_named(tmp_path, hanging):
    for name in ("generation_config.json", "tokenizer.json"):
        (Path(hanging) / name).unlink()
    with serving(tmp_path, "--model", hanging, "--prewarm") as server:
        until(lambda: "--prewarm failed" in server.said())
        assert "tokenizer" in server.said()
        health = server.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "failed")
        assert "tokenizer" in health.json()["reason"]
