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

# The oldest and the newest first version of the SDK, and the newest second version.
PACKAGES = (
    "@modelcontextprotocol/sdk@1.20.2", "@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/client@2.4.0",
)  # fmt: skip
TOKENIZER = "js-tiktoken@1.0.21"
MISSING = "mac-bridge/noop-1700000000-abc123"


def install(package: str, folder: Path) -> None:
    """Install a package of npm's; skip the test if npm or its registry is out of reach."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm")
    argv = ("npm", "install", "--silent", "--no-audit", "--no-fund", f"--prefix={folder}", package)
    tried = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"npm cannot install {package}: {tried.stderr.strip().splitlines()[-1:]}")


COUNT = """
const { Tiktoken } = require("js-tiktoken/lite");
const ranks = require("js-tiktoken/ranks/o200k_base");
const text = require("node:fs").readFileSync(0, "utf8");
console.log(new Tiktoken(ranks.default ?? ranks).encode(text).length);
"""


def test_the_schemas_take_less_than_2500_tokens_of_o200k_base(tmp_path):
    install(TOKENIZER, tmp_path)
    listed = [
        tool.to_mcp(name).model_dump(mode="json", by_alias=True, exclude_none=True)
        for name, tool in TOOLS.items()
    ]
    text = json.dumps(listed, separators=(",", ":"), ensure_ascii=False)

    done = subprocess.run(
        ["node", "-e", COUNT], cwd=tmp_path, input=text, capture_output=True, text=True, check=True
    )

    tokens = int(done.stdout)
    assert tokens < 2500
    # The quick estimate of test_bounds.py.
    assert abs(tokens - len(text) / 4) < 0.03 * tokens


@pytest.mark.parametrize("package", PACKAGES)
def test_every_tool_s_success_and_failure_reaches_the_client(package, tmp_path, served):
    folder = tmp_path / "node"
    folder.mkdir()
    install(package, folder)
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
    argv = [
        "node",
        str(script),
        json.dumps(served.argv),
        json.dumps([*good, *bad]),
        package.rpartition("@")[0],
    ]
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
