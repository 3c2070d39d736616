"""The gate catches every lie for its own reason, and believes every honest twin."""

from __future__ import annotations

import pytest

from bridge.evidence import check_report, check_reports
from bridge.evidence.kinds import MODELS, schema
from bridge.evidence.legacy import Legacy
from bridge.evidence.names import LEGACY
from bridge.evidence.rules import RULES, code_of
from bridge.evidence.table import TABLE
from bridge.evidence.view import View
from tests.bridge.evidence import lies, reports
from tests.bridge.evidence.lies_of_laws import LAW_LIES

LIES = {**lies.LIES, **LAW_LIES}

# What is said of a file, before there is a report, or of a job: its tests stand in test_evidence.py, test_laws.py and
# test_bound.py.
OF_RUNS = {"NO_REPORT", "UNREADABLE", "WRONG_KIND", "JUDGED_TOO_LONG", "RUN_UNBOUND", "RUN_UNTOLD"}

# Where nothing was restored, not all samples were; what Shannon forbids, no codec does: these are told together.
TOGETHER = {
    "BASELINE_RECALL_CLAIM": "RECALL_SCOPE",
    "RATE_IMPOSSIBLE": "QUALITY_IMPOSSIBLE",
    "RECALL_SCOPE": "NOT_COVERED",
}


def told(lie):
    report = reports.HONEST[lie.kind]()
    lie.edit(report)
    if lie.restate and lie.kind == LEGACY:
        reports.restate_legacy(report)
    elif lie.restate:
        reports.timed(reports.restate(report))
    return report


def codes_of(lie):
    """All that the gate says of a lie."""
    (name,) = (name for name, one in LIES.items() if one is lie)
    return {*lie.codes, *lies.ALSO.get(name, ())}


@pytest.mark.parametrize("kind", RULES)
def test_an_honest_report_is_believed(kind):
    assert check_report(reports.HONEST[kind]()) == []


@pytest.mark.parametrize("lie", lies.TWINS.values(), ids=lies.TWINS)
def test_an_honest_twin_is_believed(lie):
    assert check_report(told(lie)) == []


def test_honest_reports_and_twins_are_as_the_schema_says():
    validator = pytest.importorskip("jsonschema").Draft202012Validator(schema())
    honest = [reports.HONEST[kind]() for kind in MODELS] + [told(lie) for lie in lies.TWINS.values()]
    for report in honest:
        if report["schema_version"] == 3:
            validator.validate(report)


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_lie_is_caught_for_its_own_reason(lie):
    found = check_report(told(lie))
    assert {one.code for one in found} == codes_of(lie)
    assert all(one.mend == TABLE[one.code].mend for one in found)


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_what_is_missing_makes_a_report_incomplete_and_what_is_wrong_makes_it_rejected(lie):
    gate = check_reports({"results/research/a.json": told(lie)})
    verdicts = {TABLE[code].verdict for code in codes_of(lie)}
    assert gate.verdict == ("REJECTED" if "REJECTED" in verdicts else "INCOMPLETE")


def test_the_lies_are_many():
    assert len(LIES) >= 25
    assert {lie.kind for lie in LIES.values()} == set(RULES)


def test_each_code_has_a_lie_that_only_it_catches():
    """Taking the rule away makes that lie pass: the test of the lie fails then."""
    alone = {lie.codes[0] for lie in LIES.values() if len(codes_of(lie)) == 1}
    assert set(TABLE) - OF_RUNS - alone == set(TOGETHER)
    assert set(TOGETHER.items()) <= {lie.codes for lie in LIES.values()}


def test_each_rule_catches_a_lie_that_no_other_rule_of_its_code_catches():
    """So that taking away any one of them makes the test of a lie fail, also where two rules share a code."""
    alone = set()
    for lie in LIES.values():
        try:
            report = (Legacy if lie.kind == LEGACY else MODELS[lie.kind]).model_validate(told(lie))
        except ValueError:
            continue  # its shape is the lie
        subject = report if lie.kind == LEGACY else View(report)
        caught = [rule for rule in RULES[lie.kind] if [*rule(subject)]]
        alone |= {rule for rule in caught if [code_of(other) for other in caught].count(code_of(rule)) == 1}
    every = {rule for rules in RULES.values() for rule in rules}
    assert sorted(f"{rule.__module__}.{rule.__name__}" for rule in every - alone) == []


def test_each_rule_has_a_row_in_the_table():
    assert {code_of(rule) for rules in RULES.values() for rule in rules} <= set(TABLE)
    for entry in TABLE.values():
        assert entry.why[0].islower()
        assert entry.mend[0].islower()
        assert not entry.why.endswith(".")
