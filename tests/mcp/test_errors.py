"""An agent is told of an error in the words of the command line: the same code, message, remedy and exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import mcp
import pytest
from click.testing import CliRunner

from bridge.cli.serving import mcp_command as command
from bridge.errors import UsageError

pytestmark = pytest.mark.bus

MISSING = "mac-bridge/noop-1700000000-abc123"
# A tool with its arguments, and the command that asks for the same.
SAME = {
    "unknown preset": ("kakeya_run", {"preset": "nope"}, ["run", "nope"]),
    "preset that is nearly right": ("kakeya_run", {"preset": "nop"}, ["run", "nop"]),
    "out of range": ("kakeya_run", {"preset": "count", "params": {"n": 99}}, ["run", "count", "-p", "n=99"]),
    "bad type": ("kakeya_run", {"preset": "count", "params": {"n": "x"}}, ["run", "count", "-p", "n=x"]),
    "unknown parameter": (
        "kakeya_run",
        {"preset": "count", "params": {"m": "1"}},
        ["run", "count", "-p", "m=1"],
    ),
    "no such ref": ("kakeya_run", {"preset": "noop", "ref": "nope"}, ["run", "noop", "--ref", "nope"]),
    "no such request": ("kakeya_status", {"request": MISSING}, ["status", MISSING]),
    "nothing fits": ("kakeya_wait", {"request": "nope"}, ["wait", "nope"]),
    "nothing sent": ("kakeya_logs", {}, ["logs"]),
    "nothing to cancel": ("kakeya_cancel", {"request": MISSING}, ["cancel", MISSING]),
    "unknown preset to show": ("kakeya_presets", {"name": "nope"}, ["presets", "nope"]),
    "nothing to fetch": ("kakeya_fetch", {"request": MISSING}, ["fetch", MISSING]),
}


def said(door, *args: str) -> dict:
    """Return what the command line says of an error with --json."""
    argv = [sys.executable, "-P", "-m", "bridge", "-C", str(door.clone), *args, "--json"]
    done = subprocess.run(argv, env=door.env, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == told["exit_code"]
    return told


@pytest.mark.long
def test_errors_are_those_of_the_command_line(door):
    async def scene(agent):
        return {name: await agent.bad(tool, **args) for name, (tool, args, _) in SAME.items()}

    told = door.play(scene)
    alike = {name: said(door, *args) for name, (_, _, args) in SAME.items()}

    # Each door has its own words for commands and options: see tests/bridge/common/test_advice.py.
    fixes = {
        name: (error.pop("fix"), other.pop("fix")) for name, error in told.items() for other in [alike[name]]
    }
    assert told == alike
    assert all(bool(ours) == bool(theirs) for ours, theirs in fixes.values())
    assert not [fix for fix, _ in fixes.values() if re.search(r"\bkakeya \w|(?<!\w)--[a-z]| -p ", fix or "")]
    assert all(error["code"] and error["error"] for error in told.values())


@pytest.mark.long
def test_a_remote_that_is_gone_is_told_the_same(door, bus):
    bus.rename(bus.with_name("away"))

    async def scene(agent):
        return await agent.bad("kakeya_run", preset="noop"), await agent.bad(
            "kakeya_wait", request=MISSING, seconds=1
        )

    told, waited = door.play(scene)

    assert told == said(door, "run", "noop")
    assert (told["code"], told["exit_code"]) == ("unreachable", 3)
    assert waited["exit_code"] == 3


@pytest.mark.long
def test_a_folder_that_is_no_repository_is_told_the_same(door, tmp_path):
    door.clone = tmp_path

    async def scene(agent):
        return await agent.bad("kakeya_list")

    assert door.play(scene)["error"] == said(door, "list")["error"]


def test_bad_arguments_are_told_and_send_nothing(door, git, bus):
    rows = [
        ("kakeya_run", {}, "preset is missing"),
        ("kakeya_run", {"preset": "noop", "shell": "x"}, "shell is not a known field"),
        ("kakeya_run", {"preset": ["noop"]}, "preset: "),
        ("kakeya_run", {"preset": "noop", "params": "n=1"}, "params: "),
        ("kakeya_wait", {"seconds": -1}, "seconds: "),
        ("kakeya_wait", {"seconds": 10**9}, "seconds: "),
        ("kakeya_wait", {"seconds": "soon"}, "seconds: "),
        ("kakeya_logs", {"limit": 10**6}, "limit: "),
        ("kakeya_list", {"offset": -1}, "offset: "),
        ("kakeya_cancel", {}, "request is missing"),
        ("kakeya_cancel", {"request": ""}, "request: "),
        ("kakeya_status", {"request": "x" * 10_000}, "request: "),
        ("kakeya_status", {"request": "noop\0"}, "request: must be printable"),
        ("kakeya_cancel", {"request": "noop", "reason": "a\0b"}, "reason: must be printable"),
        ("kakeya_run", {"preset": "noop", "ref": "HEAD\0"}, "ref: must be printable"),
        ("kakeya_run", {"preset": "noop", "params": ["n=1\0"]}, "params: must be printable"),
        ("kakeya_run", {"preset": "noop", "labels": ["a\nb"]}, "labels: must be printable"),
        ("kakeya_fetch", {"out": "a\0"}, "out: must be printable"),
    ]

    async def scene(agent):
        return [await agent.bad(tool, **args) for tool, args, _ in rows]

    for (tool, args, why), error in zip(rows, door.play(scene), strict=True):
        assert (error["code"], error["exit_code"]) == ("usage", 2), (tool, args)
        assert error["error"].startswith(f"{tool}: {why}")
        assert error["fix"].startswith("Arguments: ")
    assert git(bus, "for-each-ref", "refs/heads/mac-bridge/") == ""


def test_an_unknown_tool_is_an_error_of_the_protocol(door):
    async def scene(agent):
        with pytest.raises(mcp.MCPError) as caught:
            await agent.client.call_tool("kakeya_shell", {})
        with pytest.raises(mcp.MCPError) as misspelt:
            await agent.client.call_tool("kakeya_rn", {})
        return str(caught.value), str(misspelt.value)

    unknown, misspelt = door.play(scene)
    assert "there is no tool 'kakeya_shell'" in unknown
    assert "there is no tool 'kakeya_rn' (did you mean kakeya_run?)" in misspelt


def test_without_the_extra_the_command_to_install_it_is_told(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mcp", "mcp_types")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "bridge.mcp.server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp_types", None)

    error = CliRunner().invoke(command, obj={"repo": ".", "remote": "origin"}).exception

    assert isinstance(error, UsageError)
    assert error.code == "missing_extra"
    assert f"{sys.executable} -m pip install '.[mcp]'" in error.fix


@pytest.mark.long
def test_an_agent_that_goes_away_while_it_is_answered_is_no_bug(door):
    """Its end of both pipes is closed before the answer to what it asked last is written."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "an agent", "version": "1"},
    }
    server = subprocess.Popen(
        door.argv,
        env=door.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with server:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        server.stdin.write(f"{json.dumps(asked)}\n")
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["id"] == 1
        server.stdout.close()
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        last = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
        server.stdin.write(f"{json.dumps(ready)}\n{json.dumps(last)}\n")
        server.stdin.close()
        said = server.stderr.read()

    assert said == "the agent disconnected before it had its answer\n"
    assert server.returncode == 0


CALL = b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": '
NO_MESSAGES = {
    "half a character": (
        CALL + rb'{"name": "kakeya_status", "arguments": {"request": "\ud83d"}}}',
        7,
        -32700,
    ),
    "no parameters": (CALL + b"5}", 7, -32600),
    "not JSON": (CALL, None, -32700),
    "a batch": (b"[" + CALL + b"{}}]", None, -32600),
}


@pytest.mark.parametrize(("line", "number", "code"), NO_MESSAGES.values(), ids=NO_MESSAGES)
def test_a_line_that_is_no_message_is_answered(door, line, number, code):
    """Otherwise an agent would wait for its request until its own time limit."""
    with subprocess.Popen(door.argv, env=door.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        server.stdin.write(b"\n" + line + b"\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        server.stdin.close()

    assert (answer["id"], answer["error"]["code"]) == (number, code)
