"""How a push ended: each way in which servers, networks and git fail, and whether anything was sent."""

from __future__ import annotations

import re

import pytest

from bridge.bus import exact_refs
from bridge.bus.hosts.push_end import PushEnd, PushError
from bridge.client import Client
from bridge.errors import KakeyaError
from tests.attacks import servers

pytestmark = pytest.mark.bus

REF = "refs/heads/mac-bridge/noop-1790000000-abc123"
NOT_SENT, REFUSED, UNKNOWN = PushEnd.NOT_SENT, PushEnd.REFUSED, PushEnd.UNKNOWN
SERVICE = servers.packet(b"# service=git-receive-pack\n") + b"0000"
OFFER = (
    SERVICE + servers.packet(b"0" * 40 + b" capabilities^{}\0report-status delete-refs ofs-delta\n") + b"0000"
)


def answers(listing, push=lambda handler: servers.say(handler, 500)):
    """Return an answer to the first question of a push, and another one to what is then sent."""

    def answer(handler):
        if handler.command == "POST":
            handler.sent = handler.rfile.read(int(handler.headers["Content-Length"]))
            return push(handler)
        return listing(handler)

    return answer


def status(code, text=b"", **headers):
    return lambda handler: servers.say(handler, code, text, Content_Type="text/plain", **headers)


def offer(handler, body=OFFER):
    servers.say(handler, 200, body, Content_Type="application/x-git-receive-pack-advertisement")


def says_error(handler):
    offer(handler, SERVICE + servers.packet(b"ERR nobody knows who owns this branch\n"))


def hang_up(handler):
    handler.close_connection = True


def report(*lines):
    """Return a server's report, in which REF stands for the branch that was pushed."""

    def answer(handler):
        ref = re.search(rb"refs/heads/[^\0 ]+", handler.sent)[0]
        body = b"".join(servers.packet(line.replace(b"REF", ref)) for line in lines) + b"0000"
        servers.say(handler, 200, body, Content_Type="application/x-git-receive-pack-result")

    return answer


ASKS = {"WWW_Authenticate": 'Basic realm="git"'}
HTTP = {
    "401, nobody can be asked": (answers(status(401, **ASKS)), NOT_SENT),
    "403": (answers(status(403)), NOT_SENT),
    "403 with a reason": (answers(status(403, b"Write access to repository not granted.\n")), NOT_SENT),
    "403, archived": (answers(status(403, b"This repository was archived so it is read-only.\n")), NOT_SENT),
    "404": (answers(status(404)), NOT_SENT),
    "407": (answers(status(407)), NOT_SENT),
    "410": (answers(status(410)), NOT_SENT),
    "429": (answers(status(429)), NOT_SENT),
    "500": (answers(status(500)), NOT_SENT),
    "503": (answers(status(503)), NOT_SENT),
    "no git server": (answers(status(200, b"<html>log in</html>")), NOT_SENT),
    "an error in the listing": (answers(says_error), NOT_SENT),
    "hung up before the listing": (answers(hang_up), NOT_SENT),
    "the listing breaks off": (answers(lambda handler: offer(handler, OFFER[:50])), NOT_SENT),
    "401 to the pack": (answers(offer, status(401, **ASKS)), REFUSED),
    "403 to the pack": (answers(offer, status(403)), REFUSED),
    "404 to the pack": (answers(offer, status(404)), REFUSED),
    "413 to the pack": (answers(offer, status(413)), REFUSED),
    "429 to the pack": (answers(offer, status(429)), REFUSED),
    "408 to the pack": (answers(offer, status(408)), UNKNOWN),
    "500 to the pack": (answers(offer, status(500)), UNKNOWN),
    "502 to the pack": (answers(offer, status(502)), UNKNOWN),
    "503 to the pack": (answers(offer, status(503)), UNKNOWN),
    "504 to the pack": (answers(offer, status(504)), UNKNOWN),
    "hung up after the pack": (answers(offer, hang_up), UNKNOWN),
    "a report without the branch": (answers(offer, report(b"unpack ok\n")), UNKNOWN),
    "no such report": (answers(offer, status(200, b"<html>ok</html>")), UNKNOWN),
    "a hook refuses": (
        answers(offer, report(b"unpack ok\n", b"ng REF pre-receive hook declined\n")),
        REFUSED,
    ),
    "the pack cannot be stored": (
        answers(offer, report(b"unpack no space\n", b"ng REF unpacker error\n")),
        REFUSED,
    ),
}


def ended(client, address=None):
    """Push a commit, and return how that ended."""
    git = client.git
    commit = git.text("rev-parse", "HEAD")
    with pytest.raises(PushError) as failed:
        exact_refs.push(git, address or "origin", {REF: commit}, {REF: None}, timeout=60)
    return failed.value.end(REF)


def code_of(client):
    """Send a request, and return the code of the error, after checking that only a push that may be there is known."""
    with pytest.raises(KakeyaError) as failed:
        client.run("noop")
    error = failed.value
    assert bool(client.sent.branches()) is (error.code == "unsure")
    assert ("is lost" in error.message) is (error.code == "unsure")
    assert ("twice" in f"{error.message} {error.fix}") is (error.code == "unsure")
    return error.code


@pytest.fixture
def looks(monkeypatch):
    """After a push of unknown end, look at once."""
    monkeypatch.setattr("bridge.bus.remote.LOOKS_S", (0.0,))


@pytest.mark.rows(4)
@pytest.mark.parametrize("name", HTTP)
def test_how_a_push_over_http_ends(client, clone, git, looks, name):
    answer, end = HTTP[name]
    server = servers.Http(answer)
    git(clone, "remote", "set-url", "origin", f"{server.url}/bus.git")

    assert ended(client) is end
    assert (code_of(client) == "unsure") is (end is UNKNOWN)
    was_sent = any(method == "POST" for method, _, _ in server.asked)
    assert was_sent is (end is not NOT_SENT)
    server.close()


@pytest.mark.parametrize("user", ["", "proxy@", "user:wrong@"], ids=["nobody", "a user", "a wrong token"])
def test_a_push_without_the_right_token_is_not_sent(client, clone, git, http_bus, user):
    http_bus.token = "right"
    git(clone, "remote", "set-url", "origin", http_bus.url.replace("//", f"//{user}"))

    assert ended(client) is NOT_SENT
    assert code_of(client) == "unreachable"


def test_a_silent_server_is_sent_nothing(client, git, clone, monkeypatch):
    monkeypatch.setattr("bridge.common.limits.SILENCE_S", 1.0)
    with servers.silent() as port:
        git(clone, "remote", "set-url", "origin", f"http://127.0.0.1:{port}/bus.git")
        assert ended(client) is NOT_SENT


@pytest.mark.long
@pytest.mark.parametrize("has_offered", [False, True], ids=["before the listing", "after the pack"])
def test_a_push_that_takes_too_long_is_unknown_only_once_it_was_begun(client, wait_for, has_offered):
    def wait(handler):
        handler.connection.settimeout(60)
        handler.rfile.read(1)

    server = servers.Http(answers(offer if has_offered else wait, wait))
    git = client.git
    commit = git.text("rev-parse", "HEAD")
    with pytest.raises(PushError) as failed:
        exact_refs.push(git, f"{server.url}/bus.git", {REF: commit}, {REF: None}, timeout=3)

    assert "took longer" in failed.value.message or "takes" in failed.value.message
    assert failed.value.end(REF) is (UNKNOWN if has_offered else NOT_SENT)
    server.close()


ADDRESSES = {
    "no such folder": "/nowhere/bus.git",
    "no such file address": "file:///nowhere/bus.git",
    "nobody listens": "http://127.0.0.1:1/bus.git",
    "no such host": "http://host.invalid/bus.git",
    "no such host over ssh": "ssh://git@host.invalid/bus.git",
    "no remote helper": "nosuch::address",
    "no such scheme": "nosuch://127.0.0.1/bus.git",
    "a scheme that is not allowed": "ext::sh -c 'exit 1'",
    "nobody listens to git's own protocol": "git://127.0.0.1:1/bus.git",
}


@pytest.mark.rows(3)
@pytest.mark.parametrize("name", ADDRESSES)
def test_where_nobody_answers_nothing_is_sent(clone, git, monkeypatch, name):
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -F none -o BatchMode=yes")
    git(clone, "remote", "set-url", "origin", ADDRESSES[name])
    client = Client(clone)

    assert ended(client) is NOT_SENT
    assert code_of(client) != "unsure"


def test_a_server_that_speaks_no_tls_is_sent_nothing(client, clone, git):
    server = servers.Http(answers(offer))
    git(clone, "remote", "set-url", "origin", server.url.replace("http", "https", 1) + "/bus.git")

    assert ended(client) is NOT_SENT
    server.close()


SERVE = 'for word; do :; done; sh -c "$word"'
SSH = {
    "no right": ("echo 'git@host: Permission denied (publickey).' >&2; exit 255", NOT_SENT),
    "another host key": ("echo 'Host key verification failed.' >&2; exit 255", NOT_SENT),
    "closed at the banner": (
        "echo 'kex_exchange_identification: Connection closed by remote host' >&2; exit 255",
        NOT_SENT,
    ),
    "a host's own words": ("echo 'ERROR: Repository not found.' >&2; exit 1", NOT_SENT),
    "a login message and no git": ("echo 'Welcome!'; exit 0", NOT_SENT),
    "the connection breaks before the report": (SERVE, UNKNOWN),
    "it works": (SERVE, None),
}


@pytest.mark.rows(3)
@pytest.mark.parametrize("name", SSH)
def test_how_a_push_over_ssh_ends(clone, bus, git, looks, monkeypatch, tmp_path, name):
    script, end = SSH[name]
    program = tmp_path / "ssh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("GIT_SSH", str(program))
    monkeypatch.setenv("GIT_SSH_VARIANT", "ssh")
    git(clone, "remote", "set-url", "origin", f"git@host:{bus}")
    client = Client(clone)

    if end is UNKNOWN:
        hook(bus, "post-receive", "kill -9 $PPID")
    if end is None:
        assert client.run("noop").branch
    else:
        assert ended(client) is end


def test_a_missing_ssh_program_sends_nothing(clone, git, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_SSH", str(tmp_path / "none"))
    git(clone, "remote", "set-url", "origin", "git@host:bus.git")
    client = Client(clone)

    assert ended(client) is NOT_SENT
    assert code_of(client) != "unsure"


def hook(bus, name, script):
    file = bus / "hooks" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_a_branch_that_was_moved_before_is_not_sent(client, bus, git):
    git(bus, "update-ref", REF, "refs/heads/main")
    commit = client.git.text("commit-tree", "HEAD^{tree}", "-m", "another")
    with pytest.raises(PushError) as failed:
        exact_refs.push(client.git, "origin", {REF: commit}, {REF: None})

    assert failed.value.end(REF) is NOT_SENT
    assert failed.value.is_overtaken(REF)


def test_a_branch_that_is_moved_meanwhile_is_refused(client, bus):
    hook(bus, "pre-receive", f"unset GIT_QUARANTINE_PATH; git update-ref {REF} refs/heads/main")
    commit = client.git.text("commit-tree", "HEAD^{tree}", "-m", "another")
    with pytest.raises(PushError) as failed:
        exact_refs.push(client.git, "origin", {REF: commit}, {REF: None})

    assert failed.value.end(REF) is REFUSED
    assert failed.value.is_overtaken(REF)


def test_each_branch_of_a_push_has_an_end_of_its_own(client, bus):
    other = "refs/heads/frozen/x"
    hook(bus, "update", 'case "$1" in refs/heads/frozen/*) exit 1;; esac')
    commit = client.git.text("rev-parse", "HEAD")
    with pytest.raises(PushError) as failed:
        exact_refs.push(client.git, "origin", {REF: commit, other: commit}, {REF: None, other: None})

    assert failed.value.end(REF) is PushEnd.ACCEPTED
    assert failed.value.end(other) is REFUSED
    assert not failed.value.is_overtaken(other)


def test_a_clone_that_takes_no_objects_sends_nothing(client):
    """Git fails before it is asked to push."""
    with pytest.raises(PushError) as failed:
        exact_refs.push(client.git, "origin", {REF: "1" * 40}, {REF: None})

    assert failed.value.end(REF) is NOT_SENT


def test_without_a_report_of_git_a_push_may_have_been_sent(client, clone, git, monkeypatch):
    """What cannot be proven is not claimed."""

    def full(**_):
        raise OSError(28, "no space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    git(clone, "remote", "set-url", "origin", "http://127.0.0.1:1/bus.git")

    assert ended(client) is UNKNOWN


def test_the_report_is_deleted(client, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())
    client.run("noop")

    assert set(tmp_path.iterdir()) == before
