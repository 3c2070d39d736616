"""A bus over HTTPS whose certificate cannot be trusted: nobody is asked, and no token is sent."""

from __future__ import annotations

import subprocess

import pytest

from bridge import doctor
from bridge.checklist import Check
from bridge.client import Client
from bridge.errors import InfrastructureError
from runner.bus.bus import Bus
from runner.policy import load_policy
from tests.attacks import servers
from tests.system import program

pytestmark = pytest.mark.bus

BRANCH = "mac-bridge/noop-1790000000-abc123"
UNKNOWN, OTHER = "IP:127.0.0.1", "DNS:elsewhere.invalid"


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Start an HTTPS server with a certificate of its own for a name, and return it with that certificate's file."""
    openssl = program("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    for name in ("GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    started = []

    def start(name):
        certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
        argv = [
            openssl,
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ]
        argv += ["-subj", "/CN=a server", "-addext", f"subjectAltName={name}", "-days", "30"]
        subprocess.run(
            [*argv, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
        )
        started.append(servers.Http(lambda handler: servers.say(handler, 404), (certificate, key)))
        return started[-1], certificate

    yield start
    for server in started:
        server.close()


@pytest.mark.parametrize("name", [UNKNOWN, OTHER], ids=["unknown", "other-name"])
def test_row_99_no_server_that_cannot_prove_its_name_is_asked(serve, clone, git, monkeypatch, name):
    server, certificate = serve(name)
    if name == OTHER:
        monkeypatch.setenv("GIT_SSL_CAINFO", str(certificate))
    git(clone, "remote", "set-url", "origin", server.url.replace("://", "://x:canary@") + "/bus.git")

    for ask in (
        lambda client: client.remote.list_branches("mac-bridge/*"),
        lambda client: client.remote.fetch(BRANCH),
        lambda client: client.run("noop"),
    ):
        with pytest.raises(InfrastructureError, match="cannot verify the certificate of origin") as failed:
            ask(Client(clone))
        assert "http.sslCAInfo" in failed.value.fix
        assert "canary" not in str(failed.value)
    assert server.asked == []


def test_row_99_a_runner_sends_its_token_to_no_such_server_whatever_its_environment_says(
    serve, runners, monkeypatch, tmp_path
):
    server, certificate = serve(UNKNOWN)
    token = tmp_path / "token"
    token.write_text("canary\n")
    token.chmod(0o600)
    policy = load_policy(
        runners.policy("one", bus={"url": f"{server.url}/bus.git", "token_file": str(token)})
    )

    def ask(state):
        with pytest.raises(InfrastructureError) as failed:
            Bus(policy.bus, tmp_path / state).fetch()
        return failed.value.message

    monkeypatch.setenv("GIT_SSL_NO_VERIFY", "1")
    assert "unable to access" in ask("one")
    assert server.asked == []

    monkeypatch.setenv("GIT_SSL_CAINFO", str(certificate))
    assert "not found" in ask("two")
    assert {headers.get("authorization", "")[:5] for _, _, headers in server.asked} == {"Basic"}


def test_doctor_says_that_the_users_git_checks_no_certificate(serve, clone, git, monkeypatch):
    server, _ = serve(UNKNOWN)
    git(clone, "remote", "set-url", "origin", f"{server.url}/bus.git")
    remote = Client(clone).remote
    assert remote.is_verified

    git(clone, "config", f"http.{server.url}/.sslVerify", "no")
    (check,) = doctor.check_addresses(remote, remote.url)
    assert check == Check("remote", ok=None, message=check.message, fix=check.fix)
    assert "certificate is not checked" in check.message

    git(clone, "config", "--unset", f"http.{server.url}/.sslVerify")
    monkeypatch.setenv("GIT_SSL_NO_VERIFY", "1")
    assert not Client(clone).remote.is_verified
