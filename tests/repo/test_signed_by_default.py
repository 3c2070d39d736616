"""README's lines under "Serve jobs" end, from a clean home, in an answer that a pinned key signed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.repo import console
from tests.repo.programs import good

BUS = "git@example.com:team/bus.git"
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "A"), ("EMAIL", "a@example.com"))
}


@pytest.mark.bus
@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_lines_under_serve_jobs_end_in_a_signed_and_verified_answer(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("KAKEYA_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "home").mkdir()
    bus, clone = tmp_path / "bus.git", tmp_path / "clone"
    good("git", "init", "--quiet", "--bare", "-b", "main", str(bus), cwd=tmp_path)
    good("git", "clone", "--quiet", str(bus), str(clone), cwd=tmp_path)
    lines = [
        line[2:]
        for block in console.blocks(console.section("Serve jobs"), "console")
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    install, init, check, serve, *ask = lines
    assert install.startswith("pip install ")
    assert serve.split("#")[0].strip() == "kakeya-runner serve"
    for line in (init, check):
        good("/bin/sh", "-ec", line.replace(BUS, str(bus)), cwd=tmp_path)
    log = tmp_path / "serve.log"
    with log.open("wb") as out:
        runner = subprocess.Popen(["/bin/sh", "-ec", f"exec {serve}"], cwd=tmp_path, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 60
        while b"serving " not in log.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.1)
        said = [good("/bin/sh", "-ec", line, cwd=clone) for line in ask]
    finally:
        runner.terminate()
        runner.wait(60)

    last = said[-1].splitlines()[-1]
    assert last.startswith("verified: succeeded, ACCEPTED, signed by ")
    assert last.endswith("'s key")
    assert "no key" not in log.read_text()
