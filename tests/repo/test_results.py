"""The page of results: what the gate accepts is on it, losses and all, and nothing else is."""

from __future__ import annotations

import importlib.util
import json
import re
import sys

import pytest

from benchmarks import results
from benchmarks.results_claims import loss
from benchmarks.results_kept import Kept, keep, note_of, read, report_of
from benchmarks.results_page import page
from benchmarks.results_scores import scores
from bridge.report.text import number
from tests.bridge.gate import reports


def kept(report, name="it", exit_code=0, **told) -> Kept:
    """Return the run of a report."""
    data = json.dumps(report).encode() if report is not None else b""
    return Kept(name, ("bench", "it"), exit_code, report=data, **told)


def losing() -> dict:
    """An honest report of a drafter that only costs time."""
    made = reports.spec_bench()
    for row in made["rows"]:
        if row["arm"] == "dflash":
            row["e2e_s"] += 2 * row["decode_s"]
            row["decode_s"] *= 3
    made["seconds"] = 1000.0
    return reports.timed(reports.restate(made))


def lying() -> dict:
    made = reports.spec_bench()
    made["claims"][0]["value"] = 7.77
    return made


def parts(text: str) -> dict[str, str]:
    """Return the sections by their headings."""
    found = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


KINDS = {
    "spec": reports.spec_bench,
    "acceptance": reports.acceptance,
    "native": reports.native,
    "recall": reports.recall,
    "restored": reports.restored_prefill,
    "verify-l": reports.verify_l,
    "kv-quant": reports.kv_quant,
    "parity": reports.parity,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_claim_of_an_accepted_report_stands_on_the_page(kind):
    report = KINDS[kind]()

    text = parts(page([kept(report)]))["it"]

    assert [c["name"] for c in report["claims"] if c["name"] not in text] == []
    assert [c["value"] for c in report["claims"] if number(c["value"]) not in text] == []
    assert "kakeya-engine bench it" in text
    assert report["created_at"] in text


def test_codecs_are_shown_by_their_rows():
    report = reports.codec_rd()

    text = parts(page([kept(report)]))["it"]

    assert all(number(row["rel_mse"]) in text for row in report["rows"])


def test_what_the_gate_rejects_is_named_with_its_reason_and_without_its_figures():
    text = page([kept(reports.native(), "honest"), kept(lying(), "a-lie")])

    found = parts(text)
    assert "a-lie" not in found
    assert "a-lie" not in found["Losses"]
    assert "REJECTED (CLAIM_NOT_FROM_ROWS)" in found["Not accepted"]
    assert "Fix: compute the claim from the rows" in found["Not accepted"]
    assert "decode_speedup |" not in text


def test_incomplete_unreadable_and_missing_reports_are_no_results():
    bare = reports.native()
    del bare["identity"]
    runs = [kept(bare, "bare"), kept(None, "none", exit_code=2), kept([], "odd")]

    found = parts(page(runs))

    assert found.keys() == {"Not accepted"}
    assert re.search(r"\*\*bare\*\*.*INCOMPLETE", found["Not accepted"])
    assert re.search(r"\*\*none\*\*.*no report, exit code 2", found["Not accepted"])
    assert re.search(r"\*\*odd\*\*.*REJECTED", found["Not accepted"])


def test_a_report_of_a_command_that_failed_is_no_result():
    found = parts(page([kept(reports.native(), exit_code=1)]))

    assert found.keys() == {"Not accepted"}
    assert "ACCEPTED, exit code 1" in found["Not accepted"]


def test_losses_stand_in_the_table_and_before_it():
    report = losing()

    found = parts(page([kept(report)]))

    (claim,) = (c for c in report["claims"] if c["name"] == "decode_speedup")
    assert claim["value"] < 1
    assert re.search(
        rf"\| it \| decode_speedup \| `dflash` over `mlx-lm` \| {re.escape(number(claim['value']))} .*slower",
        found["Losses"],
    )
    assert number(claim["value"]) in found["it"]


def test_where_nothing_is_lost_the_page_says_so():
    found = parts(page([kept(reports.kv_quant())]))

    assert "|" not in found["Losses"]


def claim_of(name, value, arm="dflash", **more):
    return {"name": name, "value": value, "arm": arm, "where": {}, **more}


LOSSES = [
    ("decode_ratio", 0.99, "dflash", "slower"),
    ("decode_ratio", 1.01, "dflash", ""),
    ("rel_mse_ratio", 1.2, "dflash", "errs more"),
    ("prompt_kl_ratio", 1.2, "dflash", "farther off than a control"),
    ("prompt_kl_ratio", 0.2, "dflash", ""),
    ("recall_delta", -0.1, "dflash", "finds fewer"),
    ("recall_delta", -0.9, "noise", ""),
    ("memory_saving", -0.2, "dflash", "takes more"),
    ("identical_outputs", 0.9, "dflash", "not always the same tokens"),
    ("accept_length", 0.9, "dflash", ""),
]


@pytest.mark.parametrize(("name", "value", "arm", "why"), LOSSES)
def test_which_claims_are_losses(name, value, arm, why):
    arms = [{"name": "dflash", "role": "candidate"}, {"name": "noise", "role": "poison"}]
    report = {"kind": "kakeya.spec-bench", "arms": arms}

    assert loss(report, claim_of(name, value, arm)) == why


def test_a_code_that_errs_more_at_equal_bits_is_a_loss():
    report = reports.codec_rd()
    report["config"] |= {"dim": 48, "model": "a/model"}  # where both store 2.5 bits a value
    report["rows"][0]["distribution"] = "keys 48"
    worse = {"codec": "voronoi", "rel_mse": 0.16, "rotated": True, "group": None}
    report["rows"].append({**report["rows"][0], **worse})

    found = parts(page([kept(report)]))

    assert "E8 Voronoi over affine at 2.5 bits, keys 48 | 0.16 against 0.156" in found["Losses"]


def test_a_run_that_was_measured_again_says_what_came_of_it_before():
    again = kept(reports.native(), earlier=("REJECTED (DECODE_SPREAD)",))

    assert "measured 2 times, before: REJECTED (DECODE_SPREAD)" in page([again])


def test_machines_are_told_apart():
    other = reports.native()
    other["identity"]["chip"] = "another-chip"

    told = parts(page([kept(reports.native(), "one"), kept(other, "two")]))["Machine"]

    assert re.search(r"a-chip.*: one\n.*another-chip.*: two", told)


def test_rendering_again_measures_nothing_and_reads_what_is_kept(tmp_path, monkeypatch):
    report_of(tmp_path, "spec-tiny").write_text(json.dumps(losing()))
    keep(tmp_path, kept(losing(), "spec-tiny", earlier=("no report",)))
    written = tmp_path / "page.md"
    monkeypatch.setattr(results, "measure", None)
    monkeypatch.setattr(
        sys, "argv", ["results", "--render", "--reports", str(tmp_path), "--page", str(written)]
    )

    assert results.main() == 0
    assert written.read_text() == page([kept(losing(), "spec-tiny", earlier=("no report",))])


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="the engine is not installed")
def test_a_command_is_run_its_report_judged_and_what_lay_there_before_is_gone(tmp_path):
    rows = tmp_path / "rd.json.rows.jsonl"
    rows.write_text("of another run")
    short = ("codec", "rd", "--n-vectors", "64", "--codecs", "affine", "--bits")

    good = results.measure(results.Run("rd", (*short, "4")), tmp_path)
    bad = results.measure(results.Run("rd", (*short, "7")), tmp_path)

    assert (good.said, good.accepted) == ("ACCEPTED", True)
    assert (bad.said, bad.report) == ("no report, exit code 2", b"")
    assert read(tmp_path, "rd") == bad
    assert not rows.exists()


@pytest.mark.long
def test_the_published_page_is_what_its_reports_say():
    names = [run.name for run in results.runs()]
    kept = [found for name in names if (found := read(results.PUBLISHED, name))]

    assert results.PAGE.read_text(encoding="utf-8") == page(kept, results.earlier(results.PUBLISHED))
    known = {
        file.name
        for name in names
        for file in (report_of(results.PUBLISHED, name), note_of(results.PUBLISHED, name))
    }
    assert {file.name for file in results.PUBLISHED.iterdir()} <= known | {"earlier.md"}


@pytest.mark.long
def test_the_gate_accepts_the_published_reports():
    found = {file.name: file.read_bytes() for file in results.PUBLISHED.glob("*.json")}

    told = {name: evidence.judge({name: data}).verdict for name, data in found.items()}
    kept = {name: read(results.PUBLISHED, name.removesuffix(".json")) for name in found}

    assert len(told) > 10
    assert told == dict.fromkeys(found, "ACCEPTED")
    assert {name for name, run in kept.items() if run is None or not run.accepted} == set()


def test_publishing_copies_reports_and_notes_and_removes_what_is_gone(tmp_path):
    there, to = tmp_path / "there", tmp_path / "to"
    there.mkdir()
    library = {"identity": {"blas": {"library": "/home/somebody/libblas.so"}}}
    report_of(there, "one").write_text(json.dumps(library))
    keep(there, kept(reports.native(), "one"))
    (there / "one.log").write_text("what was printed")
    results.publish(there, ["one", "two"], to)
    report_of(there, "one").unlink()

    assert {file.name for file in to.iterdir()} == {"one.json", "one.run"}
    assert report_of(to, "one").read_text() == '{"identity": {"blas": {"library": "libblas.so"}}}'
    results.publish(there, ["one", "two"], to)
    assert {file.name for file in to.iterdir()} == {"one.run"}


def test_all_that_is_measured_has_a_name_of_its_own():
    names = [run.name for run in results.runs()]

    assert len(names) == len(set(names)) > 10


def test_scores_on_the_page_are_those_that_are_kept():
    assert scores() in (results.ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert scores() in page([kept(reports.native(), "honest")])
