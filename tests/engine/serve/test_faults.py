"""What no request should be able to cause: cycles and models that fail again and again, and a thread that goes on."""

import itertools
import queue
import threading
import time
from types import SimpleNamespace

import pytest

from engine.mx import mx
from engine.serve import residents as residents_module
from engine.serve import thread
from engine.serve.errors import ApiError
from engine.serve.job import Failed, Job, Options
from engine.serve.metrics import Metrics
from engine.serve.settings import Settings
from engine.serve.thread import EngineThread
from engine.serve.turns import Turns


@pytest.fixture
def engine():
    made = EngineThread(Settings(dtype="float32"), Metrics())
    made.start()
    yield made
    made.stop()


def asked(engine, ids=(5, 6, 7), model="tiny", **options):
    events = queue.Queue()
    job = Job(0, model, list(ids), Options(4, temperature=0.0, **options), events.put, time.monotonic() + 60)
    engine.submit([job])
    return events


def last(events):
    while True:
        event = events.get(timeout=30)
        if isinstance(event, Failed) or event.finish_reason:
            return event


def break_turns(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a bug that a request finds")

    monkeypatch.setattr("engine.serve.generation.Generation.turn", broken)


def test_broken_cycle_fails_its_requests_and_does_not_spin(engine, monkeypatch):
    cycles = []

    def broken(_):
        cycles.append(time.monotonic())
        if engine.active:
            raise RuntimeError("a bug in the cycle itself")

    monkeypatch.setattr(Turns, "cycle", broken)
    failed = last(asked(engine))
    assert failed.error.status == 500
    assert failed.error.code.startswith("err-")
    assert failed.error.code in failed.error.message
    assert engine.active == []
    before = len(cycles)
    time.sleep(0.5)
    assert len(cycles) - before <= 2
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

    monkeypatch.setattr(Turns, "cycle", broken)
    assert enough.wait(30)
    gaps = [after - before for before, after in itertools.pairwise(cycles[:6])]
    assert all(gap >= pause for gap, pause in zip(gaps, (*pauses, *pauses[-1:] * 2), strict=True)), gaps


def test_model_that_keeps_failing_is_refused_then_loaded_afresh(engine, monkeypatch):
    assert last(asked(engine)).finish_reason
    loaded = engine.residents.by_name["tiny"]
    loaded.pair.target.model.norm.weight = mx.zeros((3,))  # no hidden state has this size
    for _ in range(residents_module.BROKEN_AFTER):
        assert last(asked(engine)).error.code.startswith("err-")
    assert engine.residents.broken == ["tiny"]
    refused = last(asked(engine)).error
    assert (refused.status, refused.code) == (500, "model_broken")
    with pytest.raises(ApiError, match="failed 3 times in a row"):
        engine.load("tiny").result(30)
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
    assert engine.load("tiny-hybrid").result(60).name == "tiny-hybrid"
    assert "a cycle failed" not in caplog.text


def test_refused_requests_do_not_break_a_model(engine):
    for _ in range(residents_module.BROKEN_AFTER + 1):
        assert last(asked(engine, cache="affine@4g128")).error.status == 422
    assert engine.residents.broken == []
    assert last(asked(engine)).finish_reason


def test_request_that_finds_a_bug_again_and_again_breaks_no_model(engine, monkeypatch):
    assert last(asked(engine)).finish_reason
    with monkeypatch.context() as bent:
        break_turns(bent)
        for _ in range(2 * residents_module.BROKEN_AFTER):
            assert last(asked(engine)).error.status == 500
    assert engine.residents.broken == []
    assert last(asked(engine)).finish_reason


def test_model_without_requests_is_unloaded_while_another_works(engine):
    object.__setattr__(engine.settings, "idle_seconds", 0.2)
    assert last(asked(engine)).finish_reason
    end = time.monotonic() + 30
    while "tiny" in engine.residents.by_name and time.monotonic() < end:
        assert last(asked(engine, model="tiny-hybrid")).finish_reason
    assert list(engine.residents.by_name) == ["tiny-hybrid"]
