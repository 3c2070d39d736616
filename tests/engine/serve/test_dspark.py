"""A DSpark drafter in the server: alone and beside another answer, whole blocks and cut ones."""

import queue
import time

import pytest

from engine.models import load
from engine.models.pair import Pair
from engine.serve.backend import Job, Options
from engine.serve.metrics import Metrics
from engine.serve.resident import resident_of
from engine.serve.scheduler.thread import EngineThread
from engine.serve.settings import Settings
from tests.engine import drafts
from tests.engine import small_models as models

PROMPTS = list(range(5, 45)), list(range(20, 50))


def _answers(thread, draft):
    waiting = []
    for ids in PROMPTS:
        events = queue.Queue()
        options = Options(24, temperature=0.0, token_ids=True, draft=draft)
        thread.submit([Job(0, "dspark", ids, options, events.put, time.monotonic() + 60)])
        waiting.append(events)
    last = []
    for events in waiting:
        event = events.get(timeout=60)
        while not event.finish_reason:
            event = events.get(timeout=60)
        last.append(event.report)
    return last


@pytest.mark.rows(1)
@pytest.mark.parametrize("threshold", [0.0, 0.5])
def test_answers_are_those_of_plain_decoding(threshold, monkeypatch):
    base = load("tiny", False, dtype="float32")
    draft = drafts.drafter(**drafts.DSPARK, confidence_threshold=threshold)
    parts = dict.fromkeys(("target", "draft"), base.parts["target"])
    resident = resident_of("dspark", Pair(models.llama(layers=4), draft, base.tokenizer, "dspark", parts))
    monkeypatch.setattr("engine.serve.scheduler.kit.load_resident", lambda *_, **__: resident)
    thread = EngineThread(Settings(models=("dspark",), prefill_chunk=16), Metrics())
    thread.start()
    try:
        thread.load("dspark").result(60)
        plain, drafted = _answers(thread, "none"), _answers(thread, "dflash")
    finally:
        assert thread.stop()
    assert [each["token_ids"] for each in drafted] == [each["token_ids"] for each in plain]
    assert all(each["proposed"] for each in drafted)
