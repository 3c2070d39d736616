"""docs/agents.md's section for agents without git, followed literally on a host's API over a real bus."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bridge.bus import wire
from bridge.bus.branch_names import new_nonce
from runner.serve.loop import once
from tests.conftest import Keyed
from tests.repo import host_api
from tests.repo.console import blocks, follow, section, steps
from tests.system import program

PAGE = section("Without git", (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8"))
ASK, READ = (steps(f"```console\n{block}```") for block in blocks(PAGE, "console"))
NONCE = "1795204112-77e653120c9f"

pytestmark = pytest.mark.bus


@pytest.fixture
def api(bus, monkeypatch):
    monkeypatch.setenv("TOKEN", host_api.TOKEN)
    with host_api.served(bus) as served:
        yield served


@dataclass
class GitHubTools:
    """The tools of GitHub's MCP server that the page names, with their parameters, over the same API."""

    api: host_api.HostApi
    called: list[str] = field(default_factory=list)

    def call(self, name: str, arguments: dict[str, Any]) -> None:
        assert (arguments.pop("owner"), arguments.pop("repo")) == tuple(host_api.REPOSITORY.split("/"))
        self.called.append(name)
        getattr(self, name)(**arguments)

    def create_branch(self, *, branch: str, from_branch: str) -> None:
        _, main = self.api.read_ref(f"heads/{from_branch}")
        body = {"ref": f"refs/heads/{branch}", "sha": main["object"]["sha"]}
        assert self.api.create_ref(body=body)[0] == 201

    def create_or_update_file(self, *, branch: str, path: str, content: str, message: str) -> None:
        encoded = base64.b64encode(content.encode()).decode()
        body = {"branch": branch, "content": encoded, "message": message}
        assert self.api.put_file(path, body=body)[0] == 201

    def push_files(self, *, branch: str, files: list[dict[str, str]], message: str) -> None:
        contents = {file["path"]: file["content"].encode() for file in files}
        self.api.commit(f"refs/heads/{branch}", contents, message)


def kakeya(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-m", "bridge", *words]
    return subprocess.run(argv, cwd=where, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.skipif(not all(map(program, ("curl", "jq", "openssl"))), reason="curl, jq or openssl is missing")
def test_the_page_s_calls_ask_and_read_without_git(api, bus, clone, keyed: Keyed, tmp_path, git):
    there = {"https://api.github.com": api.url}
    said = follow(ASK, tmp_path, replaced=there, limit_s=120)
    branch = re.findall(r"refs/heads/(mac-bridge/noop-[0-9a-f-]+)", said)[0]
    assert [call for call in api.asked if call[0] != "GET"] == [
        ("POST", "/repos/OWNER/REPOSITORY/git/refs"),
        ("PUT", "/repos/OWNER/REPOSITORY/contents/.mac-bridge/request.json"),
    ]

    keyed.handle()

    again = [step for step in ASK if re.match(r"api=|call\(\)", step.command)]
    read = follow([*again, *READ], tmp_path, replaced=there | {"?ref=$branch": f"?ref={branch}"})
    assert "\nsucceeded\n" in read
    assert '"verdict": null' in read
    assert '"id": "one"' in read
    # A clone that sent nothing, and knows no more than the branch's name.
    assert git(clone, "for-each-ref", "refs/kakeya-sent/") == ""
    key = str(keyed.key())
    done = kakeya(clone, "wait", branch)
    assert (done.returncode, "next: kakeya fetch" in done.stderr) == (0, True), done.stderr
    done = kakeya(clone, "verify", "--key", key, branch)
    assert (done.returncode, "signed by one's key" in done.stdout) == (0, True), done.stdout
    done = kakeya(clone, "fetch", "--key", key, "--out", "out", branch)
    assert done.returncode == 0, done.stderr
    assert (clone / "out" / wire.RESULT).exists()


@pytest.mark.parametrize("tool", ["create_or_update_file", "push_files"])
def test_the_page_s_mcp_calls_ask(api, keyed: Keyed, tool, client):
    (text,) = blocks(PAGE, "json")
    nonce = new_nonce()
    tools = GitHubTools(api)
    (first, second) = json.loads(text.replace(NONCE, nonce))
    branch = first["arguments"]["branch"]
    if tool == "push_files":
        arguments = second["arguments"]
        arguments["files"] = [{"path": arguments.pop("path"), "content": arguments.pop("content")}]
    tools.call(first["name"], first["arguments"])
    # A runner that looks between the two calls leaves the branch alone.
    keyed.handle()
    status = client.status(branch)
    assert (status.state, status.reason.code) == ("requested", "manifest")
    assert status.reason.text() == (
        "its file .mac-bridge/request.json is not there, and a runner refuses it after ten minutes without one. "
        "Put the file on the branch."
    )
    tools.call(tool, second["arguments"])

    keyed.handle()

    status = client.wait(branch, 60)
    assert (status.state, status.detail) == ("succeeded", "every step ended with 0")
    assert client.verify(branch).holds


def test_a_file_that_never_comes_is_refused_once_the_time_is_over(api, keyed: Keyed, client, monkeypatch):
    branch = f"mac-bridge/noop-{new_nonce()}"
    GitHubTools(api).create_branch(branch=branch, from_branch="main")
    keyed.handle()
    assert client.status(branch).state == "requested"
    with keyed.context() as context:
        assert once(context, branch) is None
    assert keyed.told[-1] == f"{branch}: waits for its file .mac-bridge/request.json"
    monkeypatch.setattr("runner.serve.dispatch.UNFINISHED_S", 0.0)

    keyed.handle()

    assert client.result(branch).reason.code == "no_manifest"
