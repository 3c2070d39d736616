"""The same tools over HTTP, for this machine alone."""

from __future__ import annotations

import re
import socket
import subprocess
import time

import anyio
import mcp
import pytest
import requests

from bridge.mcp import server

pytestmark = pytest.mark.bus

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip


@pytest.fixture
def url(door, tmp_path):
    """Serve over HTTP and return the address."""
    with (tmp_path / "http.log").open("wb") as log:
        process = subprocess.Popen(
            [*door.argv, "--http", "0"], env=door.env, stdout=subprocess.PIPE, stderr=log
        )
    found = None
    while found is None and process.poll() is None:
        found = re.search(r"http://127\.0\.0\.1:[0-9]+/mcp", (tmp_path / "http.log").read_text())
        time.sleep(0.02)
    assert found, (tmp_path / "http.log").read_text()
    yield found[0]
    process.terminate()
    assert process.communicate(timeout=120)[0] == b""


def post(url, **headers):
    return requests.post(url, json=INITIALIZE, headers=HEADERS | headers, timeout=20)


def test_the_official_client_works_over_http(url):
    async def whole():
        async with mcp.Client(url, read_timeout_seconds=60) as client:
            tools = await client.list_tools()
            return len(tools.tools), await client.call_tool("kakeya_run", {"preset": "noop"})

    count, sent = anyio.run(whole)

    assert count == 9
    assert sent.structured_content["branch"].startswith("mac-bridge/noop-")


@pytest.mark.long
def test_sessions_that_nobody_closes_are_few(url):
    answers = [post(url).status_code for _ in range(server.MOST_SESSIONS + 2)]

    assert answers[: server.MOST_SESSIONS] == [200] * server.MOST_SESSIONS
    assert set(answers[server.MOST_SESSIONS :]) <= {429, 503}


@pytest.mark.long
def test_only_our_own_host_and_origin_are_answered(url):
    port = url.split(":")[2].partition("/")[0]

    assert post(url).status_code == 200
    assert post(url, Host=f"localhost:{port}", Origin=f"http://localhost:{port}").status_code == 200
    for host in (
        "evil.example",
        f"evil.example:{port}",
        f"localhost:{int(port) - 1}",
        f"localhost:{port}.evil.example",
    ):
        assert post(url, Host=host).status_code == 421, host
    for origin in ("http://evil.example", "null", "http://localhost:3000", f"https://127.0.0.1:{port}"):
        assert post(url, Origin=origin).status_code == 403, origin


@pytest.mark.long
def test_nobody_outside_this_machine_can_connect(url):
    port = int(url.split(":")[2].partition("/")[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        own = probe.getsockname()[0]
    if own.startswith("127."):
        pytest.skip("this machine has no address but loopback")

    with pytest.raises(ConnectionRefusedError), socket.create_connection((own, port), timeout=5):
        pass


def test_a_port_that_is_taken_is_told(door):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        argv = [*door.argv, "--http", str(taken.getsockname()[1])]
        done = subprocess.run(argv, env=door.env, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 3
    assert "cannot be used: Address already in use" in done.stderr
    assert done.stdout == ""
