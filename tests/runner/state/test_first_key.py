"""A runner's first key: made without being asked for, never over another file, and pinned by one pasted command."""

from __future__ import annotations

import os
import stat
import subprocess

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bridge.bus.folder import bus_folder
from bridge.system.git import Git
from bridge.verify.public_keys import find_pin
from runner.cli import cli
from runner.policy import load_policy
from runner.state import signing_key


@pytest.fixture
def init(tmp_path, monkeypatch):
    """Run `kakeya-runner init` with a state folder below an own home; return its output."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home" / "state"))

    def run(name="runner.yaml", bus="/srv/bus.git"):
        policy = tmp_path / "home" / name
        policy.parent.mkdir(exist_ok=True)
        done = CliRunner().invoke(cli, ["--policy", str(policy), "init", "--bus", str(bus)])
        run.state = load_policy(policy).state
        return done

    return run


def pasted(output):
    """Return the command that pins, as somebody would copy it."""
    (line,) = {line.strip() for line in output.splitlines() if line.strip().startswith("mkdir -p .kakeya")}
    return line


def test_init_makes_a_key_and_a_second_policy_keeps_it(init):
    first = init()
    key = init.state / "runner.key"
    before = key.read_bytes()

    assert first.exit_code == 0, first.output
    assert f"the new key {key} " in first.output
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(init.state.stat().st_mode) == 0o700
    assert "PRIVATE" not in first.output

    second = init("second.yaml")
    assert second.exit_code == 0
    assert f"signed with the key {key} " in second.output
    assert pasted(second.output) == pasted(first.output)
    assert key.read_bytes() == before


@pytest.mark.bus
@pytest.mark.parametrize("before", [None, b"other", b"other without a line's end\r"])
def test_the_printed_command_pins_the_key_when_pasted(init, clone, bus, git, before):
    said = init(bus=bus).output
    if before is not None:
        (clone / ".kakeya").mkdir()
        other = signing_key.make_key(init.state.parent / "other")
        (clone / ".kakeya" / "runner.pub").write_bytes(before + other.text.rstrip().encode())
    git(clone, "checkout", "--quiet", "-B", "main")
    git(clone, "config", "user.name", "Maintainer")
    git(clone, "config", "user.email", "maintainer@example.com")

    for _ in range(2):
        subprocess.run(["/bin/sh", "-e", "-c", pasted(said)], cwd=clone, check=True, capture_output=True)

    bus_folder.forget()
    pin = find_pin(Git.of_user(clone), "origin")
    assert signing_key.public_key(init.state) in pin.keys
    assert len({*pin.keys}) == (1 if before is None else 2)


@pytest.mark.parametrize(
    "kind", ["readable by others", "another type", "no key", "a broken link", "a folder"]
)
def test_a_file_in_the_keys_place_is_left_alone_and_named(init, kind, tmp_path):
    init()
    (tmp_path / "home" / "runner.yaml").unlink()
    key = init.state / "runner.key"
    if kind == "readable by others":
        key.chmod(0o644)
    elif kind == "another type":
        private = rsa.generate_private_key(65537, 2048)
        key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    elif kind == "no key":
        key.write_bytes(b"")
    else:
        key.unlink()
        key.symlink_to("nowhere") if kind == "a broken link" else key.mkdir()
    before = os.lstat(key)

    done = init()

    assert done.exit_code == 0, done.output
    assert "no key was made" in done.output
    assert str(init.state) in done.output
    assert "mkdir -p" not in done.output
    after = os.lstat(key)
    assert (after.st_ino, after.st_size, after.st_mode) == (before.st_ino, before.st_size, before.st_mode)


def test_a_state_folder_that_cannot_be_made_is_named_and_the_policy_is_written(init, tmp_path):
    """As for another user's folder or a disk that is read-only; the tests may run as root, for whom both are open."""
    init()
    policy = tmp_path / "home" / "runner.yaml"
    policy.unlink()
    for path in init.state.iterdir():
        path.unlink()
    init.state.rmdir()
    init.state.write_text("not a folder")

    done = init()

    assert done.exit_code == 0, done.output
    assert policy.exists()
    assert "so answers will not be signed" in done.output
    assert "kakeya-runner keygen" in done.output


def test_without_a_key_there_is_one_warning_until_a_key_comes_and_goes(tmp_path):
    assert signing_key.must_warn(tmp_path, signs=False)
    assert not signing_key.must_warn(tmp_path, signs=False)
    assert not signing_key.must_warn(tmp_path, signs=True)
    assert signing_key.must_warn(tmp_path, signs=False)
    assert signing_key.must_warn(tmp_path / "gone", signs=False)


@pytest.mark.bus
@pytest.mark.long
def test_an_unsigned_answer_says_so_in_the_runners_log_and_status(runners, client, forger):
    policy = runners.policy()
    kakeya = ["--policy", str(policy)]
    for i in range(2):
        run = client.run("noop")
        done = CliRunner().invoke(cli, [*kakeya, "once", "--branch", run.branch])
        assert ("this runner has no key" in done.output) is (i == 0)
        assert b'"signed": false' in forger.read(run.branch, ".mac-bridge/logs/summary.json")
    assert ", unsigned, after" in CliRunner().invoke(cli, [*kakeya, "status"]).output
    CliRunner().invoke(cli, [*kakeya, "keygen"])
    run = client.run("noop")
    done = CliRunner().invoke(cli, [*kakeya, "once", "--branch", run.branch])
    assert b'"signed": true' in forger.read(run.branch, ".mac-bridge/logs/summary.json")
