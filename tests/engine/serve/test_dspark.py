"""A DSpark drafter in the server: alone and beside another answer, whole blocks and cut ones."""

import pytest

from engine.models import load
from engine.models.pair import Pair
from engine.serve.metrics import Metrics
from engine.serve.resident import resident_of
from engine.serve.scheduler.thread import EngineThread
from engine.serve.settings import Settings
from tests.engine import drafts
from tests.engine import small_models as models
from tests.engine.serve.answering import answers

PROMPTS = list(range(5, 45)), list(range(20, 50))


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
        plain, drafted = (
            answers(thread, "dspark", PROMPTS, "none"),
            answers(thread, "dspark", PROMPTS, "dflash"),
        )
    finally:
        assert thread.stop()
    assert [each["token_ids"] for each in drafted] == [each["token_ids"] for each in plain]
    assert all(each["proposed"] for each in drafted)
