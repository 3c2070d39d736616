"""``kakeya measure``: a job on this machine, without a bus of one's own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from bridge.cli import main
from bridge.verify.public_keys import PublicKey

pytestmark = [
    pytest.mark.bus,
    pytest.mark.skipif(importlib.util.find_spec("mlx_lm") is None, reason="needs the engine"),
]

# What a user sets for buses of other people says nothing about one's own.
OF_OTHER_BUSES = {"KAKEYA_PUBLIC_KEY": PublicKey(bytes(32)).text, "KAKEYA_BRANCH_PREFIX": "mine/"}


@pytest.mark.long
def test_a_job_that_is_refused_is_refused_for_a_reason(tmp_path):
    model = f"KAKEYA_MAC_VERIFIER_PATH={tmp_path / 'no-model'}"
    argv = ["measure", "k3-native-baseline", "--env", model, "--out", "out", "--key-folder", "key"]

    ran = subprocess.run(
        [sys.executable, "-P", "-m", "bridge", *argv],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip

    assert ran.returncode == 4
    assert "no-model" in ran.stderr
    assert "cannot be loaded" in ran.stderr


SCRIPT = {"steps": [{"argv": ["${ENV:KAKEYA_MAC_PYTHON}", "${ENV:MY_SCRIPT}"]}]}
MISTAKES = {
    # Otherwise the bundled model would be measured in place of the one that was meant.
    "a setting that it does not take": (SCRIPT, ["-e", "MODEL=x"], "takes no setting MODEL\n  It takes "),
    "a setting that it lacks": (SCRIPT, [], "needs the setting MY_SCRIPT\n  Add -e MY_SCRIPT=VALUE."),
    "code of the requester's": ({"code": "request"}, [], "runs the requester's own code, and a measurement"),
    "no folder to write into": (
        {},
        ["--out", "mine.yaml/out"],
        "mine.yaml is no folder that you may write to",
    ),
}


@pytest.mark.parametrize(("changes", "args", "reason"), MISTAKES.values(), ids=MISTAKES)
def test_what_cannot_be_measured_or_kept_does_not_run(tmp_path, monkeypatch, capsys, changes, args, reason):
    steps = [{"argv": ["/bin/true"]}]
    mine = {
        "name": "mine",
        "description": "x",
        "code": "installed",
        "timeout_s": 30,
        "steps": steps,
        **changes,
    }
    (tmp_path / "mine.yaml").write_text(json.dumps(mine))
    monkeypatch.chdir(tmp_path)
    argv = ["kakeya", "measure", "mine", "--presets", ".", "--key-folder", "key", *args]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as ended:
        main()

    said = capsys.readouterr().err
    assert (ended.value.code, reason in said) == (2, True), said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.yaml"]


@pytest.mark.rows(1)
@pytest.mark.parametrize("folder", ["./presets", "ABSOLUTE"])
def test_a_preset_of_ones_own_is_tried_as_the_page_says(folder, tmp_path):
    mine = {
        "name": "mine", "description": "Say hello.", "code": "installed", "timeout_s": 30,
        "steps": [{"argv": ["${ENV:KAKEYA_MAC_PYTHON}", "-c", "print('hello')"]}],
    }  # fmt: skip
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "mine.yaml").write_text(json.dumps(mine))
    presets = folder.replace("ABSOLUTE", str(tmp_path / "presets"))

    ran = subprocess.run(
        [sys.executable, "-P", "-m", "bridge", "measure", "mine", "--key-folder", "key"],
        cwd=tmp_path, env=os.environ | OF_OTHER_BUSES | {"KAKEYA_PRESETS": presets}, capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    assert "hello" in ran.stderr


@pytest.mark.long
@pytest.mark.parametrize("where", ["option", "repository"])
def test_a_preset_of_ones_own_is_found_and_what_it_leaves_is_written_to_a_folder_that_is_named(
    where, tmp_path
):
    write = "open('results/research/x.json', 'w').write('{}')"
    mine = {
        "name": "mine", "description": "Say hello.", "code": "installed", "timeout_s": 30,
        "steps": [{"argv": ["${ENV:KAKEYA_MAC_PYTHON}", "-c", write]}], "collect": ["results/research/x.json"],
    }  # fmt: skip
    folder = tmp_path / ("mine" if where == "option" else ".kakeya/presets")
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(json.dumps(mine))
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    options = ["--presets", "mine"] if where == "option" else []

    ran = subprocess.run(
        [sys.executable, "-P", "-m", "bridge", "measure", "mine", "--key-folder", "key", *options],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    assert "wrote results/x.json and x.run" in ran.stdout
    assert "next: kakeya gate results --key key/runner.pub" in ran.stderr


@pytest.mark.long
def test_a_report_of_ones_own_kind_keeps_its_kind_beside_it(tmp_path):
    code = (
        "import hashlib, json, os; p = 'results/research/x.json'; "
        "open(p, 'w').write(json.dumps(dict(kind='mine', wall_s=2, samples=[1, 2, 3]))); "
        "print('kakeya-file', os.environ['KAKEYA_RUN_ID'], hashlib.sha256(open(p, 'rb').read()).hexdigest())"
    )
    claim = {"name": "wall_s", "pointer": "/wall_s", "unit": "s", "better": "lower", "samples": "/samples"}
    mine = {
        "name": "mine", "description": "Time it.", "code": "installed", "timeout_s": 30, "gate": "mine",
        "steps": [{"argv": ["${ENV:KAKEYA_MAC_PYTHON}", "-c", code]}], "collect": ["results/research/x.json"],
        "reports": {"mine": {"schema": "mine.json", "claims": [claim]}},
    }  # fmt: skip
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets/mine.yaml").write_text(json.dumps(mine))
    (tmp_path / "presets/mine.json").write_text('{"type": "object", "required": ["samples"]}')

    def kakeya(*args):
        argv = [sys.executable, "-P", "-m", "bridge", *args]
        env = {**os.environ, "KAKEYA_PRESETS": "presets"}
        return subprocess.run(
            argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120
        )

    measured = kakeya("measure", "mine", "--out", "out", "--key-folder", "key", "--json")
    judged = kakeya("gate", "out", "--key", "key/runner.pub")
    other = kakeya("gate", "out", "--json")

    assert measured.returncode == 0, measured.stderr
    assert (
        json.loads(measured.stdout)["conclusion"]["text"]
        == "succeeded, ACCEPTED, signed by local-runner's key"
    )
    assert judged.stdout.startswith("ACCEPTED, signed by local-runner's key: no reason"), judged.stdout
    # Who does not pin the key reads that alone, as of a report of the engine's.
    assert (other.returncode, [each["code"] for each in json.loads(other.stdout)["violations"]]) == (
        7,
        ["OTHER_SIGNER"],
    )
