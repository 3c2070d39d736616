"""What no request should be able to cause: cycles and models that fail again and again, and a thread that goes on."""

import queue
import time

import pytest

from engine.mx import mx
from engine.serve import residents as residents_module
from engine.serve.errors import ApiError
from engine.serve.job import Failed, Job, Options
from engine.serve.metrics import Metrics
from engine.serve.settings import Settings
from engine.serve.thread import EngineThread


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

    def broken():
        cycles.append(time.monotonic())
        if engine.active:
            raise RuntimeError("a bug in the cycle itself")

    monkeypatch.setattr(engine._turns, "cycle", broken)
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
    def broken():
        if engine._queue:
            raise RuntimeError("a bug in admission")

    monkeypatch.setattr(engine, "_admit", broken)
    failures = [last(asked(engine)) for _ in range(2)]
    assert {each.error.status for each in failures} == {500}
    assert engine.waiting == 0
    monkeypatch.undo()
    assert last(asked(engine)).finish_reason


def test_pauses_grow_with_each_failure(engine, monkeypatch):
    paused = []
    monkeypatch.setattr(engine._stopping, "wait", paused.append)
    for _ in range(6):
        engine._recover(RuntimeError("again"))
    assert paused == sorted(paused)
    assert paused[-1] == paused[-2] == 5.0


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
    monkeypatch.setattr(residents_module, "MENDED_AFTER", 0.0)
    engine.residents._broken.clear()
    assert last(asked(engine)).finish_reason
    assert engine.residents.by_name["tiny"] is not loaded


def test_whoever_gives_up_waiting_for_a_model_disturbs_nobody(engine):
    events = asked(engine, logprobs=0)
    for name in ("tiny-hybrid", "no-such-model"):
        assert engine.load(name).cancel()
    assert last(events).finish_reason
    assert engine._failures == 0
    assert engine.load("tiny-hybrid").result(60).name == "tiny-hybrid"


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
