"""Falsehoods at the edges of the laws are caught, but for those that no report can show; honest runs are believed."""

from __future__ import annotations

import pytest

from bridge.evidence import check_report
from tests.bridge.evidence.red import told
from tests.bridge.evidence.red_edges import BEYOND, EDGES, TWINS


@pytest.mark.parametrize("name", [name for name in EDGES if name not in BEYOND])
def test_a_falsehood_is_caught(name):
    assert check_report(told(EDGES[name])) != []


@pytest.mark.parametrize("name", BEYOND)
def test_what_passes_is_told_with_its_reason(name):
    assert check_report(told(EDGES[name])) == []
    assert BEYOND[name]
    assert not BEYOND[name].endswith(".")


@pytest.mark.parametrize("name", TWINS)
def test_an_honest_twin_is_believed(name):
    assert check_report(told(TWINS[name])) == []


def test_there_are_many():
    assert len(EDGES) >= 80
    assert len(TWINS) >= 20
