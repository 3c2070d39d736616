"""The bus over SSH, and a wire that damages what comes over it: reported, tried again, and nothing is lost.

Git finds `ssh` on the PATH, as the runner's isolated environment leaves it. There lies a program that uses OpenSSH's
client with a configuration of this test's, towards a real server where this machine has one; where not, it runs the
command that git wants to have run on the other side itself.
"""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.bus.wire import State
from bridge.client import Client
from tests.system import program

pytestmark = pytest.mark.bus

SSHD = program("sshd")
# Passes on what comes from the other side, but of what lies beyond a limit nothing, or all but one bit.
WIRE = """
import os, sys
how, left = sys.argv[1], 20_000
while data := os.read(0, 65536):
    if left < len(data):
        if how == "cut":
            os.write(1, data[:left])
            break
        data = data[:left] + bytes([data[left] ^ 1]) + data[left + 1 :]
        left = 1 << 40
    left -= len(data)
    while data:
        data = data[os.write(1, data) :]
"""


@dataclass
class Ssh:
    """How the bus is reached, and what becomes of what it sends."""

    url: str
    flag: Path

    def damage(self, how: str) -> None:
        """Let the wire damage what comes, in one of its ways."""
        self.flag.write_text(how)

    def mend(self) -> None:
        self.flag.unlink()


def can_serve() -> bool:
    """Say whether a server can be started: as root it wants a user and a folder of its own."""
    if SSHD is None:
        return False
    users = {user.pw_name for user in pwd.getpwall()}
    return os.geteuid() != 0 or ("sshd" in users and Path("/run/sshd").is_dir())


@pytest.fixture
def ssh(bus, tmp_path, monkeypatch, wait_for):
    folder = tmp_path / "ssh"
    folder.mkdir()
    server, port = None, free_port()
    # Git puts the command to run last.
    far = 'for word; do :; done; exec sh -c "$word"'
    if can_serve():
        for _ in range(5):  # another program may take the port meanwhile
            port = free_port()
            server = serve(folder, port)
            wait_for(lambda port=port, server=server: listens(port) or server.poll() is not None)
            if server.poll() is None:
                break
        assert server.poll() is None, (folder / "log").read_text()
        far = f'exec {shutil.which("ssh")} -F {folder}/config "$@"'
    (folder / "wire.py").write_text(WIRE)
    (folder / "far").write_text(f"#!/bin/sh\n{far}\n")
    program = folder / "bin" / "ssh"
    program.parent.mkdir()
    damaged = f'{folder}/far "$@" | {sys.executable} -I {folder}/wire.py "$(cat {folder}/flag)"'
    program.write_text(
        f'#!/bin/sh\nif [ -e {folder}/flag ]; then {damaged}; else exec {folder}/far "$@"; fi\n'
    )
    for path in (program, folder / "far"):
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    yield Ssh(f"ssh://{getpass.getuser()}@127.0.0.1:{port}{bus}", folder / "flag")
    if server:
        server.terminate()
        server.wait(120)


def serve(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """Start a server for one key on loopback, and write the client's configuration."""
    for name in ("host", "user"):
        (folder / name).unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "config").write_text(
        f"IdentityFile {folder}/user\nIdentitiesOnly yes\nUserKnownHostsFile {folder}/known\nBatchMode yes\n"
    )
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nPidFile none\n"
        "AcceptEnv GIT_PROTOCOL\n"
    )
    with (folder / "log").open("wb") as log:
        return subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def polls(url: str) -> dict[str, object]:
    return {"url": url, "poll_s": 0.1, "idle_poll_s": 0.2, "pushes_per_minute": 600}


@pytest.mark.long
def test_the_main_path_over_ssh(ssh, runners, client):
    """The runner over SSH, the client over the file system, and then the client over SSH too."""
    runners.start(bus=polls(ssh.url))
    assert client.run("noop").wait(timeout=120).state is State.SUCCEEDED

    far = Client(client.git.directory, ssh.url)
    run = far.run("noop")
    assert run.wait(timeout=120).state is State.SUCCEEDED
    assert far.verify(run.branch).holds


@pytest.mark.long
@pytest.mark.parametrize("how", ["cut", "flip"])
def test_a_pack_that_is_damaged_on_its_way_is_fetched_again(
    ssh, how, runners, requester, client, presets, tmp_path, wait_for
):
    """What is small enough to come whole is served meanwhile."""
    count = tmp_path / "count"
    count.touch()
    folder = presets(count={"steps": [{"argv": ["/bin/sh", "-c", 'echo ran >> "$0"', str(count)]}]})
    ssh.damage(how)
    runner = runners.start(preset_folder=str(folder), bus=polls(ssh.url))
    large = requester.send(requester.manifest("count"), files={"large.bin": os.urandom(200_000)})
    wait_for(lambda: f"{large} is left out: cannot fetch from the bus" in runner.said())
    small = requester.send(requester.manifest("count"))

    assert client.wait(small, timeout=120).state is State.SUCCEEDED
    assert not client.status(large).state.is_final
    ssh.mend()

    assert client.wait(large, timeout=120).state is State.SUCCEEDED
    assert client.verify(large).holds
    assert len(count.read_text().splitlines()) == 2
    assert runner.stop() == 0


@pytest.mark.long
def test_requests_on_the_only_branch_that_may_be_pushed_are_forwarded(ssh, bus, clone, runners, client):
    """The server lets the agent, who comes over SSH, push to the session's branch alone."""
    session = "claude/session-1"
    subprocess.run(["git", "checkout", "--quiet", "-b", session], cwd=clone, check=True)
    subprocess.run(["git", "push", "--quiet", "origin", session], cwd=clone, check=True)
    hook = bus / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\n[ -z "$SSH_CONNECTION$AGENT" ] || [ "$1" = refs/heads/{session} ]\n')
    hook.chmod(0o755)
    if not can_serve():
        pytest.skip("no SSH server can be started here")
    runners.start(bus={"forward": ["claude/*"]})
    far = Client(client.git.directory, ssh.url)

    run = far.run("noop")

    assert run.session == session
    assert run.wait(timeout=120).state is State.SUCCEEDED
    assert far.verify(run.branch).holds
