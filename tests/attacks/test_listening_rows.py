"""Row 141: connections that each of our servers is given, and that never bring a whole request."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

pytest.importorskip("uvicorn", reason="needs the extra [web]")

pytestmark = pytest.mark.bus

# More than the server may open files, which is what macOS allows by default.
FILES, HELD = 256, 300
# A connection for which the server's queue has no room waits for seconds until its system tries again.
AT_ONCE = 50
PROGRAMS = {
    "mcp": (("bridge", "mcp", "--http", "0"), "/mcp"),
    "web": (("bridge", "web", "--port", "0"), "/"),
    "engine": (("engine", "serve", "--port", "0", "--model", "tiny-chat"), "/health"),
}
INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip
HOST = "Host: 127.0.0.1:{port}\r\n"
POST = "POST {path} HTTP/1.1\r\n" + HOST
TYPES = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
SENT = {
    "nothing": "",
    "half a head": POST + "X: ",
    "a head without its body": POST + TYPES + "Content-Length: 999\r\n\r\n{{",
    "a chunk": POST + TYPES + "Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n",
    "a body to come": POST + TYPES + "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    "a stream": "GET {path} HTTP/1.1\r\n" + HOST + "Accept: text/event-stream\r\n\r\n",
}


@contextlib.contextmanager
def serving(name: str, clone: Path, log: Path) -> Iterator[tuple[int, str]]:
    """Start one of our servers, which may open few files; yield its port and a path that it answers."""
    argv, path = PROGRAMS[name]
    limited = [
        shutil.which("sh"),
        "-c",
        f'ulimit -n {FILES}; exec "$@"',
        "sh",
        sys.executable,
        "-P",
        "-m",
        *argv,
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(limited, cwd=clone, stdout=out, stderr=subprocess.STDOUT)
    try:
        port = None
        while port is None and process.poll() is None:
            port = re.search(r"http://127\.0\.0\.1:([0-9]+)", log.read_text())
            time.sleep(0.02)
        assert port, log.read_text()
        yield int(port[1]), path
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def connected(port: int, sent: bytes) -> socket.socket:
    """Return a connection on which some bytes were sent, unless it was closed for others before."""
    peer = socket.socket()
    peer.settimeout(60)
    with contextlib.suppress(OSError):
        peer.connect(("127.0.0.1", port))
        peer.sendall(sent)
    return peer


def ask(name: str, port: int, path: str) -> int:
    url = f"http://127.0.0.1:{port}{path}"
    if name != "mcp":
        return requests.get(url, timeout=120).status_code
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    return requests.post(url, data=json.dumps(INITIALIZE), headers=headers, timeout=120).status_code


@pytest.mark.parametrize("name", PROGRAMS)
def test_row_141_others_are_answered_beside_connections_without_a_request(name, clone, tmp_path):
    if name == "engine" and importlib.util.find_spec("mlx_lm") is None:
        pytest.skip("the engine is not installed")
    seen = {}
    with serving(name, clone, tmp_path / "log") as (port, path):
        for kind, text in SENT.items():
            sent = text.format(path=path, port=port).encode()
            with contextlib.ExitStack() as held, ThreadPoolExecutor(AT_ONCE) as pool:
                for peer in pool.map(lambda _, sent=sent: connected(port, sent), range(HELD)):
                    held.enter_context(peer)
                seen[kind] = [ask(name, port, path) for _ in range(2)]

    assert seen == {kind: [200] * 2 for kind in SENT}
    assert "Traceback" not in (tmp_path / "log").read_text()
