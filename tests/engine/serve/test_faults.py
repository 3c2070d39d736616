"""What no request should be able to cause: cycles and models that fail again and again, and a thread that goes on."""

import itertools
import queue
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from fastapi.testclient import TestClient

from engine.models import registry
from engine.mx import mx
from engine.serve import server as server_module
from engine.serve.app import make_app
from engine.serve.backend import Failed, Job, Options
from engine.serve.errors import ApiError
from engine.serve.metrics import Metrics
from engine.serve.scheduler.scheduler import Scheduler
from engine.serve.scheduler.thread import EngineThread
from engine.serve.server import Server
from engine.serve.settings import Settings
from engine.serve.turns import residents as residents_module
from engine.serve.turns import thread


@pytest.fixture
def engine():
    made = EngineThread(Settings(dtype="float32"), Metrics())
    made.start()
    yield made
    made.stop()


def asked(engine, ids=(5, 6, 7), model="tiny", **options):
    events = queue.Queue()
    job = Job(0, model, list(ids), Options(4, temperature=0.0, **options), events.put, time.monotonic() + 120)
    engine.submit([job])
    return events


def last(events):
    while True:
        event = events.get(timeout=120)
        if isinstance(event, Failed) or event.finish_reason:
            return event


def break_turns(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a bug that a request finds")

    monkeypatch.setattr("engine.serve.scheduler.generation.Generation.turn", broken)


def test_broken_cycle_fails_its_requests_and_does_not_spin(engine, monkeypatch):
    cycles = []

    def broken(_):
        cycles.append(time.monotonic())
        if engine.active:
            raise RuntimeError("a bug in the cycle itself")

    monkeypatch.setattr(Scheduler, "cycle", broken)
    failed = last(asked(engine))
    assert failed.error.status == 500
    assert failed.error.code.startswith("err-")
    assert failed.error.code in failed.error.message
    assert engine.active == []
    before, began = len(cycles), time.monotonic()
    time.sleep(0.5)
    assert len(cycles) - before <= 2 + (time.monotonic() - began) / thread.IDLE
    monkeypatch.undo()
    assert last(asked(engine)).finish_reason


def test_broken_admission_ends_what_broke_it(engine, monkeypatch):
    def broken(_):
        if engine.waiting:
            raise RuntimeError("a bug in admission")

    monkeypatch.setattr(engine.residents, "unload_broken", broken)
    failures = [last(asked(engine)) for _ in range(2)]
    assert {each.error.status for each in failures} == {500}
    assert engine.waiting == 0
    monkeypatch.undo()
    assert last(asked(engine)).finish_reason


def test_pauses_grow_with_each_failure(engine, monkeypatch):
    assert list(thread.PAUSES) == sorted(thread.PAUSES)
    assert thread.PAUSES[-1] == 5.0
    pauses, cycles, enough = (0.01, 0.1, 0.3), [], threading.Event()
    monkeypatch.setattr(thread, "PAUSES", pauses)
    monkeypatch.setattr(thread, "IDLE", 0.0)  # what comes between two cycles is the pause

    def broken(_):
        cycles.append(time.monotonic())
        if len(cycles) == 6:
            enough.set()
        raise RuntimeError("again")

    monkeypatch.setattr(Scheduler, "cycle", broken)
    assert enough.wait(120)
    gaps = [after - before for before, after in itertools.pairwise(cycles[:6])]
    assert all(gap >= pause for gap, pause in zip(gaps, (*pauses, *pauses[-1:] * 2), strict=True)), gaps


def test_model_that_keeps_failing_is_refused_then_loaded_afresh(engine, monkeypatch):
    assert last(asked(engine)).finish_reason
    loaded = engine.residents.by_name["tiny"]
    loaded.pair.target.model.norm.weight = mx.zeros((3,))  # no hidden state has this size
    for _ in range(residents_module.BROKEN_AFTER):
        assert last(asked(engine)).error.code.startswith("err-")
    assert engine.residents.broken_models == ["tiny"]
    refused = last(asked(engine)).error
    assert (refused.status, refused.code) == (500, "model_broken")
    with pytest.raises(ApiError, match="failed 3 times in a row"):
        engine.load("tiny").result(120)
    assert "tiny" not in engine.residents.by_name
    assert engine.residents.unloaded["broken"] == 1
    assert last(asked(engine, model="tiny-hybrid")).finish_reason  # another model is not refused
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + residents_module.MENDED_AFTER)
    monkeypatch.setattr(residents_module, "time", later)
    assert last(asked(engine)).finish_reason
    assert engine.residents.by_name["tiny"] is not loaded


def test_whoever_gives_up_waiting_for_a_model_disturbs_nobody(engine, caplog):
    events = asked(engine, logprobs=0)
    for name in ("tiny-hybrid", "no-such-model"):
        assert engine.load(name).cancel()
    assert last(events).finish_reason
    assert engine.load("tiny-hybrid").result(120).name == "tiny-hybrid"
    assert "a cycle failed" not in caplog.text


def test_refused_requests_do_not_break_a_model(engine):
    for _ in range(residents_module.BROKEN_AFTER + 1):
        assert last(asked(engine, cache="affine@4g128")).error.status == 422
    assert engine.residents.broken_models == []
    assert last(asked(engine)).finish_reason


def test_request_that_finds_a_bug_again_and_again_breaks_no_model(engine, monkeypatch):
    assert last(asked(engine)).finish_reason
    with monkeypatch.context() as bent:
        break_turns(bent)
        for _ in range(2 * residents_module.BROKEN_AFTER):
            assert last(asked(engine)).error.status == 500
    assert engine.residents.broken_models == []
    assert last(asked(engine)).finish_reason


def test_model_without_requests_is_unloaded_while_another_works(engine):
    object.__setattr__(engine.settings, "idle_seconds", 0.2)
    assert last(asked(engine)).finish_reason
    end = time.monotonic() + 120
    while "tiny" in engine.residents.by_name and time.monotonic() < end:
        assert last(asked(engine, model="tiny-hybrid")).finish_reason
    assert list(engine.residents.by_name) == ["tiny-hybrid"]


class PanicError(BaseException):
    """What a panic in a Rust library is to Python."""


def panic(*_, **__):
    raise PanicError("index out of bounds")


@pytest.mark.parametrize(
    "at",
    [
        "scheduler.generation.Generation.turn",
        "scheduler.generation.Generation.__init__",
        "scheduler.scheduler.Scheduler.cycle",
        "metrics.Metrics.count",
    ],
)
def test_a_panic_ends_its_request_alone(engine, monkeypatch, at):
    with monkeypatch.context() as bent:
        bent.setattr(f"engine.serve.{at}", panic)
        assert last(asked(engine)).error.status == 500
    assert last(asked(engine)).finish_reason
    assert (engine.waiting, engine.active) == (0, [])


def test_a_thread_that_cannot_go_on_ends_every_request_and_says_why(engine, monkeypatch):
    monkeypatch.setattr(thread, "PAUSES", (0.0,))
    monkeypatch.setattr(thread, "HOPELESS", 0.2)
    sent = threading.Event()

    def cycle(_):
        sent.wait(60)
        panic()

    monkeypatch.setattr(Scheduler, "cycle", cycle)
    events = [asked(engine) for _ in range(3)]
    sent.set()
    assert all(last(each).error.status in (500, 503) for each in events)
    end = time.monotonic() + 120
    while engine.health().running and time.monotonic() < end:
        time.sleep(0.05)
    assert "index out of bounds" in engine.health().trouble
    for ask in (lambda: asked(engine), lambda: engine.load("tiny-hybrid")):
        with pytest.raises(ApiError) as refused:
            ask()
        assert (refused.value.status, refused.value.code) == (503, "engine_failed")


def test_a_request_ends_in_time_and_health_says_so_while_the_thread_is_stuck(monkeypatch):
    monkeypatch.setattr(server_module, "OVERDUE", 0.3)
    going = threading.Event()
    server = Server(Settings(models=("tiny",), dtype="float32", request_seconds=120), EngineThread)
    body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
    with TestClient(make_app(server), base_url="http://127.0.0.1") as client:
        assert client.post("/v1/chat/completions", json=body).status_code == 200
        assert client.get("/health").json()["reason"] is None
        monkeypatch.setattr(thread, "STUCK", 0.2)
        object.__setattr__(server.settings, "request_seconds", 0.5)
        monkeypatch.setattr("engine.serve.scheduler.generation.Generation.turn", lambda *_: going.wait(60))
        answer = client.post("/v1/chat/completions", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (408, "timeout")
        health = client.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "failed")
        assert "has not completed a step" in health.json()["reason"]
        going.set()


def test_health_names_models_that_are_not_here_or_cannot_be_loaded(tmp_path):
    shutil.copytree(Path(registry.data()) / "tiny" / "target", tmp_path / "broken")
    (tmp_path / "broken" / "tokenizer.json").write_text("{")
    models = ("tiny", str(tmp_path / "broken"), "nobody/not-downloaded")
    server = Server(Settings(models=models, dtype="float32", draft="none"), EngineThread)
    with TestClient(make_app(server), base_url="http://127.0.0.1") as client:
        health = client.get("/health").json()
        assert (health["status"], health["missing"], health["broken"]) == (
            "degraded",
            ["nobody/not-downloaded"],
            [],
        )
        body = {"model": "broken", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
        assert client.post("/v1/chat/completions", json=body).status_code == 503
        health = client.get("/health")
        assert (health.status_code, health.json()["broken"]) == (200, [models[1]])
        shutil.copy(Path(registry.data()) / "tiny" / "target" / "tokenizer.json", tmp_path / "broken")
        assert client.post("/v1/chat/completions", json=body).status_code == 200
        assert client.get("/health").json()["broken"] == []


DYING = """
from engine.serve import shutdown
from engine.serve.turns import thread
from engine.serve.main import run
from engine.serve.settings import Settings
from engine.serve.scheduler.scheduler import Scheduler

{fault}
run(Settings(models=("tiny",), dtype="float32", port=0, request_seconds=1.0), prewarm=False)
"""
FAULTS = {
    "fails": "thread.HOPELESS = 0.5\ndef cycle(_): raise BaseException('no way on')\nScheduler.cycle = cycle",
    "hangs": "shutdown.STUCK = 1.0\nimport time\nScheduler.cycle = lambda _: time.sleep(600)",
}


@pytest.mark.long
@pytest.mark.parametrize(("fault", "reason"), [("fails", "no way on"), ("hangs", "not completed a step")])
def test_a_process_without_an_engine_ends_with_a_reason(fault, reason):
    argv = [sys.executable, "-P", "-c", DYING.format(fault=FAULTS[fault])]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert f"{reason}" in done.stderr.splitlines()[-1], done.stderr


HOLDING = """import time
shutdown.STUCK = 1.0
from engine.serve import listing
listing.health = lambda _: time.sleep(600)"""


@pytest.mark.long
def test_row_137_a_process_whose_event_loop_is_held_ends_with_a_reason():
    argv = [sys.executable, "-P", "-c", DYING.format(fault=HOLDING)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            with pytest.raises((httpx.TimeoutException, httpx.TransportError)):
                httpx.get(f"{url}/health", timeout=60)
            assert process.wait(60) == 1
            assert "the event loop has not run" in process.stderr.read().splitlines()[-1]
        finally:
            process.kill()


def test_drafts_that_are_hardly_ever_accepted_are_logged_once(engine, caplog):
    assert not isinstance(last(asked(engine, draft="none")), Failed)
    engine.models["tiny"].watch.count(199, 0)
    for _ in range(2):
        assert not isinstance(last(asked(engine, draft="dflash")), Failed)
    assert caplog.text.count("tiny: only") == 1
    assert "half precision" in caplog.text
