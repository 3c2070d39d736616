"""The example that times a compiler, from `kakeya run` to an accepted verdict in every place; and what falsifies it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bridge.bus import wire
from bridge.client import Client

pytestmark = pytest.mark.bus

EXAMPLE = Path(__file__).parents[3] / "examples/compile-time"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
CHECKED = (
    "compile-time: schema, 3 claims (plain_s, optimized_s, slowdown) derived again from 5 samples, "
    "file vouched for by the run"
)
REPORT = "results/research/compile-time.json"


def answer(clone, keyed, folder, monkeypatch, **params):
    """Ask for the example's preset in this folder; returns the branch of a signed answer."""
    monkeypatch.setenv("KAKEYA_PRESETS", str(folder))
    monkeypatch.setenv("KAKEYA_PUBLIC_KEY", str(keyed.key()))
    branch = Client(clone).run("compile-time", params).branch
    env = {"COMPILE_TIME": str(EXAMPLE / "measure.py"), "CC": COMPILER or "/bin/true"}
    keyed.handle(preset_folder=str(folder), env=env)
    return branch


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_the_example_is_accepted_everywhere(kakeya, clone, keyed, monkeypatch, tmp_path):
    branch = answer(clone, keyed, EXAMPLE / "presets", monkeypatch, repeats=5)
    out = tmp_path / "out"

    for command in ("verify", "wait"):
        code, text = kakeya(command, branch)
        assert code == 0, text
        assert "ACCEPTED, signed by one's key" in text
        assert CHECKED in text
    assert f"no rule installed here objects to its report; {CHECKED}" in kakeya("verify", branch)[1]
    assert kakeya("fetch", branch, "--out", out)[0] == 0
    # A maintainer who gates a fetched folder has no preset.
    monkeypatch.delenv("KAKEYA_PRESETS")
    code, text = kakeya("gate", out, "--kind", "compile-time", "--json")
    assert (code, json.loads(text)["verdict"]) == (0, "ACCEPTED")
    assert CHECKED in json.loads(text)["notes"][0]
    for form in ([], ["--markdown"]):
        assert kakeya("report", branch, "--out", tmp_path / "page", *form)[0] == 0
        page = (tmp_path / "page").read_text().replace("\\", "")
        assert all(words in page for words in (CHECKED, "slowdown", "lower is better")), form
    code, text = kakeya("report", branch, "--json")
    assert (code, [claim["name"] for claim in json.loads(text)["runs"][0]["reports"][0]["claims"]]) == (
        0, ["plain_s", "optimized_s", "slowdown"],
    )  # fmt: skip
    code, text = kakeya("list", "--claims", "*", "--json")
    assert code == 0, text
    assert "slowdown" in text


FALSE = {
    "value": ("plain_s", 1e-9, "CLAIM_NOT_FROM_SAMPLES"),
    "schema": ("extra", 1, "SCHEMA_MISMATCH"),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_falsified_report_is_rejected_with_the_reason(
    name, kakeya, clone, keyed, monkeypatch, tmp_path, presets
):
    field, value, code = FALSE[name]
    preset = yaml.safe_load((EXAMPLE / "presets/compile-time.yaml").read_text())
    report = {"kind": "compile-time", "compiler": "cc", "samples": {"-O0": [1] * 5, "-O2": [2] * 5}}
    report |= {"plain_s": 1, "optimized_s": 2, "slowdown": 2, field: value}
    (tmp_path / "r.json").write_text(json.dumps(report))
    script = f'mkdir -p results/research; cp "$1" {REPORT}; sh "$2" {REPORT}'
    preset |= {
        "params": {},
        "steps": [
            {"argv": ["/bin/sh", "-c", script, "sh", str(tmp_path / "r.json"), str(EXAMPLE / "vouch.sh")]}
        ],
    }
    folder = presets(compile_time={key: preset[key] for key in preset if key != "name"})
    branch = answer(clone, keyed, folder, monkeypatch)

    exit_code, text = kakeya("wait", branch)

    assert exit_code == 5, text
    assert "REJECTED" in text
    assert code in text


@pytest.mark.parametrize(
    "helper", [[sys.executable, "vouch.py"], ["/bin/sh", "vouch.sh"]], ids=["python", "shell"]
)
def test_both_helpers_print_the_line(helper, tmp_path):
    (tmp_path / "a b.json").write_bytes(b"{}")
    argv = [helper[0], str(EXAMPLE / helper[1]), "a b.json"]
    run = "a" * 64

    def printed(**env):
        done = subprocess.run(
            argv, cwd=tmp_path, env={"PATH": os.defpath, **env}, capture_output=True, check=True
        )
        return done.stdout.decode()

    missing = subprocess.run([*argv[:-1], "none"], cwd=tmp_path, capture_output=True, check=False)

    digest = hashlib.sha256(b"{}").hexdigest()
    assert printed(KAKEYA_RUN_ID=run) == f"kakeya-file {run} {digest}\n"
    assert printed() == f"kakeya-file - {digest}\n"
    assert missing.returncode != 0
    assert len((EXAMPLE / helper[1]).read_text().splitlines()) <= 30


def test_a_kind_that_the_preset_does_not_declare_is_named(kakeya, clone, keyed, monkeypatch, presets):
    script = (
        f"mkdir -p results/research; echo '[]' | sed 's/.*/{chr(123)}\"kind\": \"mine\"{chr(125)}/' >{REPORT}"
    )
    folder = presets(compile_time={
        "steps": [{"argv": ["/bin/sh", "-c", script]}], "collect": [REPORT], "gate": "reports",
    })  # fmt: skip
    branch = answer(clone, keyed, folder, monkeypatch)

    code, text = kakeya("wait", branch)

    assert code == 7, text
    assert "KIND_NOT_DECLARED" in text
    assert wire.KINDS not in text
