"""The main path over real git and real processes: asked for, run, answered, verified."""

from __future__ import annotations

import json
import time

import pytest

from bridge.bus.wire import State

pytestmark = pytest.mark.bus


def test_a_version_1_manifest_pushed_by_hand_is_answered_in_the_older_shape(clone, bus, git, runners, client):
    runners.start()
    nonce = f"{int(time.time())}-abc123"
    branch = f"mac-bridge/noop-{nonce}"
    git(clone, "switch", "--quiet", "-c", branch)
    manifest = {
        "schema_version": 1, "preset": "noop", "params": {}, "ref": "HEAD", "requested_by": "an agent",
        "nonce": nonce,
    }  # fmt: skip
    (clone / ".mac-bridge").mkdir()
    (clone / ".mac-bridge" / "request.json").write_text(json.dumps(manifest))
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "-m", "mac-bridge request")
    git(clone, "push", "--quiet", "origin", branch)

    status = client.wait(branch, timeout=120)

    assert status.state is State.SUCCEEDED, status.detail
    summary = json.loads(git(bus, "show", f"{branch}:.mac-bridge/logs/summary.json"))
    assert summary["preset"] == "noop"
    assert summary["nonce"] == nonce
    assert summary["exit_code"] == 0
    assert summary["commands"][0].keys() == {"argv", "exit_code", "seconds", "log"}
    assert client.verify(branch).holds
