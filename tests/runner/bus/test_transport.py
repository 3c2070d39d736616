"""The main path over real transports, and a token that only git and the server ever see."""

from __future__ import annotations

import base64
import os
import secrets
import subprocess
from pathlib import Path

import pytest

from bridge.bus.wire import State
from bridge.client import Client

pytestmark = pytest.mark.bus

# Of this process alone: tests that run beside these put theirs into the addresses of clones.
TOKEN = f"canary-{secrets.token_hex(4)}-token"
FORMS = (TOKEN, base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode())


@pytest.fixture
def looking(presets, tmp_path):
    """A preset that searches for the token wherever a job can look, and keeps the runner busy meanwhile."""
    go = tmp_path / "go"
    look = (
        "env; cat /proc/*/cmdline /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'; git config --list 2>/dev/null;"
        f" while [ ! -e {go} ]; do sleep 0.05; done; true"
    )
    return presets(look={"steps": [{"argv": ["/bin/sh", "-c", look]}]}), go


@pytest.fixture
def token_file(tmp_path):
    """A file that holds the token, readable by its owner alone."""
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def guarded(http_bus):
    """The bus over HTTP, which asks for the token."""
    http_bus.token = TOKEN
    return http_bus


@pytest.fixture
def remote_client(guarded, bus, tmp_path, git):
    """A requester who has the same remote, with a token of their own."""
    path = tmp_path / "far"
    git(tmp_path, "clone", "--quiet", guarded.url_with(TOKEN), str(path))
    return Client(path)


def _found(needles, folder):
    """Return the files below a folder that hold one of the needles."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [str(path) for path in files if any(needle.encode() in path.read_bytes() for needle in needles)]


def _command_lines():
    """Return the arguments of every process of this user."""
    lines = b""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                lines += (entry / "cmdline").read_bytes()
            except OSError:
                continue
    return lines.decode("utf-8", "replace")


@pytest.mark.long
def test_the_main_path_over_http_shows_the_token_to_nobody(
    runners, guarded, remote_client, looking, token_file, requester, git, bus, wait_for
):
    folder, go = looking
    # The requester's own clone reaches the bus as a folder, so no URL of it holds the token.
    branch = requester.send(requester.manifest("look"))
    settings = {
        "url": guarded.url, "token_file": str(token_file), "poll_s": 0.1, "idle_poll_s": 0.2, "pushes_per_minute": 600,
    }  # fmt: skip
    runner = runners.start(preset_folder=str(folder), bus=settings)
    wait_for(lambda: "claimed" in runner.said())
    lines = ""
    asked = len(guarded.requests)
    while len(guarded.requests) < asked + 6:  # while git is at work
        lines += _command_lines()
    go.touch()

    status = remote_client.wait(branch, timeout=120)

    assert status.state is State.SUCCEEDED
    assert remote_client.verify(branch).holds
    log = remote_client.logs(branch)
    assert "KAKEYA_JOB" in log, "the job looked at nothing"
    answer = git(bus, "log", "-p", "--format=%B", branch, "--", ".mac-bridge", "results")
    assert runner.stop() == 0
    for form in FORMS:
        assert form not in log
        assert form not in answer
        assert form not in lines
        assert form not in runner.said()
    assert _found(FORMS, runners.folder) == []


@pytest.mark.long
def test_a_token_in_the_environment_of_an_actions_job_works_too(
    runners, guarded, remote_client, looking, requester, monkeypatch, bus, git
):
    folder, go = looking
    go.touch()
    branch = requester.send(requester.manifest("look"))
    monkeypatch.setenv("KAKEYA_BUS_TOKEN", TOKEN)
    runner = runners.start(preset_folder=str(folder), bus={"url": guarded.url, "poll_s": 0.1})
    monkeypatch.delenv("KAKEYA_BUS_TOKEN")

    assert remote_client.wait(branch, timeout=120).state is State.SUCCEEDED
    for form in FORMS:
        assert form not in remote_client.logs(branch)
    assert runner.stop() == 0
    assert _found(FORMS, runners.folder) == []


@pytest.mark.long
def test_a_wrong_token_is_said_and_tried_again_until_it_is_right(
    runners, guarded, remote_client, looking, token_file, requester, wait_for
):
    folder, go = looking
    go.touch()
    branch = requester.send(requester.manifest("look"))
    guarded.token = "another"  # the server does not know the runner's token yet
    settings = {"url": guarded.url, "token_file": str(token_file), "poll_s": 0.1}
    runner = runners.start(preset_folder=str(folder), bus=settings)
    wait_for(lambda: "trying again" in runner.said())

    assert runner.process.poll() is None
    assert "cannot fetch from the bus" in runner.said()
    assert TOKEN not in runner.said()
    guarded.token = TOKEN

    assert remote_client.wait(branch, timeout=120).state is State.SUCCEEDED
    assert runner.stop() == 0


def test_a_token_is_not_sent_to_another_host(runners, guarded, looking, token_file, requester, wait_for):
    """A server that redirects elsewhere does not get the token along."""
    folder, _ = looking
    port = int(guarded.origin.rpartition(":")[2])
    seen = []

    def redirect(path, headers):
        seen.append(headers)
        return 302, {"Location": f"http://localhost:{port}{path}"}, b""

    guarded.api = redirect
    settings = {"url": f"{guarded.origin}/api/bus.git", "token_file": str(token_file), "poll_s": 0.1}
    runner = runners.start(preset_folder=str(folder), bus=settings)
    wait_for(lambda: "trying again" in runner.said())

    assert "authorization" in seen[0]
    assert {headers["host"] for headers in seen} == {f"127.0.0.1:{port}"}


@pytest.mark.rows(1)
@pytest.mark.parametrize("form", ["file://{}", "{}"], ids=["file-url", "folder"])
def test_the_main_path_over_a_folder(runners, client, bus, form):
    runners.start(bus={"url": form.format(bus)})

    run = client.run("noop")

    assert run.wait(timeout=120).exit_code == 0
    assert run.verify().holds
    assert run.logs() == "nothing was asked for and nothing was done\n"


@pytest.mark.long
def test_a_client_and_a_runner_find_each_other_whatever_the_transport(guarded, remote_client, runners, bus):
    """The client over HTTP, the runner over the file system."""
    runners.start()

    run = remote_client.run("noop")

    assert run.wait(timeout=120).state is State.SUCCEEDED


@pytest.mark.long
def test_the_runner_asks_the_server_for_its_own_prefixes_alone(runners, client, bus, tmp_path, git):
    for i in range(50):
        git(bus, "update-ref", f"refs/heads/feature/{i}", "refs/heads/main")
    runners.start()
    assert client.run("noop").wait(timeout=120).state is State.SUCCEEDED
    store = runners.folder / "state-one" / "store.git"

    done = subprocess.run(
        ["git", "for-each-ref", "--format=%(refname)"], cwd=store, capture_output=True, check=True
    )

    assert b"feature" not in done.stdout
