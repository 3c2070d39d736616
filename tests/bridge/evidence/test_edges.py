"""Falsehoods at the edges of the laws are caught, but for those that no report can show; honest runs are believed."""

from __future__ import annotations

import pytest

from bridge.evidence import check_report
from tests.bridge.evidence.falsehoods import real
from tests.bridge.evidence.red import told
from tests.bridge.evidence.red_edges import BEYOND, EDGES, TWINS
from tests.bridge.evidence.red_sliding import CAUGHT, SLI


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


@pytest.mark.parametrize("name", CAUGHT)
def test_what_is_said_of_restored_sliding_layers_is_caught_for_its_own_reason(name):
    code, case = CAUGHT[name]
    assert code in {one.code for one in check_report(told(case))}


def test_a_restorer_that_does_not_help_claims_so_and_is_believed():
    """The twins hold only if their claims say that the restorer is farther than a control."""
    for name in [name for name in TWINS if name.endswith("and says so")]:
        ratios = {c["against"]: c["value"] for c in told(TWINS[name])["claims"] if c["name"] == "prompt_kl_ratio"
                  and c["arm"] == "restored learned"}  # fmt: skip
        assert max(ratios.values()) > 1


def test_restored_sliding_layers_are_measured_without_a_claim_of_recall():
    made = real(SLI)
    assert made["config"]["layers"] == "sliding"
    assert check_report(made) == []
    assert not {claim["name"] for claim in made["claims"]} & {"recall", "recall_delta"}


def test_there_are_many():
    assert len(EDGES) >= 80
    assert len(TWINS) >= 20
