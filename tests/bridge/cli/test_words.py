"""What a server, a hook or ssh says reaches the user, and the credentials in a remote's address reach nobody."""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
import sys

import pytest

from bridge.checklist import Check
from bridge.cli import main
from bridge.client import Client
from bridge.errors import GitError, InfrastructureError, ProcessError, RefusedError
from bridge.system.git import Git

SECRET = "s3cr3t-w0rd"

LOST = "fatal: Could not read from remote repository."
RIGHTS = "Please make sure you have the correct access rights\nand the repository exists.\n"
KEY = "Warning: Permanently added 'host' (ED25519) to the list of known hosts."
REJECTED = (
    " ! [remote rejected] a -> b (pre-receive hook declined)\nerror: failed to push some refs to '/bus.git'\n"
)
DENIED = "git@host: Permission denied (publickey)."

SAID = {
    "ssh": (f"{KEY}\r\n{DENIED}\r\n{LOST}\n\n{RIGHTS}", DENIED),
    "a host over ssh": (f"ERROR: Repository not found.\n{LOST}\n", "ERROR: Repository not found."),
    "a host over https": (
        "remote: Repository not found.\nfatal: repository 'https://u:p@host/x/' not found\n",
        "remote: Repository not found.; fatal: repository 'https://***@host/x/' not found",
    ),
    "a hook": (
        f"remote: closed today        \nremote: \nTo /bus.git\n{REJECTED}",
        "remote: closed today; pre-receive hook declined",
    ),
    "git alone": ("fatal: bad object x\n", "fatal: bad object x"),
    "nothing else": (f"{LOST}\n", LOST),
    "nothing": ("", "it printed nothing"),
}


@pytest.mark.parametrize(("said", "words"), SAID.values(), ids=SAID)
def test_the_words_of_whoever_knows_are_kept(said, words):
    assert GitError(("git",), 128, b"", said.encode()).summary() == words


def test_the_words_are_bounded_and_steer_nothing():
    error = GitError(("git",), 1, b"", b"remote: " + b"x" * 100_000 + b"\nremote: \x1b[2J\n" * 100)

    assert len(error.summary()) <= 500
    assert error.summary().isprintable()


def test_arguments_that_are_kept_with_an_error_lack_credentials():
    error = ProcessError(("git", "fetch", f"https://u:{SECRET}@host/x"), 1)

    assert error.argv == ("git", "fetch", "https://***@host/x")


@pytest.fixture
def refusing_ssh(monkeypatch, tmp_path, clone, git):
    """An ssh that a server turns away."""
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\necho 'git@host: Permission denied (publickey).' >&2\nexit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("GIT_SSH", str(program))
    git(clone, "remote", "set-url", "origin", "git@host:owner/name.git")


def test_ssh_is_heard(refusing_ssh, clone):
    with pytest.raises(InfrastructureError, match=r"Permission denied \(publickey\)") as caught:
        Client(clone).run("noop")
    assert caught.value.code == "unreachable"


def test_a_hook_is_heard(client, bus):
    hook = bus / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'branches need a ticket' >&2\nexit 1\n")
    hook.chmod(0o755)

    with pytest.raises(RefusedError, match="branches need a ticket; pre-receive hook declined"):
        client.run("noop")


@pytest.mark.parametrize("named", [False, True], ids=["by its name", "by its address"])
def test_the_commands_that_are_suggested_can_be_typed(refusing_ssh, clone, named, monkeypatch):
    remote = "git@host:owner/name.git" if named else "origin"
    with pytest.raises(InfrastructureError) as caught:
        Client(clone, remote).list()
    commands = [part.split(": ", 1)[1] for part in caught.value.fix.split("; and ")]

    assert len(commands) == (1 if named else 2)
    for command in commands:
        argv = shlex.split(command)
        assert argv[0] == "git"
        done = subprocess.run(argv, cwd="/", capture_output=True, text=True, check=False)
        # The address is shown, and access fails for the reason that was told: neither is a misuse of git.
        assert done.returncode == 0 or "Permission denied" in done.stderr


@pytest.fixture
def kakeya(monkeypatch, capsys, clone):
    monkeypatch.chdir(clone)

    def call(*args: str) -> str:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["kakeya", *args])
            with pytest.raises(SystemExit):
                main()
        return "".join(capsys.readouterr())

    return call


COMMANDS = [
    ("doctor",), ("doctor", "--json"), ("run", "noop"), ("run", "noop", "--json"), ("list",), ("list", "--json"),
    ("status", "mac-bridge/noop-1700000000-abc123"), ("gc", "--remote-branches"), ("report",), ("fetch",),
]  # fmt: skip
ADDRESSES = [
    f"http://user:{SECRET}@127.0.0.1:1/x.git",
    f"http://{SECRET}@127.0.0.1:1/x.git",
    f"http://127.0.0.1:1/x.git?access_token={SECRET}",
    f"http://user:{SECRET}/{SECRET}@127.0.0.1:1/x.git",
    f"ssh://user:{SECRET}@127.0.0.1:1/x.git",
]


@pytest.mark.rows(1)
@pytest.mark.parametrize("url", ADDRESSES, ids=["password", "token", "query", "slash", "ssh"])
def test_no_command_shows_the_credentials_of_a_remote(kakeya, clone, git, url, monkeypatch, caplog):
    monkeypatch.setattr("bridge.doctor.engine", lambda: Check("engine", None, "not asked here"))
    git(clone, "remote", "set-url", "origin", url)
    caplog.set_level(logging.DEBUG)

    for command in COMMANDS:
        shown = kakeya(*command)
        assert shown, command
        assert SECRET not in shown, command
    named = kakeya("list", "--remote", url)
    assert SECRET not in named + caplog.text


@pytest.mark.long
def test_a_remote_that_can_be_reached_is_named_without_its_token(kakeya, clone, git, http_bus):
    http_bus.token = SECRET
    git(clone, "remote", "set-url", "origin", http_bus.url_with(SECRET))

    checks = {check["name"]: check for check in json.loads(kakeya("doctor", "--json"))["checks"]}

    assert checks["remote"]["ok"] is True
    assert "://***@" in checks["remote"]["message"]


def test_a_failing_call_of_git_keeps_no_credentials(clone):
    with pytest.raises(GitError) as caught:
        Git.of_user(clone)("ls-remote", f"http://u:{SECRET}@127.0.0.1:1/x")

    assert SECRET not in f"{caught.value} {caught.value.argv} {caught.value.as_dict()}"
