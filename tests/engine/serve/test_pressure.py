"""Several models within one memory budget: idle ones make room, busy ones are waited for, none is forgotten."""

import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from engine.serve.backend import Failed, Job, Options, Piece
from engine.serve.metrics import Metrics
from engine.serve.resident import expected_weights, load_resident
from engine.serve.scheduler.kit import MlxKit
from engine.serve.scheduler.thread import EngineThread
from engine.serve.settings import Settings
from engine.serve.turns import thread
from engine.serve.turns.residents import Residents
from tests.engine.serve.world import backends, serving

BOTH = ("--model", "tiny", "--model", "tiny-hybrid")


DRAFTS = {"mlx": "auto", "torch": "none"}  # torch loads no drafter


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("name", "draft", "dtype"),
    [("tiny", "auto", "float32"), ("tiny-hybrid", "none", "bfloat16"), ("tiny", "none", "stored")],
)
def test_weights_are_foretold_to_the_byte(name, draft, dtype):
    resident = load_resident(name, draft, dtype, once=True)
    assert expected_weights(name, draft, dtype) == resident.nbytes


def budget_for_one(draft="auto"):
    """Room for either model with its caches, and not for both."""
    sizes = [expected_weights(name, draft, "float32") for name in ("tiny", "tiny-hybrid")]
    return max(sizes) + min(sizes) - (1 << 20)


@pytest.fixture(scope="module", params=backends())
def tight(tmp_path_factory, request):
    options = (
        *BOTH,
        "--backend",
        request.param,
        "--memory-budget",
        f"{budget_for_one(DRAFTS[request.param])}",
        "--max-tokens",
        "8",
    )
    with serving(tmp_path_factory.mktemp("tight"), *options) as server:
        yield server


@pytest.mark.long
def test_idle_model_makes_room(tight):
    first = tight.chat(max_tokens=4)
    assert first.status_code == 200, first.text
    assert set(tight.stats()["models"]) == {"tiny"}
    assert tight.chat(model="tiny-hybrid", max_tokens=4).status_code == 200
    assert set(tight.stats()["models"]) == {"tiny-hybrid"}
    again = tight.chat(max_tokens=4)
    assert again.json()["choices"][0]["message"] == first.json()["choices"][0]["message"]
    assert tight.stats()["unloaded"]["pressure"] >= 2
    assert tight.stats().get("mlx_peak_bytes", 0) <= 1.05 * budget_for_one()


@pytest.mark.long
def test_models_take_turns_under_load(tight):
    def ask(i):
        return tight.chat(model=("tiny", "tiny-hybrid")[i % 2], max_tokens=4).json()

    alone = [ask(0), ask(1)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(12)))
    for i, answer in enumerate(answers):
        assert answer["choices"][0]["message"] == alone[i % 2]["choices"][0]["message"]
    assert tight.stats().get("mlx_peak_bytes", 0) <= 1.05 * budget_for_one()


def test_requests_that_load_different_models_at_once_load_each_once(monkeypatch):
    monkeypatch.setattr(thread, "GRACE", 600.0)
    settings = Settings(models=("tiny", "tiny-hybrid"), dtype="float32", memory_budget=budget_for_one())
    engine = EngineThread(settings, Metrics())
    engine.start()
    try:
        loads = {name: engine.load(name) for name in settings.models}
        for name, load in loads.items():
            load.result(600)
            ended = Future()
            engine.submit([Job(0, name, [1, 2, 3], Options(2), told(ended), time.monotonic() + 600)])
            assert isinstance(ended.result(600), Piece)
        assert engine.residents.unloaded["pressure"] == 1
    finally:
        assert engine.stop(60)


def test_room_is_made_of_idle_models_alone():
    settings = Settings(models=("tiny", "tiny-hybrid"), dtype="float32")
    residents = Residents(settings, MlxKit(settings, Metrics()))
    for name in ("tiny", "tiny-hybrid"):
        residents.get(name)

    freed = residents.make_room(1 << 40, {"tiny"})

    assert freed > 0
    assert [*residents.by_name] == ["tiny"]


def told(ended):
    def emit(event):
        if isinstance(event, Failed) or event.finish_reason:
            ended.set_result(event)

    return emit


@pytest.mark.long
def test_model_beyond_the_budget_is_refused(tmp_path):
    with serving(tmp_path, "--memory-budget", "4MB") as server:
        refused = server.chat()
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "memory_budget"
        assert server.stats()["models"] == {}
