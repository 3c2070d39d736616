"""A request brings its report along in its tree, and its job measures nothing: a real runner does not accept it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from bridge.bus.wire import State
from bridge.errors import ExitCode
from bridge.gate import judge, run_id
from bridge.manifest import format_time
from tests.bridge.gate import reports

pytestmark = pytest.mark.bus

PATH = "results/research/r.json"
DAYS = 200


def old() -> dict:
    """Return a report that the gate accepts where it was measured, 200 days ago."""
    at = format_time(datetime.now(UTC) - timedelta(days=DAYS))
    return reports.spec_bench() | {"created_at": at}


def of_another_host() -> dict:
    made = old()
    return made | {"identity": made["identity"] | {"memory_bytes": 1 << 39}}


def of_another_run() -> dict:
    made = reports.spec_bench()
    return made | {
        "created_at": old()["created_at"],
        "run": {"id": run_id("mac-bridge/replay-1700000000-abcdef", "c" * 40, 1)},
    }


REPLAYED = {
    "200 days old": (old(), "RUN_UNNAMED"),
    "dated 2099": (old() | {"created_at": "2099-01-01T00:00:00Z"}, "RUN_UNNAMED"),
    "of another host": (of_another_host(), "RUN_UNNAMED"),
    "of another run": (of_another_run(), "NOT_THIS_RUN"),
    "of another run, dated 2099": (of_another_run() | {"created_at": "2099-01-01T00:00:00Z"}, "NOT_THIS_RUN"),
}


@pytest.mark.long
def test_row_110_a_report_that_the_request_brings_along_is_not_accepted(runners, presets, requester, client):
    folder = presets(
        replay={
            "code": "request",
            "collect": ["results/research/*.json"],
            "gate": "kakeya.spec-bench",
            "steps": [{"argv": ["/bin/true"]}],
        }
    )
    runners.start(preset_folder=str(folder), trust={"code_request": "allow"})
    sent = {
        name: requester.send(
            requester.manifest("replay", code="request"), files={PATH: json.dumps(report).encode()}
        )
        for name, (report, _) in REPLAYED.items()
    }

    for name, branch in sent.items():
        report, code = REPLAYED[name]
        status = client.wait(branch, timeout=120)
        result = client.result(branch)

        alone = judge({PATH: json.dumps(report).encode()}).violations
        assert [one.code for one in alone] == ["NO_RUN"], name  # nothing else is wrong with it
        ends = {
            "REJECTED": (State.GATE_REJECTED, ExitCode.GATE_REJECTED),
            "INCOMPLETE": (State.GATE_INCOMPLETE, ExitCode.GATE_INCOMPLETE),
        }
        assert (status.state, status.exit_code) == ends[result.gate.verdict], name
        assert [file.path for file in result.files if file.path == PATH] == [PATH], name
        assert {one.code for one in result.gate.violations} >= {code}, name
        assert client.verify(branch).holds, name
