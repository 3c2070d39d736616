"""A request that a runner refuses for its preset's name is shown by every list, like any other."""

from __future__ import annotations

import json
import time

import pytest

pytest.importorskip("starlette", reason="needs the extra [web]")
pytest.importorskip("mcp", reason="needs the extra [mcp]")

from bridge.bus import wire
from bridge.bus.branch_names import listed_name, parse_branch, requested_at
from bridge.bus.wire import State
from bridge.client import Client
from bridge.mcp import calls, models
from tests.bridge.web.conftest import Web

NONCE = "1795000000-abcdef123456"
# Names in a branch, and whether a preset can have them.
NAMES = {
    "noop": True,
    "a" * 64: True,
    "a" * 65: False,
    "b" * 120: False,
    "Big_Name": False,
    "x-": False,
    "1.5b": False,
}


@pytest.mark.parametrize("suffix", ["", "-b876"])
@pytest.mark.parametrize(
    "prefix", ["mac-bridge/", "claude/mac-bridge-", "AgentMemory/mac-bridge-", "a/b/x-mac-bridge-", "a/b/c/"]
)
@pytest.mark.parametrize(("name", "possible"), NAMES.items())
def test_every_name_with_a_nonce_is_listed(name, possible, prefix, suffix):
    branch = f"{prefix}{name}-{NONCE}{suffix}"

    assert (parse_branch(branch) is not None) == possible
    assert requested_at(branch) == 1795000000
    assert listed_name(branch) == (name, NONCE)


@pytest.mark.parametrize(
    "branch",
    ["main", "mac-bridge/noop", f"mac-bridge/{NONCE}", f"mac-bridge/noop-{NONCE}-x-y", "mac-bridge/noop-1-abcdef",
     f"-mac-bridge/noop-{NONCE}", f"mac bridge/noop-{NONCE}", f"mac-bridge/noop-{NONCE}\n", f"x/../noop-{NONCE}", "",
     f"mac-bridge/{'a' * 300}-{NONCE}"],
)  # fmt: skip
def test_what_is_no_request_is_not(branch):
    assert listed_name(branch) is None
    assert requested_at(branch) == 0


@pytest.mark.bus
@pytest.mark.parametrize("name", ["a" * 100, "Big_Name"])
def test_its_refusal_is_in_every_list(name, clone, git, keyed):
    nonce = f"{int(time.time())}-abcdef123456"
    branch = f"mac-bridge/{name}-{nonce}"
    request = {
        "schema_version": 1,
        "preset": name,
        "params": {},
        "ref": "HEAD",
        "requested_by": "a",
        "nonce": nonce,
    }
    (clone / wire.FOLDER).mkdir()
    (clone / wire.REQUEST).write_text(json.dumps(request))
    git(clone, "add", "--force", wire.REQUEST)
    git(clone, "commit", "--quiet", "--message", "a request")
    git(clone, "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}")
    keyed.handle()

    (status,) = Client(clone).list()
    assert (status.branch, status.state, status.preset) == (branch, State.REFUSED, name)
    (row,) = calls.recent(calls.BusClient(str(clone), "origin"), models.Recent()).requests
    assert (row.branch, row.state) == (branch, "refused")
    web = Web(Client(clone))
    assert f"/run/{branch}" in web.page()
    assert "the manifest is not valid" in web.page(f"/run/{branch}")
    assert branch in Client(clone).find(name).branch
