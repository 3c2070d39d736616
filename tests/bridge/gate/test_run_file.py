"""A run file beside a report: what a pinned key signed vouches for it, and nothing else does."""

from __future__ import annotations

import base64
import json

import pytest

from bridge.bus import wire
from bridge.gate import RunBinding, check_report, judge_each
from bridge.verify.run_file import make_run_file, voucher_for
from tests.bridge.gate import reports, runs

KEY, OTHER_KEY = runs.Key(), runs.Key()
KINDS = [kind for kind in reports.BUILDERS if kind in reports.kinds.COMMANDS]


def honest(kind=reports.kinds.KV_QUANT, **changes):
    return reports.in_run(reports.BUILDERS[kind]() | changes)


@pytest.fixture
def pair(tmp_path):
    """Return a report with a signed run file beside it, and the files of its answer."""
    files = runs.answer(KEY, honest())
    return runs.write_pair(tmp_path, files), files


def judged(path, pin=KEY.pin):
    """Return the verdict on a file, and the codes against it."""
    data = path.read_bytes()
    gate = judge_each([(path.name, data, voucher_for(path, data, pin))])
    return gate.verdict, {fault.code for fault in gate.violations}


@pytest.mark.parametrize("kind", KINDS)
def test_a_signed_run_vouches_for_its_report(kind, tmp_path):
    path = runs.write_pair(tmp_path, runs.answer(KEY, honest(kind)))

    assert isinstance(voucher_for(path, path.read_bytes(), KEY.pin), RunBinding)
    assert judged(path) == ("ACCEPTED", set())


def test_a_run_of_the_requesters_code_is_named_in_the_verdict(tmp_path):
    path = runs.write_pair(tmp_path, runs.answer(KEY, honest(), code="request"))

    assert judged(path) == ("ACCEPTED_BY_REQUESTER", set())


def test_without_a_run_file_no_run_vouches(pair):
    path, _ = pair
    path.with_suffix(".run").unlink()

    assert judged(path) == ("INCOMPLETE", {"NO_RUN"})


def test_without_a_pinned_key_the_signer_is_named(pair):
    path, _ = pair
    code, message = voucher_for(path, path.read_bytes(), None)

    assert code == "OTHER_SIGNER"
    assert KEY.public.short in message
    assert judged(path, pin=None) == ("INCOMPLETE", {"OTHER_SIGNER"})


def test_another_signer_is_named_beside_the_pinned_one(pair):
    path, _ = pair
    code, message = voucher_for(path, path.read_bytes(), OTHER_KEY.pin)

    assert code == "OTHER_SIGNER"
    assert {KEY.public.short, OTHER_KEY.public.short} <= set(message.replace(";", "").split())
    assert judged(path, pin=OTHER_KEY.pin) == ("INCOMPLETE", {"OTHER_SIGNER"})


def test_an_unsigned_run_vouches_for_nothing(tmp_path):
    files = runs.answer(None, honest())
    (tmp_path / ".mac-bridge").mkdir()
    (tmp_path / wire.RESULT).write_bytes(files[wire.RESULT])
    path = tmp_path / "report.json"
    path.write_bytes(files[runs.REPORT])

    assert voucher_for(path, path.read_bytes(), KEY.pin) == ("NO_RUN", "the run is not signed")


def test_a_fetched_answer_vouches_for_its_reports(tmp_path):
    for path, data in runs.answer(KEY, honest()).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)

    assert judged(tmp_path / runs.REPORT) == ("ACCEPTED", set())
    (tmp_path / runs.LOG).unlink()
    assert judged(tmp_path / runs.REPORT)[0] == "REJECTED"


def test_any_changed_byte_of_a_report_is_an_edit(pair):
    path, files = pair
    data = files[runs.REPORT]
    for at in range(0, len(data), 97):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        verdict, codes = judged(path)
        assert verdict == "REJECTED"
        assert codes & {"EDITED", "UNREADABLE"}
    for changed in (data + b"\n", data[:-1], json.dumps(json.loads(data), indent=1).encode()):
        path.write_bytes(changed)
        assert voucher_for(path, changed, KEY.pin)[0] == "EDITED"
        assert judged(path)[0] == "REJECTED"


@pytest.mark.parametrize("part", ["result", "evidence", "logs"])
def test_any_changed_byte_of_a_run_file_is_found(part, pair):
    path, _ = pair
    run = json.loads(path.with_suffix(".run").read_bytes())
    before = base64.b64decode(run["logs"][runs.LOG]).decode() if part == "logs" else run[part]
    for at in range(0, len(before), max(1, len(before) // 60)):
        after = before[:at] + chr(ord(before[at]) ^ 1) + before[at + 1 :]
        value = {runs.LOG: base64.b64encode(after.encode()).decode()} if part == "logs" else after
        path.with_suffix(".run").write_text(json.dumps(run | {part: value}))
        if judged(path)[0] == "ACCEPTED":
            assert part == "evidence", at
            assert holds_the_same(before, after), at


def holds_the_same(before, after):
    """Return whether two envelopes hold the same statement and signature: some of their text says nothing."""
    first, second = json.loads(before), json.loads(after)
    return all(
        base64.b64decode(a) == base64.b64decode(b)
        for a, b in (
            (first["payload"], second["payload"]),
            (first["signatures"][0]["sig"], second["signatures"][0]["sig"]),
        )
    )


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (b"", "BAD_RUN"), (b"{}", "BAD_RUN"), (b"[]", "BAD_RUN"), (b"not JSON", "BAD_RUN"),
        (b'{"version": 2}', "BAD_RUN"), (b'{"version": 1, "logs": {}}', "BAD_RUN"),
        (b'{"version": 1, "result": 7, "evidence": "", "logs": {}}', "BAD_RUN"),
        (b'{"version": 1, "result": "", "evidence": "", "logs": []}', "BAD_RUN"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_run_file_is_named(changed, code, pair):
    path, _ = pair
    path.with_suffix(".run").write_bytes(changed)

    assert judged(path) == ("REJECTED", {code})


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({"log": b"nothing"}, {"EDITED"}),
        ({"branch": "mac-bridge/job-2"}, {"NOT_THIS_RUN"}),
        ({"request": "d" * 40}, {"NOT_THIS_RUN"}),
        ({"token": 2}, {"NOT_THIS_RUN"}),
        ({"started_at": "2026-02-01T11:50:00Z", "finished_at": "2026-02-01T12:05:00Z"}, {"OTHER_TIME"}),
        ({"started_at": "yesterday"}, {"NO_RUN"}),
        ({"host": {"memory_bytes": 1 << 30}}, {"NOT_THIS_RUN"}),
        ({"versions": {"mlx": "0.1"}}, {"NOT_THIS_RUN"}),
        ({"exit_code": 3}, {"BAD_RUN"}),
    ],
)  # fmt: skip
def test_a_signed_run_of_something_else_does_not_vouch(changes, codes, tmp_path):
    """A runner signed all of this: what it saw is not what the report says."""
    path = runs.write_pair(tmp_path, runs.answer(KEY, honest(), **changes))
    verdict, found = judged(path)

    assert verdict != "ACCEPTED"
    assert found & codes


def test_the_report_of_another_run_is_not_this_runs(pair, tmp_path):
    path, files = pair
    other = honest(reports.kinds.PARITY)
    path.write_text(json.dumps(other))
    assert judged(path) == ("REJECTED", {"EDITED"})

    folder = tmp_path / "other"
    folder.mkdir()
    swapped = runs.write_pair(folder, runs.answer(KEY, other))
    swapped.with_suffix(".run").write_bytes(make_run_file(files))
    assert judged(swapped) == ("REJECTED", {"EDITED"})


def test_a_log_of_another_report_does_not_vouch(tmp_path):
    log = reports.as_log(*reports.log_lines(honest(reports.kinds.PARITY)))
    path = runs.write_pair(tmp_path, runs.answer(KEY, honest(), log=log))

    assert judged(path) == ("REJECTED", {"EDITED"})


def test_a_header_stands_before_its_rows_whatever_other_reports_the_log_tells_of(tmp_path):
    report, other = honest(), honest(reports.kinds.PARITY)
    lines = [*reports.log_lines(other), *reports.log_lines(report)]
    path = runs.write_pair(tmp_path, runs.answer(KEY, report, log=reports.as_log(*lines)))
    assert judged(path) == ("ACCEPTED", set())

    moved = reports.as_log(*reversed([*reports.log_lines(report)]))
    assert judged(runs.write_pair(tmp_path, runs.answer(KEY, report, log=moved))) == ("REJECTED", {"EDITED"})


def test_the_lines_of_an_older_engine_are_enough_under_a_signature(tmp_path):
    report = honest()
    older = reports.as_log(*reports.older_log_lines(report))
    assert judged(runs.write_pair(tmp_path, runs.answer(KEY, report, log=older))) == ("ACCEPTED", set())

    others = reports.as_log(*reports.older_log_lines(honest(reports.kinds.PARITY)))
    assert judged(runs.write_pair(tmp_path, runs.answer(KEY, report, log=others))) == ("REJECTED", {"EDITED"})


def test_the_gate_still_judges_the_experiment(tmp_path):
    report = honest()
    report["models"][0]["tokenizer"] = None
    path = runs.write_pair(tmp_path, runs.answer(KEY, report))

    verdict, codes = judged(path)

    assert (verdict, codes) == ("INCOMPLETE", {"PROVENANCE_MISSING"})
    assert "PROVENANCE_MISSING" in {fault.code for fault in check_report(report)}
