"""What GitHub Actions says is shown where it can be asked, and is never an obstacle where it cannot."""

from __future__ import annotations

import json
import time

import pytest

from bridge.client import Client
from bridge.errors import WaitTimeout
from bridge.system import github
from bridge.system.github import ActionsRun, actions_run

TOKEN = "ghp_secretsecretsecret"
RUN = {"status": "queued", "conclusion": None, "html_url": "https://example.invalid/runs/1"}


@pytest.fixture
def hub(http_bus, monkeypatch):
    """A server that stands for GitHub: it holds the bus, and answers its REST interface."""
    monkeypatch.setenv("GITHUB_SERVER_URL", http_bus.origin)
    monkeypatch.setenv("GITHUB_API_URL", f"{http_bus.origin}/api")
    monkeypatch.setenv("GH_TOKEN", TOKEN)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return http_bus


def says(hub, body: object, status: int = 200, **headers: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    hub.api = lambda _path, _asked: (status, headers, content)


def ask(hub) -> ActionsRun | None:
    return actions_run(f"{hub.origin}/owner/repo.git", "mac-bridge/noop-1700000000-abc123")


def test_a_queued_run_is_shown_with_its_address(hub):
    says(hub, {"workflow_runs": [RUN]})
    assert ask(hub) == ActionsRun("queued", None, RUN["html_url"])


def test_a_finished_run_is_shown_with_its_conclusion(hub):
    says(hub, {"workflow_runs": [{**RUN, "status": "completed", "conclusion": "success"}]})
    assert ask(hub) == ActionsRun("completed", "success", RUN["html_url"])


def test_the_question_is_about_the_branch_and_carries_the_token(hub):
    says(hub, {"workflow_runs": []})
    ask(hub)
    [(method, path, headers)] = hub.requests
    assert method == "GET"
    assert path == "/api/repos/owner/repo/actions/runs?branch=mac-bridge%2Fnoop-1700000000-abc123&per_page=1"
    assert headers["authorization"] == f"Bearer {TOKEN}"


def test_a_netrc_does_not_replace_the_token(hub, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    says(hub, {"workflow_runs": []})
    ask(hub)
    [(_, _, headers)] = hub.requests
    assert headers["authorization"] == f"Bearer {TOKEN}"


def test_a_branch_without_a_run_is_nothing(hub):
    says(hub, {"workflow_runs": []})
    assert ask(hub) is None


FAILURES = {
    "not authorized": ({"message": "Bad credentials"}, 401, "GitHub answered 401"),
    "no such repository": ({"message": "Not Found"}, 404, "GitHub answered 404"),
    "a server in trouble": (b"oops", 500, "GitHub answered 500"),
    "not JSON": (b"<html>", 200, "the request to GitHub failed"),
    "a list": ([1], 200, "the request to GitHub failed"),
    "runs that are no list": ({"workflow_runs": {"a": 1}}, 200, "the request to GitHub failed"),
    "a run that is no object": ({"workflow_runs": ["x"]}, 200, "the request to GitHub failed"),
}


@pytest.mark.parametrize(("body", "status", "problem"), FAILURES.values(), ids=FAILURES)
def test_a_failure_is_told_and_is_no_error(hub, body, status, problem):
    says(hub, body, status)
    found = ask(hub)
    assert found.problem.startswith(problem)
    assert TOKEN not in json.dumps(found.as_dict())


def test_a_redirect_is_not_followed(hub):
    says(hub, b"", 302, Location=f"{hub.origin}/api/elsewhere")
    assert ask(hub).problem.startswith("GitHub answered 302")
    assert len(hub.requests) == 1


def test_a_slow_server_is_not_waited_for(hub, monkeypatch):
    monkeypatch.setattr(github, "TIMEOUT_S", 0.1)
    hub.api = lambda _path, _asked: time.sleep(0.5) or (200, {}, b"{}")
    assert ask(hub).problem == "the request to GitHub failed: ReadTimeout"


def test_a_server_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setenv("GH_TOKEN", TOKEN)
    monkeypatch.setenv("GITHUB_SERVER_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert (
        actions_run("http://127.0.0.1:1/o/r", "x").problem == "the request to GitHub failed: ConnectionError"
    )


def test_without_a_token_nothing_is_asked(hub, monkeypatch):
    monkeypatch.delenv("GH_TOKEN")
    assert ask(hub) is None
    assert hub.requests == []


def test_the_token_of_a_workflow_is_used_too(hub, monkeypatch):
    monkeypatch.delenv("GH_TOKEN")
    monkeypatch.setenv("GITHUB_TOKEN", "another")
    says(hub, {"workflow_runs": []})
    ask(hub)
    assert hub.requests[0][2]["authorization"] == "Bearer another"


def test_a_remote_elsewhere_is_not_asked_about(hub):
    assert actions_run("https://example.invalid/o/r.git", "x") is None
    assert hub.requests == []


GITHUB, GHES = "https://api.github.com/repos/o/r", "https://git.example.invalid/api/v3/repos/o/r"
ADDRESSES = [
    ("https://github.com/o/r", GITHUB),
    ("https://github.com/o/r.git", GITHUB),
    ("https://github.com/o/r/", GITHUB),
    ("https://user:secret@github.com/o/r.git", GITHUB),
    ("ssh://git@github.com/o/r.git", GITHUB),
    ("ssh://git@github.com:22/o/r.git", GITHUB),
    ("git@github.com:o/r.git", GITHUB),
    ("github.com:o/r", GITHUB),
    ("git@github.com:/o/r.git", GITHUB),
    ("https://git.example.invalid/o/r.git", GHES),
    ("git@git.example.invalid:o/r.git", GHES),
    ("ssh://git@git.example.invalid:2222/o/r.git", GHES),
    ("https://gitlab.example.invalid/o/r.git", None),
    ("https://github.com.example.invalid/o/r.git", None),
    ("https://github.com/o", None),
    ("https://github.com/o/r/x", None),
    ("https://github.com/", None),
    ("/srv/github.com/o/r.git", None),
    ("../r.git", None),
    ("file:///srv/o/r.git", None),
    ("C:/o/r.git", None),
    ("", None),
]


@pytest.mark.parametrize(("url", "api"), ADDRESSES, ids=[url or "nothing" for url, _ in ADDRESSES])
def test_the_rest_address_follows_from_the_remotes_address(monkeypatch, url, api):
    monkeypatch.setenv(
        "GITHUB_SERVER_URL", "https://git.example.invalid" if api == GHES else "https://github.com"
    )
    assert github.api_url(url) == api


def test_a_workflow_may_say_where_the_rest_interface_is(monkeypatch):
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://git.example.invalid")
    monkeypatch.setenv("GITHUB_API_URL", "https://api.git.example.invalid")
    assert github.api_url("git@git.example.invalid:o/r.git") == "https://api.git.example.invalid/repos/o/r"


@pytest.fixture
def hub_client(hub, clone, git, tmp_path):
    """A client whose remote is the repository owner/repo on that server."""
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "repo.git").symlink_to(tmp_path / "bus.git")
    git(clone, "remote", "set-url", "origin", f"{hub.origin}/owner/repo.git")
    says(hub, {"workflow_runs": [RUN]})
    return Client(clone)


def test_the_status_of_a_request_shows_its_run(hub_client):
    status = hub_client.run("noop").status()
    assert status.as_dict()["actions"]["url"] == RUN["html_url"]
    assert TOKEN not in json.dumps(status.as_dict())


def test_a_request_that_nobody_takes_tells_what_actions_says(hub_client):
    with pytest.raises(WaitTimeout, match=r"GitHub Actions: queued https://example\.invalid/runs/1"):
        hub_client.run("noop").wait(0.1)


def test_a_failing_question_leaves_the_status_as_it_is(hub, hub_client):
    says(hub, b"", 500)
    status = hub_client.run("noop").status()
    assert status.state == "requested"
    assert status.actions.problem.startswith("GitHub answered 500")
