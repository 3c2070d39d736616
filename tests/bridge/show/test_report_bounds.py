"""Reports whose values multiply: pages stay small, and are made in a time that grows with the report alone."""

from __future__ import annotations

import json

import pytest

from bridge.reports.views.rows import MAX_COLUMNS
from bridge.show import report_view

MANY = 400


def codec(i):
    return {"stored_bits_per_value": 1 + i / MANY, "rel_mse": 0.1, "distribution": f"d{i}", "codec": f"c{i}"}


def recalled(i):
    return {"arm": f"a{i}", "prompt": f"p{i}", "text": "x"}


def passed(i):
    return {"length": i, "context": i, "seconds": 1}


def fields(i):
    return {f"f{i}_{j}": 1 for j in range(40)}


@pytest.mark.parametrize(
    ("kind", "row"),
    [("codec-rd", codec), ("recall", recalled), ("verify-l", passed), ("unknown", fields)],
    ids=["codec-rd", "recall", "verify-l", "unknown"],
)
def test_row_101_no_table_has_a_column_for_each_of_many_rows(kind, row):
    report = {
        "kind": f"kakeya.{kind}",
        "prompts": [{"id": f"p{i}", "expected": "x", "length": i} for i in range(MANY)],
        "rows": [row(i) for i in range(MANY)],
    }

    shown = report_view.report_view("report.json", json.dumps(report).encode())

    assert shown.problem == ""
    assert shown.tables
    assert max(len(table.columns) for table in shown.tables) <= MAX_COLUMNS + 3
    assert sum(len(table.columns) * len(table.rows) for table in shown.tables) < 4 * MANY * MAX_COLUMNS
    assert len(shown.plots) <= MAX_COLUMNS + 3


def test_row_101_the_reports_of_one_run_have_a_limit_together(monkeypatch):
    report = json.dumps({"kind": "kakeya.verify-l", "rows": [passed(i) for i in range(MANY)]}).encode()
    monkeypatch.setattr(report_view, "MAX_SHOWN", 20_000)

    shown = list(report_view.report_views((f"{i}.json", report) for i in range(5)))

    assert [bool(one.tables) for one in shown] == [True, True, False, False, False]
    assert [one.path for one in shown] == [f"{i}.json" for i in range(5)]
    assert "too large" in shown[-1].problem


def test_row_101_tables_and_plots_beyond_the_limits_are_cut_or_left_out(monkeypatch):
    report = json.dumps({"kind": "kakeya.verify-l", "rows": [passed(i) for i in range(MANY)]}).encode()
    assert len(report_view.report_view("report.json", report).plots) == 1

    monkeypatch.setattr(report_view, "MAX_TABLE_ROWS", 50)
    monkeypatch.setattr(report_view, "MAX_POINTS", 100)
    shown = report_view.report_view("report.json", report)

    assert shown.plots == ()
    assert [len(table.rows) for table in shown.tables] == [50, 50]
    assert all("The first 50 of" in table.note for table in shown.tables)
