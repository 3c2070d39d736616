"""Reports of kinds that a preset declares: schema, claims that are derived again, and the line that vouches."""

from __future__ import annotations

import hashlib
import json
import time
from itertools import islice

import pytest

from bridge.bus import wire
from bridge.errors import ManifestError
from bridge.gate import NO_RUN, RunBinding, judge, run_id
from bridge.gate.deadline import Deadline, TooLongError
from bridge.gate.own import judge_own
from bridge.reports.own import OwnKind, dump_kinds, read_kinds
from bridge.reports.own.pointer import MISSING, value_at
from bridge.reports.own.stepwise import violations
from bridge.verify.run_file import make_run_file, voucher_for
from tests.bridge.gate import reports, runs

RUN = "a" * 64
KEY = runs.Key()
CLAIM = {"name": "wall_s", "pointer": "/wall_s", "unit": "s", "better": "lower", "samples": "/samples"}
SCHEMA = {"type": "object", "required": ["kind"]}


def declared(schema=SCHEMA, **claim):
    return OwnKind.model_validate({"schema": schema, "claims": [CLAIM | claim]})


def line(data, run=RUN):
    return f"kakeya-file {run} {hashlib.sha256(data).hexdigest()}\n".encode()


def judged(report, kind=None, log=None, kinds=()):
    """Return the verdict, and each code with its message."""
    data = report if isinstance(report, bytes) else json.dumps({"kind": "mine", **report}).encode()
    log = line(data) if log is None else log
    run = RunBinding(RUN, reports.BEGAN, reports.ENDED, logs=(log,), kinds={"mine": kind or declared()})
    verdict = judge({"results/research/x.json": data}, kinds, run)
    return verdict.verdict, {each.code: each.message for each in verdict.violations}, verdict.notes


def test_the_note_says_which_checks_there_were():
    verdict, faults, notes = judged({"wall_s": 2.5, "samples": [4, 1, 2, 3]})

    assert (verdict, faults) == ("ACCEPTED", {})
    assert notes == [
        (
            "results/research/x.json: CHECKED: mine: schema, 1 claim (wall_s) derived again from 4 samples, "
            "file vouched for by the run"
        )
    ]


def test_a_claim_without_samples_is_not_called_derived():
    kind = OwnKind.model_validate({
        "schema": SCHEMA, "claims": [{name: CLAIM[name] for name in CLAIM if name != "samples"}],
    })  # fmt: skip

    assert judged({"wall_s": 1}, kind)[2][0].endswith(
        "mine: schema, 1 claim (wall_s) as the run wrote it, file vouched for by the run"
    )


RATIO = {"derive": "ratio", "against": "/other"}
HUGE = [1.7e308, 1.7e308]


@pytest.mark.parametrize(
    ("claim", "report"),
    [
        ({}, {"wall_s": 2, "samples": [3, 1, 2]}),
        ({}, {"wall_s": 1.5, "samples": [2, 1]}),
        ({}, {"wall_s": 1.7e308, "samples": HUGE}),
        ({}, {"wall_s": 0, "samples": [0]}),
        ({"derive": "mean"}, {"wall_s": 7 / 3, "samples": [1, 2, 4]}),
        ({"derive": "mean"}, {"wall_s": 1.7e308, "samples": HUGE}),
        ({"derive": "mean"}, {"wall_s": (0.1 + 0.2 - 0.3) / 3, "samples": [0.1, 0.2, -0.3]}),
        (RATIO, {"wall_s": 2.5, "samples": [5, 5, 9], "other": [2]}),
        ({"pointer": "/a~1b/~0c/1", "samples": "/rows/0/s"}, {"a/b": {"~c": [0, 3]}, "rows": [{"s": [3]}]}),
        ({"samples": "/samples/-O0"}, {"wall_s": 1, "samples": {"-O0": [1]}}),
        ({}, {"wall_s": 2 * (1 + 1e-10), "samples": [2]}),
    ],
)  # fmt: skip
def test_a_value_that_the_samples_give_is_accepted(claim, report):
    assert judged(report, declared(**claim))[:2] == ("ACCEPTED", {})


@pytest.mark.parametrize(
    ("claim", "report", "verdict", "code", "message"),
    [
        ({}, {"wall_s": 2, "samples": [1, 1]}, "REJECTED", "CLAIM_NOT_FROM_SAMPLES", "is 2; the median of the samples"),
        ({}, {"wall_s": 2.00001, "samples": [2]}, "REJECTED", "CLAIM_NOT_FROM_SAMPLES", "2.00001"),
        ({"derive": "mean"}, {"wall_s": 1e-9, "samples": [1, -1]}, "REJECTED", "CLAIM_NOT_FROM_SAMPLES", "is 0"),
        ({}, {"wall_s": 1e-300, "samples": [0]}, "REJECTED", "CLAIM_NOT_FROM_SAMPLES", "is 0"),
        ({}, {"samples": [1]}, "INCOMPLETE", "CLAIM_MISSING", "wall_s at /wall_s is missing"),
        ({}, {"wall_s": 1}, "INCOMPLETE", "CLAIM_MISSING", "no samples at /samples"),
        ({"pointer": "/list/2"}, {"list": [1], "samples": [1]}, "INCOMPLETE", "CLAIM_MISSING", "/list/2"),
        ({"pointer": "/list/-"}, {"list": [1], "samples": [1]}, "INCOMPLETE", "CLAIM_MISSING", "/list/-"),
        ({"pointer": "/list/01"}, {"list": [1, 1], "samples": [1]}, "INCOMPLETE", "CLAIM_MISSING", "/list/01"),
        ({}, {"wall_s": 1, "samples": []}, "INCOMPLETE", "TOO_FEW_SAMPLES", "has 0 samples of at least 1"),
        ({"min_samples": 3}, {"wall_s": 1, "samples": [1, 1]}, "INCOMPLETE", "TOO_FEW_SAMPLES", "of at least 3"),
        ({}, {"wall_s": "1", "samples": [1]}, "REJECTED", "NOT_A_NUMBER", "is a text"),
        ({}, {"wall_s": True, "samples": [1]}, "REJECTED", "NOT_A_NUMBER", "is a boolean"),
        ({}, {"wall_s": None, "samples": [1]}, "REJECTED", "NOT_A_NUMBER", "is null"),
        ({}, {"wall_s": 1, "samples": [1, "1"]}, "REJECTED", "NOT_A_NUMBER", "sample /samples/1 is a text"),
        ({}, {"wall_s": 1, "samples": {"0": 1}}, "REJECTED", "NOT_A_NUMBER", "is an object, not a list of numbers"),
        ({}, {"wall_s": 2**53 + 1, "samples": [1]}, "REJECTED", "NOT_A_NUMBER", "above 2^53"),
        (RATIO, {"wall_s": 1, "samples": [1], "other": [0, 0]}, "REJECTED", "RATIO_BY_ZERO", "/other is 0"),
        (RATIO, {"wall_s": 1, "samples": [1e300], "other": [1e-300]}, "REJECTED", "NOT_A_NUMBER", "too large"),
        (RATIO, {"wall_s": 1, "samples": [1], "other": []}, "INCOMPLETE", "TOO_FEW_SAMPLES", "/other has 0"),
    ],
)  # fmt: skip
def test_each_wrong_claim_has_its_code_and_sentence(claim, report, verdict, code, message):
    got, faults, notes = judged(report, declared(**claim))

    assert (got, [*faults]) == (verdict, [code])
    assert message in faults[code]
    assert notes == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400", "1" + "0" * 30])
def test_texts_that_are_no_exact_numbers_are_unreadable(number):
    data = b'{"kind": "mine", "wall_s": %s, "samples": [1]}' % number.encode()

    assert [*judged(data)[1]] == ["UNREADABLE"]


@pytest.mark.parametrize(
    ("log", "code"),
    [
        (b"", "RUN_UNNAMED"),
        (b"kakeya-file - " + b"0" * 64, "RUN_UNNAMED"),
        (b"head\n[... 9 bytes left out ...] tail", "RUN_UNNAMED"),
        (line(b"another file"), "EDITED"),
    ],
)
def test_a_file_counts_only_if_the_run_vouches_for_it(log, code):
    assert [*judged({"wall_s": 1, "samples": [1]}, log=log)[1]] == [code]


def test_row_150_a_line_of_a_requester_cannot_name_the_run():
    data = json.dumps({"kind": "mine", "wall_s": 1, "samples": [1]}).encode()

    verdict, faults, _ = judged(data, log=line(data, "b" * 64))

    assert (verdict, [*faults]) == ("REJECTED", ["NOT_THIS_RUN"])


def test_a_line_after_a_text_without_end_counts():
    data = json.dumps({"kind": "mine", "wall_s": 1, "samples": [1]}).encode()

    assert judged(data, log=b"progress 50%" + line(data) + line(b"another"))[0] == "ACCEPTED"


def test_a_kind_that_the_preset_does_not_declare_is_not_called_unknown():
    verdict, faults, _ = judged({"kind": "yours"})

    assert (verdict, [*faults]) == ("INCOMPLETE", ["KIND_NOT_DECLARED"])


def test_row_149_a_schema_decides_and_quotes_nothing_of_the_report():
    kind = declared({"properties": {"samples": {"items": {"maximum": 5}}}})

    verdict, faults, _ = judged({"wall_s": 666777, "samples": [666777]}, kind)

    assert (verdict, faults) == ("REJECTED", {"SCHEMA_MISMATCH": "/samples/0: breaks maximum: 5"})


TEXT = {"properties": {"name": {"pattern": "^[a-z]*[a-z]*x$"}}}


def test_row_149_a_text_that_is_long_for_a_pattern_is_not_matched():
    assert (
        "256 characters"
        in judged({"wall_s": 1, "samples": [1], "name": "a" * 300}, declared(TEXT))[1]["SCHEMA_MISMATCH"]
    )
    began = time.monotonic()
    assert [*judged({"wall_s": 1, "samples": [1], "name": "a" * 256}, declared(TEXT))[1]] == [
        "SCHEMA_MISMATCH"
    ]
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("items", "fits"),
    [([1, 2, "1", True, [1], {"a": 1}], True), ([1, 1.0], False), ([{"a": [1]}, {"a": [1.0]}], False)],
)  # fmt: skip
def test_items_are_compared_by_their_texts(items, fits):
    kind = declared({"properties": {"tags": {"uniqueItems": True}}})

    assert (judged({"wall_s": 1, "samples": [1], "tags": items}, kind)[0] == "ACCEPTED") == fits


def bomb():
    """A schema of a few hundred bytes that applies itself two to the 40th times."""
    parts = {f"p{i}": {"allOf": [{"$ref": f"#/$defs/p{i + 1}"}] * 2} for i in range(40)}
    return declared({"$ref": "#/$defs/p0", "$defs": {**parts, "p40": {"type": "object"}}})


@pytest.mark.parametrize(
    ("keyword", "held"),
    [("allOf", {3}), ("anyOf", {1, 2, 3}), ("oneOf", {1}), ("not", {0}), ("if", {0, 1, 2, 3})],
)
def test_row_151_a_schema_of_schemas_stops_at_the_first_fault_of_each(keyword, held):
    """The faults of a long list in a schema that need not hold would take gigabytes."""
    many = {"items": {"type": "string"}}
    for count in range(4):
        schemas = [{}] * count + [many] * (3 - count)
        inner = {keyword: {"anyOf": schemas} if keyword in ("not", "if") else schemas}
        looked: list[int] = []

        found = [*islice(violations(inner, [0] * 100_000, lambda: looked.append(1)), 1)]  # noqa: B023

        assert (not found) == (count in held)
        assert len(looked) < 100


def test_row_151_a_schema_that_multiplies_itself_ends_with_the_time():
    data = b"{}"
    run = RunBinding(RUN, reports.BEGAN, reports.ENDED, logs=(line(data),))

    with pytest.raises(TooLongError):
        [*judge_own(bomb(), {}, hashlib.sha256(data).hexdigest(), run, Deadline(0.3))]


def test_row_151_a_schema_that_refers_to_itself_without_end_is_a_mismatch():
    verdict, faults, _ = judged({"wall_s": 1, "samples": [1]}, declared({"$ref": "#"}))

    assert (verdict, [*faults]) == ("REJECTED", ["SCHEMA_MISMATCH"])
    assert "without end" in faults["SCHEMA_MISMATCH"]


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b'{"version": 2, "kinds": {}}', b'{"version": 1, "kinds": {"kakeya.spec-bench": {"schema": {}}}}',
        b'{"version": 1, "kinds": {"mine": {"schema": {"$ref": "https://example.invalid/s"}}}}', b"[" * 10_000,
        b'{"version": 1, "kinds": {"mine": {"schema": {"pattern": "(a*)*"}}}}', b" " * 300_000,
    ],
)  # fmt: skip
def test_row_151_a_strangers_file_of_kinds_has_the_bounds_of_a_preset(data):
    with pytest.raises(ManifestError):
        read_kinds(data)


def test_pointers_follow_the_rfc():
    document = {"": 1, "a/b": 2, "m~n": [3], "0": {"0": 4}}

    assert [value_at(document, pointer) for pointer in ("/", "/a~1b", "/m~0n/0", "/0/0")] == [1, 2, 3, 4]
    assert all(value_at(document, pointer) is MISSING for pointer in ("/x", "/m~0n/1", "/m~0n/x", "//x"))


def pair(tmp_path, report=None, kinds=None):
    """Return the files of a signed answer with a report of kind `mine`."""
    report = report or {"kind": "mine", "wall_s": 1, "samples": [1]}
    log = line(json.dumps(report).encode(), run_id("mac-bridge/job-1", "c" * 40, 1))
    files = runs.answer(None, report, log=log, commands=[])
    files[wire.KINDS] = kinds or dump_kinds({"mine": declared()})
    result = json.loads(files[wire.RESULT])
    digest = hashlib.sha256(files[wire.KINDS]).hexdigest()
    result["files"].append({"path": wire.KINDS, "sha256": digest, "size": len(files[wire.KINDS])})
    files[wire.RESULT] = json.dumps(result).encode()
    return runs.signed(KEY, files)


def beside(path):
    data = path.read_bytes()
    verdict = judge({path.name: data}, run=voucher_for(path, data, KEY.pin))
    return verdict.verdict, [each.code for each in verdict.violations]


def test_a_run_file_carries_the_kinds(tmp_path):
    path = runs.write_pair(tmp_path, pair(tmp_path))

    assert beside(path) == ("ACCEPTED", [])


def test_row_152_a_run_file_with_easier_kinds_does_not_count(tmp_path):
    files = pair(tmp_path, {"kind": "mine", "wall_s": 2, "samples": [1]})
    path = runs.write_pair(tmp_path, files)
    assert beside(path) == ("REJECTED", ["CLAIM_NOT_FROM_SAMPLES"])

    easier = dump_kinds({"mine": OwnKind.model_validate({"schema": {}})})
    path.with_suffix(".run").write_bytes(make_run_file(files | {wire.KINDS: easier}))
    assert beside(path) == ("REJECTED", ["BAD_RUN"])

    path.with_suffix(".run").write_bytes(
        make_run_file({at: data for at, data in files.items() if at != wire.KINDS})
    )
    assert beside(path) == ("INCOMPLETE", ["KIND_NOT_DECLARED"])


def test_row_152_a_run_whose_kinds_cannot_be_read_vouches_for_nothing(tmp_path):
    path = runs.write_pair(tmp_path, pair(tmp_path, kinds=b'{"version": 1}'))

    assert beside(path) == ("REJECTED", ["BAD_RUN"])


def test_an_edited_report_is_not_the_runs(tmp_path):
    path = runs.write_pair(tmp_path, pair(tmp_path))
    path.write_bytes(path.read_bytes() + b"\n")

    assert beside(path) == ("REJECTED", ["EDITED"])


def test_a_report_whose_run_does_not_count_is_judged_by_that_alone(tmp_path):
    """Its kinds come with the run. Only if there is no run at all, its kind is called unknown."""
    path = runs.write_pair(tmp_path, pair(tmp_path))
    data = path.read_bytes()

    def codes(run, kind="mine"):
        verdict = judge({path.name: data.replace(b"mine", kind.encode())}, run=run)
        return verdict.verdict, [each.code for each in verdict.violations]

    assert codes(voucher_for(path, data, None)) == ("INCOMPLETE", ["OTHER_SIGNER"])
    assert codes(voucher_for(path, data, runs.Key().pin)) == ("INCOMPLETE", ["OTHER_SIGNER"])
    assert codes(NO_RUN) == ("REJECTED", ["NO_RUN", "UNKNOWN_KIND"])
    assert codes(("EDITED", "x"), "kakeya.mine") == ("REJECTED", ["EDITED", "UNKNOWN_KIND"])


def test_at_most_five_claims_are_named():
    claims = [{**CLAIM, "name": f"c{i}", "pointer": f"/c{i}"} for i in range(7)]
    kind = OwnKind.model_validate({"schema": SCHEMA, "claims": claims})

    note = judged({"samples": [2], **{f"c{i}": 2 for i in range(7)}}, kind)[2][0]

    assert "mine: schema, 7 claims (c0, c1, c2, c3, c4, ...) derived again from 1 sample, file" in note
