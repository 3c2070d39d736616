"""What a client's schema may cost: the process that tries it, the masks of its answers, and everybody else's time."""

import asyncio
import json
import resource
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import psutil
import pytest

from engine.serve.errors import ApiError
from engine.serve.grammars import compiled, grammar, position, trial
from engine.serve.resident import load_resident

BOMBS = {
    "a large divisor": {"type": "integer", "multipleOf": 9_999_991},
    "several divisors": {"allOf": [{"type": "integer", "multipleOf": n} for n in (97, 101, 103, 107)]},
    "many divisors": {
        "type": "object",
        "properties": {f"p{i}": {"type": "integer", "multipleOf": 99_991 + i} for i in range(12)},
    },
}
STEPS = {
    "nested counts": "^(a{1000}){1000}$",
    "nested counts after a letter": "^x(a{1000}){1000}$",
    "optional letters": "^((a?b?){100}c?){100}$",
    "searches": "^(.*a.{50}|.*b.{60}|.*c.{70}){10}$",
}


@pytest.fixture(scope="module")
def resident():
    return load_resident("tiny", "none", "float32")


def start(resident, schema):
    return resident.grammars.compiled(grammar.schema_grammar(schema), "response_format").start()


@pytest.mark.long
@pytest.mark.parametrize("name", BOMBS)
def test_row_124_a_costly_schema_is_refused_within_limits(resident, name):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with pytest.raises(ApiError) as refused:
        resident.grammars.compiled(grammar.schema_grammar(BOMBS[name]), "response_format")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (refused.value.status, refused.value.code) == (400, "invalid_schema")
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < trial.CPU_SECONDS + 1


@pytest.mark.parametrize("name", STEPS)
def test_a_costly_pattern_takes_little_time_at_once(resident, name):
    began = time.thread_time()
    with suppress(ApiError):  # it is refused, or proves too complex while it is read
        state = start(resident, {"type": "string", "pattern": STEPS[name]})
        for token in resident.encode('"xaaaaaaaaab'):
            step = time.thread_time()
            state.masks([])
            assert time.thread_time() - step < 1
            if not state.accepted_length([token]):
                break
            state.commit([token])
    assert time.thread_time() - began < 3


def test_an_answer_whose_masks_take_too_long_is_refused(resident, monkeypatch):
    state = start(resident, {"type": "string"})
    state.masks([])
    monkeypatch.setattr(position, "ALLOWANCE", 0.0)
    monkeypatch.setattr(position, "PER_ROW", 0.0)
    with pytest.raises(ApiError, match="too complex to enforce") as refused:
        state.masks([])
    assert (refused.value.status, refused.value.code) == (400, "invalid_schema")


def test_compiled_grammars_take_little_memory_together(resident, monkeypatch):
    texts = [grammar.schema_grammar({"const": i}) for i in range(3)]
    grammars = compiled.Grammars(resident.pair.tokenizer, resident.vocabulary)
    monkeypatch.setattr(trial, "outcome", lambda *_: trial.Outcome(compiled.KEPT_BYTES // 2, ""))
    for text in texts:
        grammars.compiled(text, "tools")
    tried = []
    monkeypatch.setattr(trial, "outcome", lambda text, *_: tried.append(text) or trial.Outcome(0, ""))
    for text in reversed(texts):
        grammars.compiled(text, "tools")
    assert tried == texts[:1]


def test_a_queued_compilation_ends_with_its_request():
    going, ran = threading.Event(), []

    def wait(cancelled):
        going.wait(30)

    def note(number, cancelled):
        ran.append(number)

    async def leave():
        busy = [asyncio.create_task(compiled.run_in_thread(wait)) for _ in range(2)]
        waiting = asyncio.create_task(compiled.run_in_thread(note, 1))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait({waiting})
        going.set()
        await asyncio.gather(*busy)
        await compiled.run_in_thread(note, 2)

    asyncio.run(leave())
    assert ran == [2]


@pytest.mark.parametrize("stream", [False, True])
def test_row_124_a_compilation_ends_when_its_client_leaves(server, stream):
    schema = {"type": "integer", "multipleOf": 9_999_937 + stream}
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    turns = [{"role": "user", "content": "x"}]
    body = json.dumps({"model": "tiny", "messages": turns, "response_format": form, "stream": stream})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    server.chat()  # loads the model
    with socket.create_connection(("127.0.0.1", httpx.URL(server.url).port)) as connection:
        connection.sendall((head + body).encode())
        end = time.monotonic() + 60
        while not (compiling := psutil.Process(server.process.pid).children()):
            assert time.monotonic() < end
            time.sleep(0.01)
        compiling[0].suspend()  # stopped, it cannot reach its own limit
    assert not psutil.wait_procs(compiling, timeout=trial.WALL_SECONDS / 2)[1]


@pytest.mark.long
def test_row_124_plain_requests_do_not_wait_for_costly_schemas(server):
    server.chat()

    def attack(i):
        form = {
            "type": "json_schema",
            "json_schema": {"schema": {"type": "integer", "multipleOf": 9_999_991 + i}},
        }
        body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "response_format": form}
        with pytest.raises(httpx.TimeoutException):
            httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=0.5)

    with ThreadPoolExecutor(6) as pool:
        attacks = [pool.submit(attack, i) for i in range(6)]
        plain = [server.chat().status_code for _ in range(4)]
        began = time.monotonic()
        form = {"type": "json_schema", "json_schema": {"schema": {"const": "after"}}}
        assert server.chat(response_format=form).status_code == 200
        assert time.monotonic() - began < 30  # two compilations, not six
        for each in attacks:
            each.result()
    assert plain == [200] * 4
