"""What comes in and goes out beside a job: bounded in bytes and time, and never what holds the job up."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest

from bridge.bus import wire
from bridge.common.strict_json import MAX_BYTES
from bridge.errors import InfrastructureError, UsageError
from bridge.system.signals import Withdrawal
from runner.direct import ssh
from runner.direct.streams import read_manifest


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def write_to(path, pieces, pause=0.0):
    def work():
        with path.open("wb", buffering=0) as pipe:
            for piece in pieces:
                try:
                    pipe.write(piece)
                except BrokenPipeError:
                    return
                time.sleep(pause)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_manifest_comes_from_a_file_or_a_pipe(tmp_path):
    (tmp_path / "m.json").write_bytes(b"{}")
    assert read_manifest(tmp_path / "m.json") == b"{}"

    reader, writer = os.pipe()
    os.write(writer, b"{")
    os.write(writer, b"}")
    os.close(writer)
    assert read_manifest(Path(f"/dev/fd/{reader}")) == b"{}"
    os.close(reader)


def test_of_an_endless_manifest_a_part_is_read(fifo):
    reader = os.open(fifo, os.O_RDWR)  # so that a writer is found
    write_to(fifo, (bytes(1 << 16) for _ in range(1000)))

    content = read_manifest(fifo)

    assert len(content) == MAX_BYTES + 1
    os.close(reader)


def test_a_slow_manifest_is_given_up(fifo):
    keeper = os.open(fifo, os.O_RDWR)
    os.write(keeper, b"{")

    with pytest.raises(UsageError, match="no whole manifest came"):
        read_manifest(fifo, seconds=0.1)
    os.close(keeper)


@pytest.mark.parametrize("what", ["nothing", "a folder", "an empty file", "a link to nothing"])
def test_no_manifest(tmp_path, what):
    path = tmp_path / "m.json"
    if what == "a folder":
        path.mkdir()
    elif what == "an empty file":
        path.touch()
    elif what == "a link to nothing":
        path.symlink_to("nowhere")

    with pytest.raises(UsageError, match=r"m\.json"):
        read_manifest(path)


@pytest.mark.parametrize(
    "wanted",
    ["id", "sh -c 'id'", "; touch x", "scp -t /tmp", "rsync --server . /", "/usr/lib/openssh/sftp-server",
     "kakeya-runner serve-ssh", "serve-ssh --allow x", "internal-sftp", "git-upload-pack '/'", " "],
)  # fmt: skip
@pytest.mark.rows(1)
def test_no_other_command_is_run(monkeypatch, wanted):
    monkeypatch.setenv("SSH_ORIGINAL_COMMAND", wanted)

    with pytest.raises(UsageError, match="may only send a manifest"):
        ssh.check_call()


@pytest.mark.rows(1)
def test_no_terminal_is_served(monkeypatch):
    monkeypatch.delenv("SSH_ORIGINAL_COMMAND", raising=False)
    monkeypatch.setenv("SSH_TTY", "/dev/pts/1")

    with pytest.raises(UsageError, match="no terminal and no closed stream"):
        ssh.check_call()


def test_the_line_of_a_key_allows_one_command(tmp_path):
    key, policy = tmp_path / "k.pub", tmp_path / 'a "policy" $HOME.yaml'
    key.write_text("ssh-ed25519 AAAA a user\n")

    line = ssh.key_line(key, policy)

    assert line.startswith('restrict,command="')
    assert line.endswith(' serve-ssh" ssh-ed25519 AAAA a user')
    assert '\\"policy\\" $HOME.yaml\'' in line


@pytest.mark.parametrize(
    "text",
    ["", "ssh-ed25519 AAAA\nssh-ed25519 BBBB\n", 'command="id" ssh-ed25519 AAAA', "-----BEGIN OPENSSH"],
)
def test_a_file_without_one_key_has_no_line(tmp_path, text):
    (tmp_path / "k.pub").write_text(text)

    with pytest.raises(UsageError, match="does not hold one public SSH key"):
        ssh.key_line(tmp_path / "k.pub", tmp_path)


def test_what_names_the_files_is_last_in_the_archive(tmp_path):
    for name in (wire.RESULT, wire.EVIDENCE, "results/research/z/result.json", ".git"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("/etc/passwd")

    with ssh.pack(tmp_path) as archive, tarfile.open(fileobj=archive) as tar:
        members = tar.getmembers()

    assert members[-1].name == wire.RESULT
    assert {member.name for member in members} == {
        wire.RESULT, wire.EVIDENCE, "results/research/z/result.json", ".git",
    }  # fmt: skip
    assert all(member.isfile() and member.mode == 0o644 for member in members)


@pytest.mark.parametrize("reader", ["gone", "idle"])
def test_a_client_that_does_not_read_the_answer_is_given_up(tmp_path, monkeypatch, reader):
    monkeypatch.setattr(ssh, "_STALLS_S", 0.1)
    (tmp_path / "large").write_bytes(bytes(1 << 20))
    near, far = os.pipe()
    if reader == "gone":
        os.close(near)

    with ssh.pack(tmp_path) as archive, pytest.raises(InfrastructureError, match="answer"):
        ssh.send(archive, far)
    os.close(far)


def test_a_client_that_is_gone_withdraws_the_job(wait_for):
    near, far = os.pipe()
    saved = os.dup(2)
    os.dup2(far, 2)
    try:
        withdrawal = Withdrawal()
        ssh.withdraw_if_closed(withdrawal)
        assert not withdrawal.wait(0.05)
        os.close(near)
        wait_for(withdrawal.is_set)
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(far)
    assert "connection ended" in withdrawal.reason


def test_a_client_that_reads_no_log_holds_up_nothing():
    """More is written than pipe and memory take, and then what came last is there, with the exit code."""
    code = (
        "import sys, atexit\n"
        "from runner.direct.ssh import Relay\n"
        "relay = Relay()\natexit.register(relay.finish)\n"
        "for number in range(60_000): print('x' * 60, number, file=sys.stderr)\n"
        "print('done', flush=True)\nraise SystemExit(6)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout
    assert child.stderr

    assert child.stdout.readline() == "done\n"  # nobody has read the log so far
    log = child.stderr.read()

    assert log.endswith(" 59999\n")
    assert len(log) < 3 << 20
    assert child.wait(60) == 6
    child.stdout.close()
    child.stderr.close()


def test_closed_streams_are_a_usage_error(monkeypatch):
    monkeypatch.delenv("SSH_ORIGINAL_COMMAND", raising=False)
    monkeypatch.delenv("SSH_TTY", raising=False)
    monkeypatch.setattr("sys.stdin", None)

    with pytest.raises(UsageError, match="standard input is closed"):
        read_manifest(Path("-"))
    with pytest.raises(UsageError, match="no terminal and no closed stream"):
        ssh.check_call()
