"""`kakeya gate`, and that runner and client judge by the same code."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bridge import evidence
from bridge.cli.gate import command
from bridge.errors import UsageError
from bridge.presets import Preset
from runner.serve.gate import judge
from tests.bridge.evidence import reports


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "verify.json").write_text(json.dumps(reports.verify_l()))
    (tmp_path / "plot.svg").write_text("<svg/>")
    return tmp_path


def ask(*argv):
    done = CliRunner().invoke(command, [str(part) for part in argv], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.return_value, done.stdout


def test_reports_below_a_folder_are_accepted(folder):
    assert ask(folder) == (0, "ACCEPTED: no reason against the reports\n")


def test_a_reason_comes_with_what_mends_it(folder):
    slow = reports.spec_bench()
    slow["arms"][0]["patches"] = ["x"]
    (folder / "spec.json").write_text(json.dumps(slow))
    code, shown = ask(folder)
    assert code == 5
    assert shown.splitlines() == [
        "REJECTED: 1 reason against the reports",
        f"  {folder / 'spec.json'}: PATCHED_ORACLE",
        "      mlx-lm ran with x replaced",
        "      to mend it: run the baseline on mlx-lm as it was installed",
    ]


def test_programs_get_the_whole_verdict(folder):
    code, shown = ask("--json", "--kind", "kakeya.recall", folder)
    said = json.loads(shown)
    assert (code, said["verdict"]) == (5, "REJECTED")
    assert [one["code"] for one in said["violations"]] == ["WRONG_KIND", "NO_REPORT"]
    assert all(one["mend"] for one in said["violations"])


@pytest.mark.parametrize("content", [b"{", b"[]", b" {}", b"[" * 1000])
def test_a_file_that_is_named_is_judged_whatever_it_is_called(tmp_path, content):
    (tmp_path / "notes.txt").write_bytes(content)
    assert ask(tmp_path / "notes.txt")[0] == 5


@pytest.mark.parametrize("content", [b"", b"<!DOCTYPE html>", b"\xff", b"# notes"])
def test_a_file_that_is_no_report_is_told_as_one(tmp_path, content):
    (tmp_path / "page.html").write_bytes(content)
    with pytest.raises(UsageError, match=r"page\.html is not a report") as caught:
        ask(tmp_path / "page.html")
    assert "JSON" in caught.value.fix


def test_a_folder_without_reports_is_told_as_one(tmp_path):
    with pytest.raises(UsageError, match="no reports"):
        ask(tmp_path)


def test_what_the_bridge_writes_beside_reports_is_not_judged(folder):
    own = folder / "noop-1" / ".mac-bridge" / "logs"
    own.mkdir(parents=True)
    (own / "summary.json").write_text("{}")
    (own.parent / "result.json").write_text("{}")
    assert ask(folder) == (0, "ACCEPTED: no reason against the reports\n")
    with pytest.raises(UsageError, match="no reports"):
        ask(own)


def preset(gate):
    step = {"argv": ["/bin/true"]}
    fields = {"code": "installed", "steps": [step], "timeout_s": 1, "collect": ["results/research/*.json"]}
    return Preset(name="x", description="x", gate=gate, **fields)


@pytest.mark.parametrize("kind", evidence.KINDS)
def test_the_runner_holds_a_job_to_the_kind_of_its_preset(kind):
    files = {
        "results/research/a.json": json.dumps(reports.HONEST[kind]()).encode(),
        "results/research/a.svg": b"<svg",
    }
    other = next(name for name in evidence.KINDS if name != kind)
    assert judge(preset("none"), files) is None
    assert judge(preset("reports"), files).verdict == "ACCEPTED"
    assert judge(preset(kind), files).verdict == "ACCEPTED"
    assert judge(preset(other), files).verdict == "REJECTED"
    assert judge(preset([kind, other]), files).verdict == "INCOMPLETE"


def test_the_runner_says_what_a_reader_says():
    lie = reports.recall()
    lie["claims"][0]["value"] = 0.5
    files = {"results/research/a.json": json.dumps(lie).encode()}
    assert judge(preset("kakeya.recall"), files) == evidence.judge(files, ["kakeya.recall"])
