"""No value makes the gate crash or hang: whatever a report holds, there is a verdict."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from bridge import limits
from bridge.evidence import Bound, _apply, check_report
from bridge.evidence.rule import Rule
from tests.bridge.evidence import reports
from tests.bridge.evidence.falsehoods import NAMES, Report, real

ODD = (
    *(0, 0.0, -1, 1, 10**30, 10**400, 1e308, 5e-324, -0.0, 2**63, -5, 0.5, 1e-9),
    *("", "x", "\ud800", "a\u0000", "sha256:" + "0" * 64),
    *([], {}, None, True, False, [[]], [None], [0] * 50),
)  # fmt: skip
BASES = {
    **{name: (lambda name=name: real(name)) for name in NAMES},
    **{kind: (lambda kind=kind: reports.HONEST[kind]()) for kind in reports.HONEST},
}
EACH = 40
SEEDS = range(4)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in inner:
        yield (*path, step)
        yield from paths(item, (*path, step))


def spoil(made: Report, dice: random.Random) -> None:
    """Write an odd value to one place, or to all places of that name; or leave something out."""
    places: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for path in paths(made):
        places[tuple("*" if isinstance(step, int) else step for step in path)].append(path)
    some = places[dice.choice([*places])]
    value, gone = dice.choice(ODD), dice.random() < 0.2
    for path in [dice.choice(some)] if gone or dice.random() < 0.5 else some:
        holder: Any = made
        for step in path[:-1]:
            holder = holder[step]
        if gone:
            del holder[path[-1]]
        else:
            holder[path[-1]] = reports.copy(value)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("base", BASES)
def test_an_odd_value_gets_a_verdict(base, seed):
    dice = random.Random(f"{base} {seed}")
    for _ in range(EACH // len(SEEDS)):
        made = BASES[base]()
        spoil(made, dice)
        began = time.monotonic()
        check_report(made)
        assert time.monotonic() - began < limits.JUDGE_S


def only_prompt(made: Report) -> None:
    made["prompts"] = made["prompts"][:1]


@pytest.mark.parametrize(
    ("base", "edit"),
    [
        ("verify_l", lambda made: made["config"].update(contexts=[[]])),
        ("recall", lambda made: made["config"].update(depths=["x", 0.5, 0.9])),
        ("bench", only_prompt),
        ("codec_rd", lambda made: made["config"].update(bits=[[]])),
        ("parity", lambda made: made["identity"]["blas"].update(gflops=10**400)),
        ("bench", lambda made: made.update(claims=[])),
        ("bench", lambda made: made.update(rows=made["rows"][:1])),
        ("bench", lambda made: [row.update(prefill_s=0.5, decode_s=0.5, e2e_s=1.0) for row in made["rows"]]),
        ("restored", lambda made: [row.update(prefill_s=0.0) for row in made["rows"]]),
        ("kv_quant", lambda made: [row.update(sum_squares=0.0) for row in made["rows"]]),
        ("served", lambda made: [row["counters"].clear() for row in made["rows"]]),
    ],
)
def test_what_nothing_can_be_computed_of_is_a_fault(base, edit):
    made = real(base)
    edit(made)
    assert check_report(made) or not made["claims"]


def test_a_rule_that_cannot_compute_says_what_it_is_about():
    def check(_: object) -> Iterator[str]:
        yield "first"
        raise OverflowError

    assert [*_apply(Rule("MALFORMED", check), None)] == [
        ("MALFORMED", "first"),
        ("MALFORMED", "MALFORMED cannot be judged (OverflowError); it is about check"),
    ]


def test_a_run_that_cannot_be_compared_is_a_fault():
    made = real("native") | {"run": {"id": "1" * 64}, "seconds": 10**400}
    at = datetime(2026, 1, 1, tzinfo=UTC)
    found = {one.code for one in check_report(made, Bound("1" * 64, at, at))}
    assert "MALFORMED" in found
