"""Many clients at once, the unruly ones among them: nothing leaks, and every answer is the lone client's."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.engine.serve.world import backends, serving

LOAD = Path(__file__).parents[3] / "benchmarks" / "server_load.py"


@pytest.mark.long
@pytest.mark.parametrize("backend", backends())
def test_many_clients(tmp_path, backend):
    """The benchmark's own checks: answers, slots, caches, memory, files, threads, and the end on SIGTERM."""
    argv = [sys.executable, str(LOAD), "--seconds", "2", "--backend", backend]
    environ = {**os.environ, "TMPDIR": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is held" in done.stdout


@pytest.mark.long
def test_clients_that_never_read_stall_nobody_and_are_ended(tmp_path):
    """Their buffers are made small, so that the server soon has nowhere to write."""
    body = {"model": "tiny", "prompt": "import os\n", "max_tokens": 1500, "stream": True, "temperature": 0}
    body |= {"logprobs": 20, "logit_bias": {"0": -100, "2": -100}}
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    with serving(tmp_path, "--max-active", "4") as server:
        alone = server.chat(max_tokens=4).json()["choices"][0]["message"]
        host, port = server.url.removeprefix("http://").split(":")
        silent = []
        try:
            for _ in range(3):
                peer = socket.socket()
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
                peer.connect((host, int(port)))
                peer.sendall(head + data)
                silent.append(peer)
            _until(lambda: server.stats()["active"] == 3)
            assert server.chat(max_tokens=4).json()["choices"][0]["message"] == alone
        finally:
            for peer in silent:
                peer.close()
        _until(lambda: server.stats()["active"] == 0)
        assert server.stats()["cache_bytes"] == 0


def _until(check, seconds=120):
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)
