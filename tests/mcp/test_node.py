"""The tools under the official SDK for TypeScript, which holds every structured answer against the tool's schema."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest

from bridge.client import Client
from bridge.mcp.tools import TOOLS

pytestmark = [pytest.mark.bus, pytest.mark.long]

SDK = "@modelcontextprotocol/sdk"
VERSIONS = ("1.20.2", "1.32.2")
MISSING = "mac-bridge/noop-1700000000-abc123"


@pytest.fixture(params=VERSIONS)
def folder(request, tmp_path: Path) -> Path:
    """Return a folder with one version of the SDK; skip the test if npm or its registry is out of reach."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm")
    argv = (
        "npm",
        "install",
        "--silent",
        "--no-audit",
        "--no-fund",
        f"--prefix={tmp_path}",
        f"{SDK}@{request.param}",
    )
    tried = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"npm cannot install the SDK: {tried.stderr.strip().splitlines()[-1:]}")
    return tmp_path


def test_every_tool_s_success_and_failure_reaches_the_client(folder, served):
    sent = Client(served.clone, presets=served.presets).run("noop")
    sent.wait(60)
    good = [
        ("kakeya_doctor", {}),
        ("kakeya_presets", {"name": "noop"}),
        ("kakeya_run", {"preset": "count", "params": ["n=7"]}),
        ("kakeya_run", {"preset": "count", "params": {"n": 7}, "labels": None, "idempotency_key": ""}),
        ("kakeya_wait", {"request": sent.branch, "seconds": 20}),
        ("kakeya_status", {"request": sent.branch}),
        ("kakeya_logs", {"request": sent.branch}),
        ("kakeya_fetch", {"request": sent.branch, "out": "first"}),
        ("kakeya_cancel", {"request": sent.branch}),
        ("kakeya_list", {}),
    ]
    bad = [
        *((name, {"unknown": 1}) for name in TOOLS),
        ("kakeya_presets", {"name": "nope"}),
        ("kakeya_run", {"preset": "count", "params": ["n=99"]}),
        *((f"kakeya_{name}", {"request": MISSING}) for name in ("wait", "status", "logs", "fetch", "cancel")),
    ]
    script = Path(__file__).with_name("sdk.mjs")
    argv = ["node", str(script), json.dumps(served.argv), json.dumps([*good, *bad])]
    done = subprocess.run(
        argv, cwd=folder, env=served.env, capture_output=True, text=True, timeout=240, check=True
    )
    names, *answers = map(json.loads, done.stdout.splitlines())

    assert names == list(TOOLS)
    assert [answer for answer in answers if "threw" in answer] == []
    for answer in answers[: len(good)]:
        assert not answer["isError"], answer
        schema = TOOLS[answer["name"]].to_mcp(answer["name"]).output_schema
        jsonschema.Draft202012Validator(schema).validate(answer["structured"])
    for answer in answers[len(good) :]:
        assert answer["isError"], answer
        assert {"error", "code", "exit_code", "fix", "safe_to_retry"} <= json.loads(answer["text"]).keys()
