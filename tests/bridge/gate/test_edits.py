"""No edit of a report is accepted after its run."""

from __future__ import annotations

import pytest

from bridge.gate import check_report, verdict
from tests.bridge.gate import edits, reports

SAMPLE = 80


@pytest.mark.parametrize("kind", [*reports.BUILDERS][:4])
def test_sampled_edits_are_not_accepted(kind):
    report, run = edits.cases(kind)
    number = sum(1 for _ in edits.single_edits(report))
    sample = [*edits.all_edits(report, every=max(1, number // SAMPLE))]

    accepted = [edit.name for edit in sample if verdict(check_report(edit.report, run)) == "ACCEPTED"]

    assert len(sample) > SAMPLE
    assert accepted == []


@pytest.mark.long
@pytest.mark.parametrize("kind", reports.BUILDERS)
def test_no_class_of_edits_is_accepted(kind):
    counts = edits.table([kind], edits.edits_by_class)[kind]

    assert counts["ACCEPTED"] == 0
    assert sum(counts.values()) > 300


def test_edits_change_every_field():
    report = {"a": 1.5, "b": [{"c": "x", "d": None}, {"c": "y", "d": True}]}
    names = {edit.name.split(":")[0] for edit in edits.single_edits(report)}

    assert names == {"report", "a", "b", "b.0", "b.0.c", "b.0.d", "b.1", "b.1.c", "b.1.d"}
    assert all(edit.report != report for edit in edits.single_edits(report))
