"""Rows of the attack table that are about the host: servers that lie or hang, clocks, files and limits: 60 to 67."""

from __future__ import annotations

import pytest

from tests.attacks import servers

pytestmark = pytest.mark.bus

TOKEN = "canary-5b0c7a12-token"
BRANCH = "refs/heads/mac-bridge/noop-1790000000-abc123"


@pytest.fixture
def serve():
    """Start servers of a test's own; they end with the test."""
    started = []

    def start(answer):
        started.append(servers.Http(answer))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize("when", ["the first request", "the second request"])
def test_row_62_the_token_follows_no_redirect_to_another_host(runners, serve, token_file, wait_for, when):
    """The other host speaks git, so that a client that follows goes on to a request with the token in it."""

    def collect(handler):
        body = servers.advertisement(BRANCH)
        servers.say(handler, 200, body, Content_Type="application/x-git-upload-pack-advertisement")

    thief = serve(collect)

    def redirect(handler):
        if when == "the second request" and handler.command == "GET":
            return collect(handler)
        return servers.say(handler, 302, Location=f"{thief.url}{handler.path}")

    bus = serve(redirect)
    settings = {"url": f"{bus.url}/bus.git", "token_file": token_file, "poll_s": 0.1}
    runner = runners.start(bus=settings)
    wait_for(lambda: "trying again" in runner.said())

    assert any("authorization" in headers for _, _, headers in bus.asked)
    assert thief.asked == []
