"""Falsehoods about real reports are caught, and honest reports pass wherever they were measured."""

from __future__ import annotations

import pytest

from bridge.evidence import check_report
from tests.bridge.evidence import falsehoods
from tests.bridge.evidence.falsehoods import FALSEHOODS, TWINS, told


@pytest.mark.parametrize("case", FALSEHOODS.values(), ids=FALSEHOODS)
def test_a_falsehood_is_caught(case):
    made = told(case)
    assert made != falsehoods.restated(falsehoods.real(case.base))
    assert check_report(made) != []


@pytest.mark.parametrize("case", TWINS.values(), ids=TWINS)
def test_an_honest_twin_is_believed(case):
    assert [(one.code, one.message) for one in check_report(told(case))] == []


@pytest.mark.parametrize("name", falsehoods.NAMES)
def test_a_real_report_is_believed_as_it_was_written(name):
    assert check_report(falsehoods.real(name)) == []


def test_there_are_many_of_both():
    assert len(FALSEHOODS) >= 80
    assert len(TWINS) >= 30
