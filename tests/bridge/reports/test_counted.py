"""One index of counted rows and one rate, for JSON objects and for the gate's typed rows."""

from types import SimpleNamespace

import pytest

from bridge.reports.counted import CountedRows, counted, decode_rate


def row(arm, prompt, seconds, tokens=10, **more):
    return {"arm": arm, "prompt": prompt, "decode_tokens": tokens, "decode_s": seconds, **more}


@pytest.mark.parametrize("kind", [dict, lambda fields: SimpleNamespace(**fields)])
def test_the_same_rows_count_in_both_forms(kind):
    rows = [
        kind(row("a", "p", 9.0, warmup=True)),
        kind(row("a", "p", 2.0)),
        kind(row("a", "q", 1.0, warmup=False)),
    ]
    index = CountedRows(rows)
    assert [*counted(rows)] == rows[1:]
    assert index.by_arm == {"a": {"p": [rows[1]], "q": [rows[2]]}}
    assert (index.of("a"), index.of("a", "q"), index.of("a", "r"), index.of(None)) == (
        rows[1:],
        [rows[2]],
        [],
        [],
    )
    assert index.medians("a") == {"p": 5.0, "q": 10.0}


@pytest.mark.parametrize(
    ("tokens", "seconds"),
    [(0, 1.0), (10, 0.0), (-1, 1.0), (10, -1.0), (None, 1.0), (10, None), ("10", 1.0), (True, 1.0), ([], {}),
     (float("nan"), 1.0), (1e15, 1.0), (1, float("inf"))],
)  # fmt: skip
def test_a_rate_that_is_none(tokens, seconds):
    assert decode_rate(row("a", "p", seconds, tokens)) is None


def test_a_prompt_has_no_median_if_one_of_its_rows_has_no_rate():
    index = CountedRows([row("a", "p", 1.0), row("a", "p", 1.0, 0), row("a", "q", 1.0), row("b", "q", 4.0)])
    assert index.medians("a") == {"q": 10.0}
    assert index.ratios("a", "b") == [4.0]
    assert index.ratios("b", "a") == [0.25]


def test_rows_without_arm_and_prompt_are_indexed_too():
    odd = {"arm": 1, "prompt": ["p"]}
    assert CountedRows([{}, odd]).by_arm == {"": {"": [{}]}, "1": {"['p']": [odd]}}
