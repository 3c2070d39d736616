"""The forced command behind a real SSH server: what a key may do, several clients at once, and cut connections."""

from __future__ import annotations

import base64
import io
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from bridge.bus import wire
from bridge.client import Client
from bridge.errors import UsageError, VerificationError
from bridge.local_runner import make_repositories
from bridge.presets import load_presets
from bridge.verify.folder import verify_folder
from bridge.verify.public_keys import Pin, read_public_keys
from bridge.without_bus import make_manifest
from tests.conftest import wait_for
from tests.runner.bus.test_ssh import SSHD, can_serve, free_port, listens
from tests.runner.direct.conftest import job

pytestmark = [
    pytest.mark.long,
    pytest.mark.rows(1),
    pytest.mark.skipif(not can_serve() or not shutil.which("ssh"), reason="needs an SSH server"),
]
RUNNER = [sys.executable, "-P", "-m", "runner"]


@dataclass
class Door:
    """A host that is reached over SSH, and a client that has a key for it."""

    folder: Path
    port: int
    bus: Path

    @property
    def policy(self) -> Path:
        return self.folder / "one.yaml"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def lines(self) -> list[str]:
        """Return what the jobs noted: `begin N` and `end N`."""
        file = self.folder / "noted"
        return file.read_text().splitlines() if file.exists() else []

    def manifest(self, preset: str = "quick") -> bytes:
        known = load_presets(self.folder / "presets")[preset]
        made = make_manifest(known, {}, lifetime=timedelta(hours=1), labels=(), requested_by="a@example.com")
        return made.to_json().encode()

    def argv(self, *args: str, before: tuple[str, ...] = ()) -> list[str]:
        return ["ssh", "-F", str(self.folder / "config"), *before, "host", *args]

    def start(self, preset: str) -> subprocess.Popen[bytes]:
        """Start a client that has sent its manifest."""
        pipe = subprocess.PIPE
        client = subprocess.Popen(self.argv(), stdin=pipe, stdout=pipe, stderr=pipe)
        assert client.stdin
        client.stdin.write(self.manifest(preset))
        client.stdin.close()
        client.stdin = None
        return client

    def ask(
        self, *args: str, stdin: bytes | None = None, before: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[bytes]:
        content = self.manifest() if stdin is None else stdin
        argv = self.argv(*args, before=before)
        return subprocess.run(argv, input=content, capture_output=True, check=False, timeout=120)

    def verify(self, folder: Path) -> Any:
        key = self.state / "runner.pub"
        pin = Pin(read_public_keys(key.read_text(), "k"), "k")
        return verify_folder(folder, load_presets(self.folder / "presets"), pin)

    def jobs(self) -> list[str]:
        """Return the command lines of jobs that run."""
        return [
            " ".join(process.info["cmdline"] or [])
            for process in psutil.process_iter(["cmdline"])
            if str(self.folder / "noted") in " ".join(process.info["cmdline"] or [])
        ]


def unpack(archive: bytes, folder: Path) -> Path:
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def door(tmp_path_factory) -> Iterator[Door]:
    """Start a server for one key, whose line is the one that `--allow` prints."""
    folder = tmp_path_factory.mktemp("door")
    note = f"note = open({str(folder / 'noted')!r}, 'a', buffering=1)"
    (folder / "presets").mkdir()
    bodies = {
        "quick": job(f"{note}; print('hello', file=note); print('hello', 6 * 7)"),
        "turn": job(
            f"import os, time; {note}; note.write(f'begin {{os.getpid()}}\\n'); time.sleep(.3);"
            " note.write(f'end {os.getpid()}\\n')"
        ),
        "slow": job(f"import time; {note}; print('begun', flush=True); time.sleep(600)"),
        "loud": job(f"import time; {note}; print('begun', flush=True); print('x' * 99 + '\\n' * 1, end='');"
                    " [print('x' * 99) for _ in range(80_000)]; note.write('loud\\n')"),
    }  # fmt: skip
    for name, body in bodies.items():
        whole = {"name": name, "description": "for a test", "code": "installed", "timeout_s": 60, **body}
        (folder / "presets" / f"{name}.yaml").write_text(yaml.safe_dump(whole))
    make_repositories(folder / "bus.git", folder / "clone", {})
    settings = {
        "schema_version": 1, "id": "one", "state": str(folder / "state"), "interpreter": sys.executable,
        "sandbox": "off", "preset_folder": str(folder / "presets"), "bus": {"url": str(folder / "bus.git")},
    }  # fmt: skip
    (folder / "one.yaml").write_text(yaml.safe_dump(settings))
    runner = [*RUNNER, "--policy", str(folder / "one.yaml")]
    subprocess.run([*runner, "keygen"], check=True, capture_output=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    allow = [*runner, "serve-ssh", "--allow", str(folder / "user.pub")]
    line = subprocess.run(allow, check=True, capture_output=True, text=True).stdout
    (folder / "authorized").write_text(line)
    server = None
    for _ in range(5):  # another program may take the port meanwhile
        port = free_port()
        server = serve(folder, port)
        wait_for(lambda port=port, server=server: listens(port) or server.poll() is not None)
        if server.poll() is None:
            break
    assert server
    assert server.poll() is None, (folder / "log").read_text()
    yield Door(folder, port, folder / "bus.git")
    server.terminate()
    server.wait(120)


def serve(folder: Path, port: int) -> subprocess.Popen[bytes]:
    user = pwd.getpwuid(os.geteuid()).pw_name
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "config").write_text(
        f"Host host\nHostName 127.0.0.1\nPort {port}\nUser {user}\nIdentityFile {folder}/user\nIdentitiesOnly yes\n"
        f"UserKnownHostsFile {folder}/known\nBatchMode yes\nLogLevel ERROR\n"
    )
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nPidFile none\n"
        f"SetEnv HOME={folder}\nSubsystem sftp internal-sftp\nMaxStartups 50\n"
    )
    with (folder / "log").open("wb") as log:
        return subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)


def test_the_statement_is_the_same_whatever_carried_it(door, tmp_path):
    """Over the bus, from a file and over SSH: equal but for times, ids, and the names of what carried them."""
    service = subprocess.Popen([*RUNNER, "--policy", str(door.policy), "serve"], stderr=subprocess.DEVNULL)
    try:
        client = Client(door.folder / "clone", presets=door.folder / "presets")
        run = client.run("quick", {}, requested_by="a@example.com")
        assert run.wait(timeout=120).answered
        run.fetch(tmp_path / "bus")
        # Beside the service.
        (tmp_path / "m.json").write_bytes(door.manifest())
        place = ["--manifest", str(tmp_path / "m.json"), "--out", str(tmp_path / "file")]
        once = subprocess.run([*RUNNER, "--policy", str(door.policy), "once", *place], check=False)
        over_ssh = door.ask()
    finally:
        service.terminate()
        service.wait(120)
    assert (once.returncode, over_ssh.returncode) == (0, 0)
    assert b"hello 42" in over_ssh.stderr
    unpack(over_ssh.stdout, tmp_path / "ssh")

    answers = [tmp_path / name for name in ("bus", "file", "ssh")]
    assert [door.verify(folder)[1].conclusion.signer for folder in answers] == ["one"] * 3
    first, *others = [content_of(folder) for folder in answers]
    assert first["statement"]["subject"]["results"] != {}
    assert others == [first, first]


# Ids of the request, of its commits and of the runner's folder; when it ran; and the branch, its name on a bus.
OF_THE_RUN = {
    "branch", "nonce", "request", "workload", "upon", "instance", "started_at", "finished_at", "seconds",
    "max_rss_bytes", "peaks",
}  # fmt: skip
# Files that hold some of these, and the commits.
DIFFERING = (wire.RESULT, wire.SUMMARY, wire.REQUEST, "request", "workload")


def content_of(folder: Path) -> dict[str, Any]:
    """Return the signed statement and the result of an answer, without what belongs to one run."""
    envelope = json.loads((folder / wire.EVIDENCE).read_bytes())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    result = json.loads((folder / wire.RESULT).read_bytes())
    names = {each["name"]: each["digest"] for each in statement["subject"]}
    statement["subject"] = {
        "names": sorted(names),
        "results": {name: digest for name, digest in names.items() if name not in DIFFERING},
    }
    result["files"] = [each for each in result["files"] if each["path"] not in DIFFERING]
    return {
        "statement": without(statement),
        "result": without(result),
        "keys": [sorted(map(str, signature)) for signature in envelope["signatures"]],
    }


def without(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without(each) for name, each in value.items() if name not in OF_THE_RUN}
    return [without(each) for each in value] if isinstance(value, list) else value


MISUSE = {
    "a command": (("id",), ()),
    "a shell": (("sh", "-c", "'touch x'"), ()),
    "metacharacters": (("; touch x; $(touch x) | `touch x`",), ()),
    "the forced command with an option": (("serve-ssh --allow /etc/passwd",), ()),
    "another subcommand": (("kakeya-runner keygen --force",), ()),
    "the older scp": (("scp -t /tmp",), ()),
    "rsync": (("rsync --server -vlogDtpre.iLsfxCIvu . /tmp",), ()),
    "sftp": (("sftp",), ("-s",)),
    "another server": ((), ("-W", "127.0.0.1:1")),
    "a terminal": ((), ("-tt",)),
    "a port of the host": ((), ("-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:1")),
}


def test_a_key_may_do_nothing_else(door):
    before = door.lines()
    for case, (args, options) in MISUSE.items():
        done = door.ask(*args, before=options)

        assert done.returncode not in (0, 1), (case, done)
        assert done.stdout == b"", case
    assert door.lines() == before
    assert not list(door.folder.rglob("x"))


def test_what_is_no_manifest_is_answered_or_refused(door, tmp_path):
    for number, (content, code) in enumerate(
        {b"": 2, bytes(range(256)): 4, b"{}": 4, os.urandom(1 << 20): 4}.items()
    ):
        done = door.ask(stdin=content)

        assert done.returncode == code, done
        if code == 4:
            folder = unpack(done.stdout, tmp_path / str(number))
            assert door.verify(folder)[1].holds
    # An agent is not there; the job runs without it.
    assert door.ask(before=("-A",)).returncode == 0


def test_several_clients_take_turns_beside_a_service(door, tmp_path):
    start = len(door.lines())
    service = subprocess.Popen([*RUNNER, "--policy", str(door.policy), "serve"], stderr=subprocess.DEVNULL)
    try:
        client = Client(door.folder / "clone", presets=door.folder / "presets")
        runs = [client.run("turn", {}) for _ in range(2)]
        clients = [door.start("turn") for _ in range(3)]
        answers = [each.communicate(timeout=240) for each in clients]
        assert [each.returncode for each in clients] == [0, 0, 0], answers
        assert all(run.wait(timeout=240).answered for run in runs)
    finally:
        service.terminate()
        service.wait(120)
    noted = door.lines()[start:]
    assert len(noted) == 10
    for begin, end in zip(noted[::2], noted[1::2], strict=True):
        assert begin.split()[0] == "begin"
        assert end == begin.replace("begin", "end")
    for number, (archive, _) in enumerate(answers):
        assert door.verify(unpack(archive, tmp_path / str(number)))[1].holds


@pytest.mark.parametrize("how", ["the client is killed", "the client ends"])
def test_a_cut_connection_ends_the_job(door, how):
    client = door.start("slow")
    assert client.stderr
    assert any(b"begun" in line for line in client.stderr)
    assert door.jobs()

    client.send_signal(signal.SIGKILL if how == "the client is killed" else signal.SIGTERM)
    client.communicate()

    wait_for(lambda: not door.jobs())
    wait_for(lambda: not list((door.state / "direct").glob("bus.git")))
    assert not list((door.state / "direct" / "work").iterdir())
    # The next one has its turn.
    assert door.ask().returncode == 0


def test_a_client_that_reads_nothing_holds_nobody_up(door):
    client = door.start("loud")
    assert client.stderr
    assert any(b"begun" in line for line in client.stderr)
    client.send_signal(signal.SIGSTOP)
    try:
        wait_for(lambda: "loud" in door.lines())
        assert door.ask().returncode == 0
    finally:
        client.kill()
        client.communicate()


def test_an_archive_that_is_cut_does_not_verify(door, tmp_path):
    whole = door.ask().stdout
    end = len(whole.rstrip(b"\0"))
    for number, size in enumerate(range(0, end, 1024)):
        folder = tmp_path / str(number)
        folder.mkdir()
        # `tar` unpacks what is there.
        unpacks = ["tar", "-x", "-C", str(folder)]
        subprocess.run(unpacks, input=whole[:size], capture_output=True, check=False)

        with pytest.raises((UsageError, VerificationError)):
            door.verify(folder)
