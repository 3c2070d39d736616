"""``kakeya manifest``, ``kakeya-runner once --manifest``, and the commands that read an answer's folder."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import psutil
import pytest

from bridge.bus import wire
from bridge.manifest import parse_manifest
from bridge.without_bus import NO_FILES
from tests.runner.conftest import run_kakeya
from tests.runner.direct.test_job import verified

pytestmark = pytest.mark.rows(1)
PYTHON = [sys.executable, "-P", "-m"]


@pytest.fixture
def kakeya(outside, monkeypatch, capsys):
    return lambda *args: run_kakeya(outside, monkeypatch, capsys, *args)


@pytest.fixture
def kakeya_runner(outside, monkeypatch, capsys):
    return lambda *args: run_kakeya(outside, monkeypatch, capsys, *args, program="runner")


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A folder that is in no repository."""
    folder = tmp_path / "outside"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.long
def test_two_lines_of_shell(alone, outside, monkeypatch):
    """A manifest on a pipe, an answer in a folder, and what reads it, all outside of any repository."""
    monkeypatch.setenv("KAKEYA_PRESETS", str(alone.presets))
    manifest = subprocess.run([*PYTHON, "bridge", "manifest", "broken"], check=True, capture_output=True)
    once = [*PYTHON, "runner", "--policy", str(alone.policy), "once", "--manifest", "-", "--out", "answer"]

    done = subprocess.run(once, input=manifest.stdout, capture_output=True, check=False)

    assert done.returncode == 1
    key = alone.policy.parent / "state-one" / "runner.pub"
    for command, shown in (
        ("verify", "verified: failed, signed by one's key"),
        ("report", "$ kakeya manifest broken"),
    ):
        argv = [*PYTHON, "bridge", command, "answer", "--key", str(key)]
        read = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (read.returncode, shown in read.stdout) == (0, True), read
    log = next((outside / "answer" / wire.LOGS).glob("*.log"))
    log.write_text("forged")
    for command in ("verify", "report"):
        argv = [*PYTHON, "bridge", command, "./answer", "--key", str(key)]
        assert subprocess.run(argv, capture_output=True, check=False).returncode == 1


def test_a_manifest_is_printed_without_a_bus(outside, kakeya):
    code, out, _ = kakeya("manifest", "noop", "--requested-by", "me", "--label", "m4", "--expires", "1h")

    assert code == 0
    request = parse_manifest(out)
    assert (request.preset, request.requested_by, request.labels) == ("noop", "me", ["m4"])
    assert request.workload == NO_FILES


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("no-such",), "no-such"),
        (("noop", "-p", "x=1"), "x"),
        (("noop", "--expires", "400d"), "expire"),
        (("mlx-backend-tests",), "runs the requester's own code"),
        (("k3-evidence-gate",), "a manifest alone brings no files"),
    ],
)
def test_what_no_manifest_can_ask_for(outside, kakeya, args, why):
    code, out, err = kakeya("manifest", *args)

    assert (code, out) == (2, "")
    assert why in err


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--manifest", "m.json"),
        ("--out", "x"),
        ("--branch", "mac-bridge/x", "--out", "x"),
        ("--branch", "mac-bridge/x", "--manifest", "m.json", "--out", "x"),
        ("--manifest", "m.json", "--out", "x", "--commit", "1" * 40),
        ("--manifest", "m.json", "--out", "x", "--results", "y"),
    ],
)
def test_a_call_is_of_one_kind(alone, outside, kakeya_runner, args):
    (outside / "m.json").write_bytes(alone.manifest())

    code, _, err = kakeya_runner("--policy", str(alone.policy), "once", *args)

    assert code == 2
    assert "once needs --branch, or --manifest with --out" in err
    assert [path.name for path in outside.iterdir()] == ["m.json"]


@pytest.mark.long
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_leaves_a_whole_answer_or_none(alone, tmp_path, wait_for, signum):
    (tmp_path / "m.json").write_bytes(alone.manifest("slow"))
    place = ["--manifest", str(tmp_path / "m.json"), "--out", str(alone.out)]
    argv = [*PYTHON, "runner", "--policy", str(alone.policy), "once", *place]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert any("begun" in line for line in process.stderr)
        jobs = psutil.Process(process.pid).children(recursive=True)

        process.send_signal(signum)
        said = process.stderr.read()
        code = process.wait(120)

    wait_for(lambda: not any(job.is_running() and job.status() != "zombie" for job in jobs))
    if signum == signal.SIGKILL:
        assert not alone.out.exists()
        assert alone.answer().result.state == "succeeded"
    else:
        assert code == 6, said
        assert verified(alone).holds
        result = json.loads((alone.out / wire.RESULT).read_bytes())
        assert (result["state"], result["reason"]["code"]) == ("cancelled", "cancelled")
