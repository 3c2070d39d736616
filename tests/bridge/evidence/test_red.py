"""The later sets of falsehoods are caught, but for those that no report can show; new honest runs are believed."""

from __future__ import annotations

import pytest

from bridge.evidence import check_report, check_reports
from bridge.evidence.laws.vocabulary import _vocabulary
from tests.bridge.evidence import red_beside, red_last, red_more, red_twenty
from tests.bridge.evidence.falsehoods import BEN, Case, Report, each, prompt_ids, rows
from tests.bridge.evidence.red import BEYOND, RED, told

CAUGHT = {name: case for name, case in RED.items() if name not in BEYOND}
MORE = {name: case for name, case in red_more.MORE.items() if name not in red_more.BEYOND}
LAST = {name: case for name, case in red_last.LAST.items() if name not in red_last.BEYOND}
TWENTY = {name: case for name, case in red_twenty.TWENTY.items() if name not in red_twenty.BEYOND}
ALL_BEYOND = {**BEYOND, **red_more.BEYOND, **red_last.BEYOND, **red_twenty.BEYOND}
EVERY = {**RED, **red_more.MORE, **red_last.LAST, **red_twenty.TWENTY}


@pytest.mark.parametrize(
    "case",
    [*CAUGHT.values(), *MORE.values(), *LAST.values(), *TWENTY.values(), *red_beside.BESIDE.values()],
    ids=[*CAUGHT, *MORE, *LAST, *TWENTY, *red_beside.BESIDE],
)
def test_a_falsehood_is_caught(case):
    assert check_report(told(case)) != []


@pytest.mark.parametrize("case", red_beside.TWINS.values(), ids=red_beside.TWINS)
def test_an_honest_run_nearby_is_believed(case):
    assert check_report(told(case)) == []


@pytest.mark.parametrize("name", ALL_BEYOND)
def test_what_passes_is_told_with_its_reason(name):
    reason = ALL_BEYOND[name]
    assert check_report(told(EVERY[name])) == []
    assert reason
    assert not reason.endswith(".")


def test_there_are_many():
    assert len(CAUGHT) >= 200
    assert len(BEYOND) < len(RED) / 5
    assert len(MORE) >= 60
    assert len(LAST) >= 60
    assert len(red_twenty.TWENTY) == 20
    assert len(EVERY) == sum(map(len, (RED, red_more.MORE, red_last.LAST, red_twenty.TWENTY)))


def byte_zero(made: Report) -> None:
    """Let every loop put out the token of the byte 0: mlx-lm's detokenizer writes it as the letter that names it."""
    words = _vocabulary(made["models"][0]["tokenizer"])
    assert words is not None
    zero = words.pieces.index(b"\0")
    for row in rows(made, prompt=prompt_ids(made)[0]):
        row["tokens"][5] = zero
        text = b"".join(words.pieces[token] for token in row["tokens"]).decode("utf-8", "replace")
        if row["text"]:
            row["text"] = text.replace("\0", "\u0100") if row["arm"] == "native" else text


def ended(made: Report) -> None:
    """Let every answer end, where one loop writes the name of the token that ended it."""
    words = _vocabulary(made["models"][0]["tokenizer"])
    assert words is not None
    for row in made["rows"]:
        row["tokens"][-1] = min(words.ends)
        row["stop"] = "eos"
        pieces = [words.pieces[token] for token in row["tokens"]]
        named = row["arm"] == "lookup/auto"
        row["text"] = (
            b"".join(pieces if named else pieces[:-1]).decode("utf-8", "replace") if row["text"] else ""
        )


@pytest.mark.parametrize("edit", [byte_zero, ended])
def test_loops_may_write_one_answer_in_their_own_ways(edit):
    codes = {one.code for one in check_report(told(Case(BEN, edit)))}
    assert "TEXT_CONTRADICTS" not in codes


def test_what_every_claim_repeats_is_told_once():
    wild = Case(
        BEN,
        each("native", lambda row: row.update(decode_s=row["decode_s"] * (9 if row["repeat"] == 1 else 1))),
    )
    gate = check_reports({"a": told(wild)})
    spread = [one.message for one in gate.violations if one.code == "DECODE_SPREAD"]
    assert len(spread) == 3
    assert all("found for 4 kinds of claims" in message for message in spread)
