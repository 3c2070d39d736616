"""A server that answers over smart HTTP as no git server does, and the client that asks it."""

from __future__ import annotations

import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import zlib
from itertools import count

import pytest

from bridge.bus.remote import Remote
from bridge.client import Client
from bridge.common.errors import MAX_MESSAGE
from bridge.errors import GitError, InfrastructureError, RefusedError
from bridge.system.deadline import stopped_by
from bridge.system.git import Git
from bridge.system.process import KEPT_ERRORS
from bridge.system.spawn import LimitEnforcer, ResourceLimits
from tests.attacks import servers

pytestmark = pytest.mark.bus

BRANCH = "mac-bridge/noop-1790000000-abc123"


def names():
    """Yield lines of a listing without end."""
    for i in count():
        refs = (f"{servers.OID} refs/heads/mac-bridge/noop-{i * 500 + j}-abc123\n" for j in range(500))
        yield b"".join(servers.packet(ref.encode()) for ref in refs)


def endless(handler):
    """List branches for ever."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
    handler.end_headers()
    handler.wfile.write(servers.advertisement(BRANCH)[:-4])
    for piece in names():
        handler.wfile.write(piece)


def bomb(handler):
    """Give an error whose text unfolds to a thousand times its size, for ever."""
    handler.send_response(500)
    for name, value in (("Content-Type", "text/plain"), ("Content-Encoding", "gzip")):
        handler.send_header(name, value)
    handler.end_headers()
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    while True:
        handler.wfile.write(packer.compress(b"forged\n" * (1 << 17)) + packer.flush(zlib.Z_FULL_FLUSH))


@pytest.fixture
def serve(clone, git):
    """Start a server and make it the bus of the clone."""
    started = []

    def start(answer):
        started.append(servers.Http(answer))
        git(clone, "remote", "set-url", "origin", f"{started[-1].url}/bus.git")

    yield start
    for server in started:
        server.close()


@pytest.mark.rows(3)
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process can bound another one")
@pytest.mark.parametrize("answer", [endless, bomb])
@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.remote.list_branches("mac-bridge/*"),
        lambda client: client.remote.fetch(BRANCH),
        lambda client: client.run("noop"),
    ],
    ids=["list", "fetch", "push"],
)
def test_row_92_an_answer_without_end_fills_no_memory_of_the_users_git(
    clone, serve, monkeypatch, answer, ask
):
    monkeypatch.setattr("bridge.common.limits.TALKING_GIT_BYTES", 64 << 20)
    serve(answer)

    with pytest.raises(InfrastructureError, match=r"(?i)out of memory"):
        ask(Client(clone))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process can bound another one")
def test_row_92_what_a_child_has_started_before_it_was_bounded_is_bounded_too():
    """Git starts its helper at once, sometimes before, sometimes after it is bounded itself."""
    argv = ["/bin/sh", "-c", "sleep 60 & echo $!; wait"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        try:
            helper = int(child.stdout.readline())
            LimitEnforcer(child, ResourceLimits(own_memory=64 << 20))
            assert resource.prlimit(helper, resource.RLIMIT_DATA)[0] == 64 << 20
        finally:
            os.killpg(child.pid, signal.SIGKILL)


def hang(handler):
    """Send the beginning of a pack, and then nothing until the client is gone."""
    if handler.command == "GET":
        kind = "application/x-git-upload-pack-advertisement"
        return servers.say(handler, 200, servers.advertisement(f"refs/heads/{BRANCH}"), Content_Type=kind)
    handler.rfile.read(int(handler.headers["Content-Length"]))
    handler.send_response(200)
    handler.send_header("Content-Type", "application/x-git-upload-pack-result")
    handler.end_headers()
    # Git writes a pack of a thousand objects to a file, and a smaller one into single files.
    handler.wfile.write(servers.packet(b"NAK\n") + servers.packet(b"\1PACK" + struct.pack(">LL", 2, 1_000)))
    handler.connection.settimeout(60)
    handler.rfile.read(1)
    return None


def test_row_94_a_fetch_that_is_ended_leaves_no_unfinished_pack(clone, serve, wait_for, monkeypatch):
    """Only what our own git was writing goes: another one may be fetching in the same clone."""
    monkeypatch.setattr("bridge.system.deadline.AFTER_STOP_S", 0.2)
    serve(hang)
    packs = clone / ".git" / "objects" / "pack"
    packs.mkdir(exist_ok=True)
    (packs / "tmp_pack_others").write_bytes(b"PACK")
    client, stop, failed = Client(clone), threading.Event(), []

    def fetch():
        try:
            with stopped_by(stop):
                client.remote.fetch(BRANCH)
        except InfrastructureError as error:
            failed.append(error)

    thread = threading.Thread(target=fetch)
    thread.start()
    wait_for(lambda: len(list(packs.glob("tmp_*"))) > 1, timeout=120)
    stop.set()
    thread.join(60)

    assert failed
    assert [path.name for path in packs.glob("tmp_*")] == ["tmp_pack_others"]


def test_row_106_a_pack_without_end_fills_no_disk(clone, serve, small_disk):
    packs = clone / ".git" / "objects" / "pack"
    small_disk(packs)
    serve(servers.endless_pack(BRANCH))

    with pytest.raises(InfrastructureError, match="leaves less than 32 MiB of the disk free"):
        Client(clone).remote.fetch(BRANCH)

    assert list(packs.glob("tmp_*")) == []


def test_a_listing_of_commits_that_the_server_does_not_have_is_not_called_empty(clone, serve):
    def lacking(handler):
        if handler.command == "GET":
            kind = "application/x-git-upload-pack-advertisement"
            return servers.say(handler, 200, servers.advertisement(f"refs/heads/{BRANCH}"), Content_Type=kind)
        handler.rfile.read(int(handler.headers["Content-Length"]))
        answer = servers.packet(b"ERR upload-pack: not our ref " + servers.OID.encode())
        return servers.say(handler, 200, answer, Content_Type="application/x-git-upload-pack-result")

    serve(lacking)
    argv = [sys.executable, "-P", "-m", "bridge", "list"]

    done = subprocess.run(argv, cwd=clone, capture_output=True, text=True, check=True)

    assert f"left out, which could not be fetched. Fetch one with: kakeya status {BRANCH}" in done.stderr
    assert "there are no requests" not in done.stdout + done.stderr


@pytest.mark.parametrize("web", [False, True])
def test_row_96_a_header_of_the_users_git_follows_no_redirect_to_another_host(clone, serve, git, web):
    """CI systems write a token into this header. The other host speaks git, so that a client that follows goes on."""
    kind = "application/x-git-upload-pack-advertisement"
    offer = servers.advertisement(f"refs/heads/{BRANCH}")
    thief = servers.Http(lambda handler: servers.say(handler, 200, offer, Content_Type=kind))
    serve(lambda handler: servers.say(handler, 302, Location=f"{thief.url}{handler.path}"))
    git(
        clone,
        "config",
        f"http.{git(clone, 'remote', 'get-url', 'origin')}.extraHeader",
        "Authorization: secret",
    )
    client = Client(clone)

    if web:
        watch = pytest.importorskip("bridge.web.watch").Watch(client)
        assert "redirects to another address" in watch.refresh().problem
    else:
        for ask in (client.list, lambda: client.status(BRANCH), lambda: client.run("noop")):
            with pytest.raises(InfrastructureError, match="redirects to another address"):
                ask()

    assert thief.asked == []
    thief.close()


def test_a_redirect_is_followed_where_no_header_would_go_along(clone, serve, git, http_bus):
    serve(lambda handler: servers.say(handler, 302, Location=f"{http_bus.origin}{handler.path}"))
    path = http_bus.url.removeprefix(http_bus.origin)
    git(
        clone,
        "remote",
        "set-url",
        "origin",
        f"{git(clone, 'remote', 'get-url', 'origin')[: -len('/bus.git')]}{path}",
    )

    assert Client(clone).list() == []
    assert http_bus.requests


@pytest.fixture
def push_fails(user_git, monkeypatch):
    """Push a branch with a git that fails and prints this."""

    def push(stdout, stderr):
        def fail(_git, *args, **_more):
            raise GitError(("git", *args), 1, stdout, stderr)

        monkeypatch.setattr(Git, "__call__", fail)
        Remote(user_git, "origin").push(BRANCH, "1" * 40, expect=None)

    return push


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    "word", [b"[remote rejected] (", b"[remote rejected]", b"repository ", b"cannot lock ref '"]
)
def test_row_98_a_long_line_from_a_server_keeps_nobody_busy(push_fails, word):
    """Some of these once took minutes, because a pattern began anew at each word and read to the line's end."""
    said = (b"remote: " + word * KEPT_ERRORS)[:KEPT_ERRORS]

    with pytest.raises(InfrastructureError) as failed:
        push_fails(said, said)

    assert len(failed.value.message) <= MAX_MESSAGE


def test_what_a_server_says_after_a_long_line_is_still_understood(push_fails):
    said = b"remote: " + b"x" * 100_000 + b"\n!\tx:x\t[remote rejected] (protected branch)\n"

    with pytest.raises(RefusedError):
        push_fails(b"", said)
