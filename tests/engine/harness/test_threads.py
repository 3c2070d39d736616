import json
from dataclasses import replace

import pytest

from engine import blas, models
from engine.errors import BadInput
from engine.evals.speculation import bench
from engine.harness import job as jobs
from engine.harness import prompt_sets, threads
from engine.harness.journal import recorded_choices
from engine.harness.threads import Threads, candidates, choose, fewest
from engine.mx import mx
from tests.engine import folders

cpu = pytest.mark.skipif(mx.default_device().type != mx.cpu, reason="a GPU has no BLAS threads")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return models.load(folders.write_walker(tmp_path_factory.mktemp("walker")), draft=False)


@pytest.fixture
def machine(monkeypatch):
    """A machine with four cores and OpenBLAS; return what it was set to, in order."""
    used = []
    monkeypatch.setattr(blas, "most_threads", lambda: 4)
    monkeypatch.setattr(blas, "threads", lambda: 3)
    monkeypatch.setattr(blas, "threads_are_given", lambda: False)
    monkeypatch.setattr(blas, "use_threads", used.append)
    monkeypatch.setattr(threads.psutil, "cpu_count", lambda logical: 8 if logical else 4)
    monkeypatch.setattr(threads, "SECONDS", 0.0)
    return used


@pytest.mark.parametrize(
    ("most", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8]), (12, [1, 2, 4, 8, 12])]
)
def test_powers_of_two_and_the_greatest_number_are_tried(most, counts):
    assert candidates(most) == counts


@pytest.mark.parametrize(
    ("rates", "count"),
    [
        ({1: [100.0], 2: [104.0]}, 1),
        ({1: [100.0], 2: [110.0]}, 2),
        ({1: [10.0], 2: [39.0], 4: [40.0]}, 2),
        ({1: [100.0, 100.0, 100.0], 2: [120.0, 120.0, 101.0]}, 1),  # not clearly
        ({1: [100.0, 50.0, 100.0], 2: [120.0, 60.0, 120.0]}, 2),
        ({1: [9.0]}, 1),
    ],
)
def test_the_fewest_threads_that_are_about_fastest_are_chosen(rates, count):
    assert fewest(rates) == count


@cpu
def test_the_plain_loop_is_measured_with_each_number(pair, machine):
    found = choose(pair)
    assert found.by == "measured"
    assert [*found.rates] == ["1", "2", "4"]
    assert found.count in {1, 2, 4}
    assert machine[:3] == [1, 2, 4]
    assert machine[-1] == found.count
    assert Threads.of(found.config()) == found


@cpu
def test_an_option_comes_before_the_environment_and_that_before_measuring(pair, machine, monkeypatch):
    kept = Threads(2, "measured", {"1": 1.0, "2": 9.0})
    assert choose(pair, recorded=kept.config()) == kept
    monkeypatch.setattr(blas, "threads_are_given", lambda: True)
    assert choose(pair, recorded=kept.config()) == Threads(3, "environment")
    assert choose(pair, 4, kept.config()) == Threads(4, "option")
    assert machine == [2, 3, 4]


@cpu
def test_more_threads_than_processors_are_refused(pair, machine):
    with pytest.raises(BadInput, match="--threads is 5, and this process may use 4 processors"):
        choose(pair, 5)
    assert not machine


def test_without_openblas_nothing_is_set(pair, machine, monkeypatch):
    monkeypatch.setattr(blas, "most_threads", lambda: None)
    assert choose(pair) == Threads()
    assert Threads().config() == {"threads": None, "threads_by": None}
    with pytest.raises(BadInput, match="--threads sets the threads of OpenBLAS"):
        choose(pair, 1)
    assert not machine


@pytest.mark.long
def test_an_interrupted_run_keeps_the_number_that_it_began_with(pair, tmp_path):
    out, chosen = tmp_path / "out.json", Threads(2, "measured", {"1": 1.0, "2": 2.0})
    workload = prompt_sets.Workload("prompts", [prompt_sets.Prompt("one", "def f(a):\n")], "code", "the test")
    plan = bench.SpeculationPlan(max_tokens=4, repeats=1)
    job = bench.baseline(pair, workload, plan, threads=chosen)
    assert recorded_choices(out) == recorded_choices(None) == {}

    def stop(turn):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.run(replace(job, measure=stop), out)
    kept = recorded_choices(out)
    assert Threads.of(kept) == chosen
    again = bench.baseline(pair, workload, plan, threads=Threads.of(kept))
    report, journal = jobs.run(again, out)
    journal.close()
    assert json.loads(json.dumps(report["config"]))["threads_rates"] == {"1": 1.0, "2": 2.0}
    assert recorded_choices(out) == {}
