"""`kakeya-runner setup`: from nothing to serving, shown first, agreed to, and twice is once."""

from __future__ import annotations

import os
import pty
import subprocess
import venv
from pathlib import Path

import pytest
import yaml

from runner.policy import load_policy
from tests import programs

pytestmark = pytest.mark.bus


@pytest.fixture
def setup(tmp_path, bus):
    """Run the command as a user would; the service's files go below a folder, and no command is run."""
    policy = tmp_path / "config" / "runner.yaml"

    def run(*args: str, url: str = str(bus), stdin: int | None = None) -> subprocess.CompletedProcess[str]:
        root = tmp_path / "root"
        return programs.run("--policy", policy, "setup", "--bus", url, "--root", root, *args, stdin=stdin)

    run.policy = policy
    run.root = tmp_path / "root"
    return run


@pytest.fixture
def small(setup, tmp_path, bus):
    """Write a policy beforehand under which little has to be checked."""

    def write(url: str = str(bus)) -> None:
        setup.policy.parent.mkdir()
        rules = {"schema_version": 1, "bus": {"url": url}, "presets": ["noop"], "sandbox": "off"}
        setup.policy.write_text(yaml.safe_dump({**rules, "state": str(tmp_path / "state")}))

    return write


def files_below(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*") if path.is_file()}


def test_without_yes_it_shows_each_step_and_changes_nothing(setup):
    before = files_below(Path.home())
    done = setup()
    assert done.returncode == 0, done.stderr
    for line in (f"write {setup.policy}", "make a key", "print the public key", "kakeya-runner.service"):
        assert line in done.stdout
    assert "code_request: deny" in done.stdout
    assert "nothing was changed; add --yes" in done.stderr
    assert not setup.policy.exists()
    assert not setup.root.exists()
    assert files_below(Path.home()) == before


@pytest.mark.long
def test_with_yes_it_does_them_all_and_a_second_time_nothing(setup, clone, tmp_path):
    venv.create(tmp_path / "venv", symlinks=True)  # has nothing to import that would take long
    python = str(tmp_path / "venv" / "bin" / "python")
    done = setup("--yes", "--clone", str(clone), "--id", "mini", "--python", python)
    assert done.returncode == 0, done.stdout + done.stderr
    rules = load_policy(setup.policy)
    assert rules.id == "mini"
    assert (rules.state / "runner.key").exists()
    pinned = (clone / ".kakeya" / "runner.pub").read_text()
    assert pinned == (rules.state / "runner.pub").read_text()
    assert files_below(setup.root)
    assert "left to you: run" in done.stdout
    assert "ok    bus" in done.stdout
    assert "pytest-path: it runs the requester's own code" in done.stderr
    assert f"git -C {clone} add .kakeya/runner.pub" in done.stderr

    # What the first run has checked of all other presets is not checked again.
    setup.policy.write_text(yaml.safe_dump({**yaml.safe_load(setup.policy.read_text()), "presets": ["noop"]}))
    again = setup("--yes", "--clone", str(clone))
    assert again.returncode == 0, again.stderr
    assert [line for line in again.stdout.splitlines() if "already done" in line] == [
        f"{step}: already done" for step in ("policy", "key", "pin", "service")
    ]
    assert (clone / ".kakeya" / "runner.pub").read_text() == pinned


@pytest.mark.long
def test_the_key_of_another_runner_stays_pinned(setup, clone, small):
    small()
    other = clone / ".kakeya" / "runner.pub"
    other.parent.mkdir()
    from bridge.verify.public_keys import PublicKey  # noqa: PLC0415 - used here alone

    other.write_text(PublicKey(b"\7" * 32).text)
    assert setup("--yes", "--clone", str(clone)).returncode == 0
    ours = (load_policy(setup.policy).state / "runner.pub").read_text()
    assert other.read_text() == PublicKey(b"\7" * 32).text + ours


@pytest.mark.long
def test_a_host_that_cannot_serve_gets_no_service(setup, tmp_path, small):
    small(str(tmp_path / "nowhere.git"))
    done = setup("--yes", url=str(tmp_path / "nowhere.git"))
    assert done.returncode == 1
    assert "FAIL  bus" in done.stdout
    assert "fix the lines marked FAIL and run this command again" in done.stderr
    assert not setup.root.exists()


def test_a_policy_of_another_bus_is_not_touched(setup, tmp_path, bus, small):
    small()
    before = setup.policy.read_text()
    done = setup("--yes", url=str(tmp_path / "other.git"))
    assert done.returncode == 2
    assert f"serves {bus}, not {tmp_path}/other.git" in done.stderr
    assert setup.policy.read_text() == before


def test_in_a_terminal_each_step_is_asked_for(setup):
    """The policy is agreed to, and the key is not."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"y\nn\n")
        done = setup(stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 1
    assert "stopped before this step: key" in done.stderr
    assert setup.policy.exists()
    assert not (load_policy(setup.policy).state / "runner.key").exists()


@pytest.mark.long
def test_githubs_listener_gets_the_hook_and_the_rest_is_said(setup, tmp_path, small):
    small()
    folder = tmp_path / "actions"
    folder.mkdir()
    (folder / ".env").write_text("LANG=C\nACTIONS_RUNNER_HOOK_JOB_STARTED=/old\n")
    done = setup("--yes", "--listener", str(folder))
    assert done.returncode == 0, done.stderr
    script = setup.policy.with_name("job-started.sh")
    assert (folder / ".env").read_text() == f"LANG=C\nACTIONS_RUNNER_HOOK_JOB_STARTED={script}\n"
    assert "./config.sh --url https://github.com/OWNER/REPO --token TOKEN" in done.stderr
    assert "./svc.sh start" in done.stderr
    assert "`actions` in the policy" in done.stderr
