"""Figures over time: from real answers, and what a page shows of their changes."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import pytest

from bridge.bus.wire import State
from bridge.show.trends import Figure, Value, group_into_trends
from bridge.verify.verdict import Conclusion, Trust
from bridge.web.figures import Shown
from bridge.web.pages import Links, Pages
from bridge.web.snapshot import Snapshot
from tests.bridge.gate import reports
from tests.bridge.gate.jobs import on_any_host, program

SHOWN = Conclusion(State.SUCCEEDED, "ACCEPTED", Trust.SIGNED, "mac-1")
MEASURED = on_any_host(reports.spec_bench())


def figure(i, value, runner="one", params="", *, counts=True, name="decode_speedup", shown=SHOWN):
    made = Value(value, f"mac-bridge/x-{i}", f"t{i}", shown, counts=counts, low=value - 1,
                 high=value + 1, runner=runner, params=params)  # fmt: skip
    return Figure("bench", name, "dflash", "what it is", stated=True, value=made)


@pytest.mark.long
@pytest.mark.bus
def test_claims_of_real_answers_become_trends(web, jobs, keyed, tmp_path):
    (tmp_path / "measure.py").write_text(program(MEASURED, "results/research/speed.json"))
    runs = [web.client.run("measure") for _ in range(2)]
    keyed.handle(preset_folder=str(jobs))
    assert "No claim was found yet" in web.page("/trends")
    assert "0 of 2 answers" in web.page("/trends")

    while web.figures.step():
        pass

    page = web.page("/trends")
    assert "decode_speedup" in page
    assert all(run.branch in page for run in runs)
    assert page.count("<figure>") == len(web.figures.trends())
    assert "recall" not in web.page("/trends?name=decode_*")
    assert "No figure fits this filter" in web.page("/trends?name=nothing")
    assert "No figure fits this filter" in web.page("/trends?preset=noop")


def test_an_alarm_is_news_for_ten_runs_and_names_the_first_run():
    steady = [figure(i, 100 + i % 3) for i in range(12)]
    lower = [figure(12 + i, 90 + i % 3) for i in range(13)]

    (trend,) = group_into_trends([*steady, *lower[:3]])
    shown = Shown.of(trend)
    assert shown.is_news
    assert [(alarm.change.text(), alarm.first.branch) for alarm in shown.alarms] == [
        ("fell by 9.9%", "mac-bridge/x-12")
    ]
    (trend,) = group_into_trends([*steady, *lower])
    assert len(Shown.of(trend).alarms) == 1
    assert not Shown.of(trend).is_news


def test_runners_and_parameters_are_never_compared_with_each_other():
    """Another machine, or less work, is no change of the figure."""
    one = [figure(i, 100 + i % 3) for i in range(12)]
    two = [figure(i, 50 + i % 3, runner="two") for i in range(12)]
    less = [figure(i, 70 + i % 3, params="n=1") for i in range(12)]

    (trend,) = group_into_trends([*one, *two, *less])

    assert [series.name for series in trend.series()] == ["one", "one, n=1", "two"]
    assert Shown.of(trend).alarms == ()


def test_values_that_do_not_count_raise_no_alarm():
    (trend,) = group_into_trends(
        [figure(i, 100) for i in range(10)] + [figure(i, 10, counts=False) for i in range(5)]
    )

    assert Shown.of(trend).alarms == ()
    assert Shown.of(trend).left_out == 5
    assert Shown.of(trend).last.value == 100


@pytest.mark.parametrize(
    ("shown", "verdict", "words"),
    [
        (SHOWN, "ACCEPTED", "signed by mac-1's key"),
        (replace(SHOWN, trust=Trust.UNPINNED), "ACCEPTED", "signed by a key that is not pinned here"),
        (replace(SHOWN, trust=Trust.UNSIGNED), "ACCEPTED", "unsigned"),
        (Conclusion(State.GATE_INCOMPLETE, "INCOMPLETE", Trust.UNSIGNED), "INCOMPLETE", "unsigned"),
        (Conclusion(State.SUCCEEDED, None, Trust.SIGNED, "mac-1"), None, "signed by mac-1's key"),
        (Conclusion(State.SUCCEEDED, None, Trust.REFUSED), None, "does not hold"),
    ],
)
def test_each_value_names_who_vouches_for_it(shown, verdict, words):
    trends = group_into_trends([figure(1, 100, shown=shown)])
    pages = Pages("bus", Links("", files=True), "", lambda: 0, lambda _view: None)

    page = html.unescape(pages.trends(Snapshot(()), [Shown.of(trend) for trend in trends], (1, 1)))
    (line,) = trends[0].lines()

    text = f"{verdict}, {words}" if verdict else words
    assert len(re.findall(rf"<(?:span|td)[^>]*>{text}<", page)) == 2
    refused = shown.is_refused
    assert (line["verdict"], line["voucher"], line["holds"]) == (
        verdict,
        None if refused else words,
        not refused,
    )
    assert "conclusion" not in line
    json.dumps(line)
