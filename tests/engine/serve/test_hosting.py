"""What a host program relies on: the ready line, the token, and that no server outlives its host."""

import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager

import httpx
import psutil
import pytest

from engine import cli
from tests.engine.serve.world import until

SERVE = [sys.executable, "-P", "-m", "engine", "serve", "--model", "tiny"]
# Starts a server as its child, passes the ready line on, and then does nothing.
HOST = """
import os, subprocess, sys
argv = [each.replace("PID", str(os.getpid())) for each in sys.argv[1:]]
server = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
print(server.stdout.readline().decode(), end="", flush=True)
server.wait()
"""


def started(*options, argv=SERVE, **more):
    return subprocess.Popen([*argv, *options], stdout=subprocess.PIPE, text=True, **more)


@contextmanager
def ended(process):
    """End a process that a test started, whatever happens."""
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_server_ends_with_a_host_that_is_killed(tmp_path):
    """Although a client still reads an answer, and more time to drain is left."""
    token = tmp_path / "token"
    options = ("--port", "0", "--print-ready", "--parent-pid", "PID", "--token-file", str(token))
    with ended(started(*SERVE, *options, argv=[sys.executable, "-c", HOST])) as host:
        ready = json.loads(host.stdout.readline())
        server = psutil.Process(ready["pid"])
        assert server.ppid() == host.pid
        assert ready["token_file"] == str(token)
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert ready["address"] == f"http://127.0.0.1:{ready['port']}"
        with httpx.Client(base_url=ready["address"], timeout=120) as http:
            assert http.get("/health").status_code == 200  # at once: no try before this one
            assert http.get("/v1/models").status_code == 401
            http.headers["authorization"] = f"Bearer {token.read_text()}"
            assert http.get("/v1/models").status_code == 200
            body = {"model": "tiny", "prompt": "import os\n", "max_tokens": 4000, "stream": True}
            body |= {"logit_bias": {"0": -100, "2": -100}, "x_kakeya": {"draft": "none"}}
            with http.stream("POST", "/v1/completions", json=body) as answer:
                assert next(answer.iter_lines()).startswith("data:")
                host.kill()
                until(lambda: is_gone(server.pid), 60)


@pytest.mark.long
def test_ready_line_is_the_only_line(tmp_path):
    with ended(started("--port", "0", "--print-ready", "--prewarm")) as server:
        ready = json.loads(server.stdout.readline())
        assert ready["pid"] == server.pid
        assert ready["token_file"] is None
        body = {"model": "tiny", "prompt": "import os\n", "max_tokens": 4}
        assert httpx.post(f"{ready['address']}/v1/completions", json=body, timeout=120).status_code == 200
        server.terminate()
        assert server.wait(60) == 0
        assert server.stdout.read() == ""


@pytest.mark.long
def test_two_servers_at_once_have_ports_of_their_own_and_share_the_token(tmp_path):
    options = ("--port", "0", "--print-ready", "--token-file", str(tmp_path / "token"))
    with ended(started(*options)) as one, ended(started(*options)) as other:
        addresses = {json.loads(each.stdout.readline())["address"] for each in (one, other)}
        assert len(addresses) == 2
        headers = {"authorization": f"Bearer {(tmp_path / 'token').read_text()}"}
        assert {httpx.get(f"{each}/v1/models", headers=headers).status_code for each in addresses} == {200}
    assert [each.name for each in tmp_path.iterdir()] == ["token"]


def refused(capsys, *options):
    """Return what is said of a server that does not start."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve", "--model", "tiny", "--print-ready", *options])
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    return said.err


def test_an_occupied_port_prints_no_ready_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen on" in refused(capsys, "--port", str(taken.getsockname()[1]))


def test_a_parent_that_is_dead_already_or_is_no_parent_is_refused(capsys):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait(60)
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    until(lambda: is_gone(zombie.pid))
    for pid in (dead.pid, zombie.pid, (1 << 31) - 1):
        error = refused(capsys, "--port", "0", "--parent-pid", str(pid))
        assert f"--parent-pid {pid}: there is no such process" in error
    zombie.wait(60)


@pytest.mark.long
def test_the_parent_may_be_any_older_process():
    """A host may start its server through a shell. A zombie has ended, although nobody has waited for it."""
    parent = started(argv=["sleep", "600"])
    options = ("--port", "0", "--print-ready", "--parent-pid", str(parent.pid))
    with ended(parent), ended(started(*options)) as server:
        address = json.loads(server.stdout.readline())["address"]
        assert httpx.get(f"{address}/health").status_code == 200
        os.kill(parent.pid, signal.SIGKILL)  # and not waited for
        assert server.wait(60) == 0


@pytest.mark.long
@pytest.mark.parametrize("output", [">&-", "| true; exit ${PIPESTATUS[0]}", "> /dev/full"])
def test_nobody_reads_the_ready_line(output):
    argv = shlex.join([*SERVE, "--port", "0", "--print-ready"])
    server = subprocess.run(
        ["bash", "-c", f"{argv} {output}"], stderr=subprocess.PIPE, timeout=60, check=False
    )
    assert server.returncode == 1
    assert b"nobody reads the line that says where the server is" in server.stderr
