import time

import pytest

from bridge.gate.checks.timing import DECODE_SPREAD, PREFILL_SPREAD
from engine.errors import BadInput
from engine.harness import job as jobs
from engine.harness import steady as at
from engine.harness.arm import interleave
from engine.harness.steady import BEGINS_WITHIN, steady, until_steady


def row(seconds=1.0, repeat=1, prefill=1.0, **more):
    told = {"arm": "a", "prompt": "p", "repeat": repeat, "warmup": repeat == 0, "started_s": 0.0}
    whole = {"prefill_s": prefill, "decode_s": seconds, "decode_tokens": 8, "e2e_s": prefill + seconds}
    return told | whole | more


@pytest.mark.parametrize(
    ("rows", "is_steady"),
    [
        ([row(1.0), row(1.9)], True),
        ([row(1.0), row(2.1)], False),
        ([row(1.0), row(2.1, arm="b")], True),
        ([row(1.0), row(2.1, prompt="q")], True),
        ([row(1.0), row(2.1, warmup=True)], True),
        ([row(prefill=1.0), row(prefill=2.9)], True),
        ([row(prefill=1.0), row(prefill=3.1)], False),
        ([row(5.0), *[row(1.0)] * 6], False),
        ([row(5.0), *[row(1.0)] * 7], True),
        ([row(1.0), row(0.0, decode_tokens=0)], True),
        ([], True),
    ],
)
def test_runs_are_steady_if_the_median_is_known_closely(rows, is_steady):
    assert steady(rows) == is_steady


def job_of(took, repeats, most, suffice=lambda _: True):
    """A job of one arm and one prompt, each repeat of which takes the next of these seconds."""
    ran = []

    def measure(turn):
        ran.append(turn.repeat)
        told = row(took[turn.repeat - 1], turn.repeat, started_s=time.perf_counter())
        return [{name: told[name] for name in told if name not in ("arm", "prompt", "repeat")}]

    made = jobs.Job(
        "kind",
        {},
        {},
        turns=list(interleave(["a"], ["p"], range(1, repeats + 1))),
        names=lambda turn: {"arm": turn.arm, "prompt": turn.prompt, "repeat": turn.repeat},
        measure=measure,
        further=until_steady(["a"], ["p"], repeats, most, suffice),
    )
    return made, ran


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("took", "most", "last"),
    [
        ([1, 1, 1], 9, 3),
        ([1, 1, 5, 1, 1, 1, 1, 1], 9, 8),
        ([1, 1, 5, 1, 1, 1, 1, 1], 6, 6),
        ([1, 1, 5], 3, 3),
        ([1, 1, BEGINS_WITHIN], 9, 3),
    ],
)
def test_repeats_go_on_until_times_are_steady(took, most, last):
    job, ran = job_of(took, 3, most)
    totals, steps = [], []
    _, journal = jobs.run_all(job, None, totals.append, lambda: steps.append(1))
    assert ran == [*range(1, last + 1)] == [one["repeat"] for one in journal.rows]
    assert totals == [*range(3, last + 1)]
    assert len(steps) == last


def test_repeats_go_on_until_they_suffice():
    job, ran = job_of([1] * 9, 3, 9, lambda rows: len(rows) >= 4)
    jobs.run(job, None)
    assert ran == [1, 2, 3, 4]


def test_steady_times_are_not_repeated_for_long():
    """Eight repeats end after 8 seconds, and ten after 10, a quarter longer: none begins after that."""

    def rows(last):
        return [
            row(repeat=repeat, prefill=0.5, seconds=0.5, started_s=repeat - 1.0)
            for repeat in range(1, last + 1)
        ]

    found = []
    further = until_steady(["a"], ["p"], 8, 99, lambda _: False)
    ran = rows(8)
    for turns in further(ran):
        found += [turn.repeat for turn in turns]
        ran += rows(len(ran) + 1)[-1:]
    assert found == [9, 10, 11]


@pytest.mark.parametrize(
    ("values", "tight"),
    [
        ([1.0], True),
        ([1, 1.04, 0.96], True),
        ([1, 1.06, 1], False),
        ([9, *[1] * 7], True),
        ([3, 1, 1], False),
    ],
)
def test_a_median_is_tight_if_its_bounds_are_within_five_per_cent(values, tight):
    assert at.is_tight(values) == tight


@pytest.mark.long
def test_what_was_interrupted_goes_on_with_the_repeat_that_it_had_come_to(tmp_path):
    took, out = [1, 1, 5, 1, 1, 1, 1, 1], tmp_path / "out.json"
    job, ran = job_of(took[:5], 3, 9)
    with pytest.raises(IndexError):
        jobs.run_all(job, out)
    assert ran == [1, 2, 3, 4, 5, 6]
    job, ran = job_of(took, 3, 9)
    _, journal = jobs.run_all(job, out)
    assert ran == [6, 7, 8]
    assert len(journal.rows) == 8


def test_warm_up_does_not_count_for_the_time_after_which_no_repeat_begins():
    late = [row(repeat=0, started_s=BEGINS_WITHIN), row(1, 1), row(5, 2)]
    assert len(next(until_steady(["a"], ["p"], 2, 3)(late))) == 1


def test_there_may_not_be_fewer_repeats_than_there_are():
    with pytest.raises(BadInput, match="at most 2 repeats cannot be 3"):
        until_steady([], [], 3, 2)


def test_the_engine_and_the_gate_agree_on_when_times_are_close():
    assert (PREFILL_SPREAD, DECODE_SPREAD) == at.SPREADS
