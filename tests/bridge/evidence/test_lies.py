"""The gate catches every lie for its own reason, and believes every honest twin."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import bridge.evidence
from bridge.evidence import check_report, check_reports
from bridge.evidence.kinds import MODELS, schema
from bridge.evidence.legacy import Legacy
from bridge.evidence.names import LEGACY
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rule import Rule
from bridge.evidence.rules import RULES
from bridge.evidence.table import TABLE
from tests.bridge.evidence import falsehoods, lies, red, red_beside, red_edges, red_last, red_more, reports
from tests.bridge.evidence.lies_of_laws import LAW_LIES
from tests.bridge.evidence.lies_of_served import SERVED_LIES

LIES = {**lies.LIES, **LAW_LIES, **SERVED_LIES}

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


def all_that_is_told():
    """Yield each lie and falsehood with the kind of report that it is told in."""
    yield from ((lie.kind, told(lie)) for lie in LIES.values())
    yield from ((made["kind"], made) for made in map(falsehoods.told, falsehoods.FALSEHOODS.values()))
    yield from (
        (made["kind"], made)
        for some in (red.RED, red_more.MORE, red_last.LAST, red_edges.EDGES, red_beside.BESIDE)
        for made in map(red.told, some.values())
    )


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


@pytest.fixture(scope="module", params=LIES.values(), ids=LIES)
def judged(request):
    """A lie, and what the gate says of it: both tests of it follow each other, so it is told once."""
    return request.param, check_reports({"results/research/a.json": told(request.param)})


def test_a_lie_is_caught_for_its_own_reason(judged):
    lie, gate = judged
    assert {one.code for one in gate.violations} == codes_of(lie)
    assert all(one.mend == TABLE[one.code].mend for one in gate.violations)


def test_what_is_missing_makes_a_report_incomplete_and_what_is_wrong_makes_it_rejected(judged):
    lie, gate = judged
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
    every = {rule for rules in RULES.values() for rule in rules}
    alone: set[Rule] = set()
    for kind, made in all_that_is_told():
        if alone == every:
            break
        # Rules are held against it only where one that shares their code still lacks such a lie.
        wanted = {rule.code for rule in RULES[kind] if rule not in alone}
        if not wanted:
            continue
        try:
            report = (Legacy if kind == LEGACY else MODELS[kind]).model_validate(made)
        except ValueError:
            continue  # its shape is the lie
        subject = report if kind == LEGACY else ReportIndex(report)
        caught = [rule for rule in RULES[kind] if rule.code in wanted and any(True for _ in rule(subject))]
        codes = Counter(rule.code for rule in caught)
        alone |= {rule for rule in caught if codes[rule.code] == 1}
    assert sorted(f"{rule.check.__module__}.{rule.name}" for rule in every - alone) == []


def test_each_code_stands_where_its_rule_is_and_in_the_docs():
    """A search for a code finds its rule, its row in the table and its row in docs/evidence.md."""
    folder = Path(bridge.evidence.__file__).parent
    sources = {path: path.read_text() for path in folder.rglob("*.py") if path.parent.name != "table"}
    docs = (folder.parents[1] / "docs" / "evidence.md").read_text()
    rows = re.findall(r"^\| `([A-Z0-9_]+)` \| (?:REJECTED|INCOMPLETE) ", docs, re.MULTILINE)
    assert rows == [*TABLE]
    lost = [code for code in TABLE if not any(f'"{code}"' in text for text in sources.values())]
    assert lost == []


def test_each_rule_has_a_row_in_the_table():
    assert {rule.code for rules in RULES.values() for rule in rules} <= set(TABLE)
    for entry in TABLE.values():
        assert entry.why[0].islower()
        assert entry.mend[0].islower()
        assert not entry.why.endswith(".")
