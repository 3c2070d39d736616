"""One-layer heads in the server: alone, beside another answer, after a kept prompt, and on disk."""

import pytest

from engine.models import load
from engine.models.pair import Pair
from engine.serve.backend import Job, Options
from engine.serve.metrics import Metrics
from engine.serve.prefix_cache.prefix import Prefixes
from engine.serve.prefix_cache.store import Store
from engine.serve.resident import resident_of
from engine.serve.scheduler.generation import Generation
from engine.serve.scheduler.thread import EngineThread
from engine.serve.settings import Settings, drafter_of
from tests.engine import heads
from tests.engine import small_models as models
from tests.engine.serve.answering import answers

PROMPTS = list(range(5, 45)), list(range(20, 50))
BLOCK = 16
KINDS = {
    "eagle3": (heads.eagle3, lambda: models.llama(layers=4)),
    "mtp": (heads.mtp, models.qwen3_5),
}


@pytest.fixture(scope="module")
def base():
    return load("tiny", False, dtype="float32")


def _resident(base, kind):
    head, target = (make() for make in KINDS[kind])
    parts = dict.fromkeys(("target", "draft"), base.parts["target"])
    return resident_of("headed", Pair(target, head, base.tokenizer, "headed", parts))


@pytest.mark.rows(1)
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_plain_decoding(kind, base, monkeypatch):
    resident = _resident(base, kind)
    monkeypatch.setattr("engine.serve.scheduler.kit.load_resident", lambda *_, **__: resident)
    thread = EngineThread(Settings(models=("headed",), prefill_chunk=16), Metrics())
    thread.start()
    try:
        thread.load("headed").result(60)
        plain, drafted, other = (
            answers(thread, "headed", PROMPTS, draft) for draft in ("none", kind, "dflash")
        )
    finally:
        assert thread.stop()
    assert [each["token_ids"] for each in drafted] == [each["token_ids"] for each in plain]
    assert all(each["proposed"] and kind in each["draft"] for each in drafted)
    assert all("No DFlash drafter" in each["fallback"] and not each["proposed"] for each in other)


def _answer(resident, ids, prefixes, draft):
    made = []
    job = Job(
        0, resident.name, ids, Options(12, temperature=0.0, draft=draft, token_ids=True), made.append, 0.0
    )
    generation = Generation(job, resident, BLOCK, prefixes)
    while not generation.done:
        if piece := generation.turn():
            made.append(piece)
    return made[-1].report


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", [False, True])
def test_a_warm_answer_is_the_cold_one_in_its_drafts_too(kind, stored, base, tmp_path):
    resident = _resident(base, kind)
    ids = models.tokens(3 * BLOCK + 5)[0].tolist()
    other = [*ids[: 2 * BLOCK + 3], 7, 8, 9]
    store = Store(tmp_path, 1 << 30) if stored else None
    prefixes = Prefixes(1 << 24, BLOCK, store)
    cold = _answer(resident, ids, Prefixes(1 << 24, BLOCK), kind)
    _answer(resident, other, prefixes, kind)
    if stored:
        assert store.flush()
        prefixes = Prefixes(1 << 24, BLOCK, Store(tmp_path, 1 << 30))
    warm = _answer(resident, ids, prefixes, kind)
    assert (cold["cached_tokens"], warm["cached_tokens"]) == (0, 2 * BLOCK)
    for field in ("token_ids", "proposed", "accepted", "rounds"):
        assert warm[field] == cold[field]


def test_names_of_drafters():
    """A kind's name means the model's own drafter; only a head in the target's files is another one to load."""
    assert [drafter_of(name) for name in ("auto", "dflash", "eagle3", "mtp", "none", "a/b")] == [
        None, None, None, "mtp", False, "a/b"
    ]  # fmt: skip
