"""Whatever mlx-lm loads, the server serves or refuses: alone, drafted, from kept prefixes, beside others, packed.

`pytest -m sweep` runs all architectures; without it a sample runs, one for each peculiarity.
"""

import queue
import time

import numpy as np
import pytest

from engine.cache import make_caches
from engine.dflash.divergence import classify
from engine.models import load
from engine.models.pair import ModelSource, Pair
from engine.serve.backend import Failed, Job, Options
from engine.serve.metrics import Metrics
from engine.serve.resident import CONTEXT, resident_of
from engine.serve.scheduler import generation
from engine.serve.scheduler.thread import EngineThread
from engine.serve.settings import Settings
from tests.engine import architectures
from tests.engine.drafts import Foretelling

CHUNK = 16
PROMPT = np.random.default_rng(3).integers(1, 100, 90).tolist()
KEPT = len(PROMPT) // CHUNK * CHUNK
SAMPLE = {
    "gpt2": "a table of positions",
    "llama4": "caches that are not offered",
    "mamba2": "recurrent states only",
    "nemotron-nas": "caches that their layers never use",
    "phixtral": "a vocabulary by another name",
}


class Engine:
    """An engine's thread with one model, which is built in it."""

    def __init__(self, name, monkeypatch):
        base = load("tiny", False, dtype="float32")

        def build(*_, **__):
            part = ModelSource(name, base.parts["target"].folder, {"model_type": name})
            return resident_of(
                name, Pair(architectures.build(name), None, base.tokenizer, name, {"target": part})
            )

        monkeypatch.setattr("engine.serve.scheduler.kit.load_resident", build)
        self.name = name
        self.thread = EngineThread(Settings(models=(name,), prefill_chunk=CHUNK), Metrics())
        self.thread.start()
        self.resident = self.thread.load(name).result(60)

    def answers(self, *prompts, **options):
        waiting = []
        for ids in prompts:
            events = queue.Queue()
            given = Options(8, temperature=0.0, token_ids=True, **options)
            self.thread.submit([Job(0, self.name, ids, given, events.put, time.monotonic() + 60)])
            waiting.append(events)
        return [self._last(events) for events in waiting]

    def _last(self, events):
        while True:
            event = events.get(timeout=60)
            if isinstance(event, Failed) or event.finish_reason:
                return event


@pytest.mark.parametrize("name", architectures.cases(SAMPLE))
def test_an_architecture_is_served_or_refused(name, monkeypatch):
    engine = Engine(name, monkeypatch)
    try:
        if name in architectures.NOT_OFFERED:
            (refused,) = engine.answers(PROMPT)
            assert (refused.error.status, engine.resident.caches) == (422, ())
            assert architectures.NOT_OFFERED[name] in refused.error.message
            return
        assert engine.resident.context in (512, CONTEXT)
        assert engine.resident.tokens == engine.resident.vocabulary >= architectures.VOCAB
        for cache in ("raw", "e8v@4.25", "e8@q38", "affine@4g64"):
            (cold,) = engine.answers(PROMPT, cache=cache)
            if cache not in engine.resident.caches:
                assert cold.error.status == 422
                continue
            warm, other, third = engine.answers(PROMPT, PROMPT[3:], PROMPT[:40], cache=cache)
            assert (cold.report["cached_tokens"], warm.report["cached_tokens"]) == (0, KEPT)
            assert cold.report["token_ids"] == warm.report["token_ids"]
            assert all(each.finish_reason and each.report["token_ids"] for each in (other, third))
            drafts_give_the_plain_answer(engine, cache, monkeypatch)
    finally:
        assert engine.thread.stop()


def drafts_give_the_plain_answer(engine, cache, monkeypatch):
    """Draft tokens that are right up to a place that changes, and compare with an answer without drafts."""
    (plain,) = engine.answers(PROMPT, cache=cache, draft="none")
    expected = plain.report["token_ids"]
    monkeypatch.setattr(generation, "Lookup", lambda **_: Foretelling(expected, PROMPT))
    (drafted,) = engine.answers(PROMPT, cache=cache, draft="lookup")
    assert drafted.report["accepted"] > 0
    tokens, target = drafted.report["token_ids"], engine.resident.pair.target
    parted = classify(target, lambda: make_caches(target, cache), PROMPT, tokens, expected)
    assert parted is None or parted.kind == "tie", (cache, parted)
