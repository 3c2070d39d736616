"""The nine tools over stdio, by the official client, against a real runner."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial

import anyio
import jsonschema
import pytest

from bridge.bus import wire
from bridge.client import Client
from bridge.manifest import parse_time
from runner.state.signing_key import make_key

pytestmark = pytest.mark.bus

# readOnly, destructive, idempotent, openWorld.
HINTS = {
    "kakeya_doctor": (True, False, True, True),
    "kakeya_presets": (True, False, True, True),
    "kakeya_run": (False, False, False, True),
    "kakeya_wait": (True, False, True, True),
    "kakeya_status": (True, False, True, True),
    "kakeya_logs": (True, False, True, True),
    "kakeya_fetch": (False, False, True, True),
    "kakeya_cancel": (False, True, True, True),
    "kakeya_list": (True, False, True, True),
}


@pytest.mark.long
def test_there_are_nine_tools_with_schemas_and_hints(door):
    async def scene(agent):
        return (await agent.client.list_tools()).tools, agent.client.instructions

    tools, instructions = door.play(scene)

    hints = {
        tool.name: (
            tool.annotations.read_only_hint,
            tool.annotations.destructive_hint,
            tool.annotations.idempotent_hint,
            tool.annotations.open_world_hint,
        )
        for tool in tools
    }
    assert hints == HINTS
    assert "never instructions" in instructions
    for tool in tools:
        assert tool.description
        for schema in (tool.input_schema, tool.output_schema):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False


@pytest.mark.long
def test_relative_paths_in_the_environment_begin_where_the_server_was_started(door, monkeypatch, tmp_path):
    key = make_key(tmp_path / "state")
    monkeypatch.setenv("KAKEYA_PUBLIC_KEY", str(tmp_path / "state" / "runner.pub").lstrip("/"))

    async def scene(agent):
        presets = await agent.good("kakeya_presets", name="talk")
        doctor = await agent.good("kakeya_doctor")
        return presets, {check["name"]: check["message"] for check in doctor["checks"]}

    presets, checks = replace(door, presets=door.presets.lstrip("/")).play(scene)
    assert [job["name"] for job in presets["presets"]] == ["talk"]
    assert key.short in checks["key"]


def test_a_whole_run_with_every_tool(served, clone):
    async def scene(agent):
        doctor = await agent.good("kakeya_doctor")
        assert doctor["ready"] is True
        assert {check["name"] for check in doctor["checks"]} >= {"git", "remote", "push"}
        listed = await agent.good("kakeya_presets")
        assert len(listed["presets"]) > 5
        assert listed["next_offset"] == len(listed["presets"])
        (one,) = (await agent.good("kakeya_presets", name="count"))["presets"]
        assert one["params"] == ["n: a whole number from 1 to 50; default 5"]

        sent = await agent.good("kakeya_run", preset="talk")
        assert sent["existing"] is False
        answer = await agent.good("kakeya_wait", request=sent["branch"])
        assert (answer["state"], answer["done"], answer["exit_code"]) == ("succeeded", True, 0)
        assert answer["verified"].startswith("verified: ")
        assert (await agent.good("kakeya_status")) == answer

        log = await agent.good("kakeya_logs", offset=0, limit=10)
        assert (log["untrusted_log"], log["next_offset"]) == ("line 0\nlin", 10)
        rest = await agent.good("kakeya_logs", offset=10)
        assert rest["untrusted_log"] == "e 1\nline 2\nline 3\n"
        assert "next_offset" not in rest
        assert (await agent.good("kakeya_logs", offset=-7))["untrusted_log"] == "line 3\n"

        fetched = await agent.good("kakeya_fetch", out="results/first")
        assert fetched["exit_code"] == 0
        assert wire.RESULT in fetched["untrusted_files"]
        rows = (await agent.good("kakeya_list"))["requests"]
        assert [(row["branch"], row["state"]) for row in rows] == [(sent["branch"], "succeeded")]
        return agent.told

    told = served.play(scene)

    assert (clone / "results" / "first" / wire.RESULT).exists()
    assert any("running" in message and "line" in message for _, _, message in told)


@pytest.mark.long
def test_a_wait_returns_in_time_and_tells_how_it_stands_meanwhile(door):
    async def scene(agent):
        branch = (await agent.good("kakeya_run", preset="noop"))["branch"]
        began = time.monotonic()
        answer = await agent.good("kakeya_wait", request=branch, seconds=20)
        return time.monotonic() - began, answer, agent.told

    took, answer, told = door.play(scene)

    assert took < 24
    assert (answer["state"], answer["done"], answer["position"]) == ("requested", False, 1)
    assert "no runner has written to this bus yet" in answer["outlook"]
    assert {total for _, total, _ in told} == {20}
    at = [0.0, *(progress for progress, _, _ in told), took]
    assert max(later - earlier for earlier, later in itertools.pairwise(at)) < 10
    assert any("position 1 of 1" in message for _, _, message in told)


@pytest.mark.long
def test_a_job_is_cancelled(served, wait_for):
    async def scene(agent):
        branch = (await agent.good("kakeya_run", preset="sleep"))["branch"]
        for _ in range(600):
            if (await agent.good("kakeya_status", request=branch))["state"] == "running":
                break
            await anyio.sleep(0.1)
        await agent.good("kakeya_cancel", request=branch, reason="no longer needed")
        answer = await agent.good("kakeya_wait", request=branch)
        again = await agent.good("kakeya_cancel", request=branch)
        return answer, again

    answer, again = served.play(scene)

    assert (answer["state"], answer["exit_code"]) == ("cancelled", 6)
    assert again["state"] == "cancelled"


@pytest.mark.long
def test_a_job_that_fails_is_an_answer_and_no_error(served):
    async def scene(agent):
        await agent.good("kakeya_run", preset="fail")
        return await agent.good("kakeya_wait")

    answer = served.play(scene)

    assert (answer["state"], answer["exit_code"]) == ("failed", 1)


@pytest.mark.long
def test_parameters_may_be_written_in_every_form_and_nulls_count_as_absent(door, clone):
    forms = [["n=7"], {"n": "7"}, {"n": 7}]

    async def scene(agent):
        given = {"preset": "count", "idempotency_key": "seven", "ref": None, "labels": None}
        return [(await agent.good("kakeya_run", params=params, **given))["branch"] for params in forms]

    branches = door.play(scene)

    (found,) = Client(clone).list()
    assert branches == [found.branch] * len(forms)


@pytest.mark.long
def test_a_request_with_labels_and_an_expiry_has_its_true_age(door, clone, git):
    async def scene(agent):
        branch = (
            await agent.good(
                "kakeya_run",
                preset="noop",
                labels=["metal"],
                expires_s=3600,
                snapshot=True,
                idempotency_key="k",
            )
        )["branch"]
        return await agent.good("kakeya_status", request=branch), await agent.good("kakeya_list")

    began = time.time()
    status, listed = door.play(scene)
    most = time.time() - began + 1

    assert status["elapsed_s"] <= most
    assert listed["requests"][0]["age_s"] <= most
    request = json.loads(git(clone, "show", f"refs/kakeya/{status['branch']}:{wire.REQUEST}"))
    assert request["labels"] == ["metal"]
    assert parse_time(request["expires_at"]) - parse_time(request["created_at"]) == timedelta(hours=1)


@pytest.mark.long
def test_a_call_that_its_client_gives_up_does_not_block_the_next(door):
    async def scene(agent):
        await agent.good("kakeya_run", preset="noop")
        with anyio.move_on_after(3):
            await agent.good("kakeya_wait", seconds=60)
        began = time.monotonic()
        await agent.good("kakeya_presets")
        return time.monotonic() - began

    assert door.play(scene) < 10


@pytest.mark.long
def test_a_wait_that_is_cancelled_stops_asking_the_remote(door, http_bus, git, clone):
    git(clone, "remote", "set-url", "origin", http_bus.url)

    async def scene(agent):
        await agent.good("kakeya_run", preset="noop")
        begun = len(http_bus.requests)
        async with anyio.create_task_group() as group:
            group.start_soon(partial(agent.good, "kakeya_wait", seconds=600))
            for _ in range(1200):
                if len(http_bus.requests) > begun + 4:
                    break
                await anyio.sleep(0.1)
            group.cancel_scope.cancel()
        counts = [begun, len(http_bus.requests)]
        for _ in range(5):
            # Longer than the longest pause between two looks.
            await anyio.sleep(9)
            counts.append(len(http_bus.requests))
            if counts[-1] == counts[-2]:
                break
        return counts

    counts = door.play(scene)

    assert counts[1] > counts[0] + 4
    assert counts[-1] == counts[-2]


@pytest.mark.long
def test_a_client_that_sees_no_progress_has_its_answer_within_a_minute(door, git, clone, tmp_path):
    """To a wait of an hour, and to calls whose git hangs, as with a credential program that waits for somebody."""
    branch = Client(clone, presets=door.presets).run("noop").branch
    hanging = replace(door, clone=tmp_path / "hanging")
    shutil.copytree(clone, hanging.clone)
    waits = tmp_path / "waits"
    waits.write_text("#!/bin/sh\nexec sleep 600\n")
    waits.chmod(0o755)
    git(hanging.clone, "remote", "set-url", "origin", f"ext::{waits}")
    git(hanging.clone, "config", "protocol.ext.allow", "always")
    wait = ("kakeya_wait", {"request": branch, "seconds": 3600})
    took = {}

    async def call(agent, key, tool, args):
        began = time.monotonic()
        result = await agent.client.call_tool(tool, args)
        took[key] = time.monotonic() - began, result.is_error, json.loads(result.content[0].text)

    async def scene(agent):
        async with hanging.open() as other, anyio.create_task_group() as group:
            group.start_soon(call, agent, "an hour", *wait)
            group.start_soon(call, other, "a wait that hangs", *wait)
            group.start_soon(call, other, "a request that hangs", "kakeya_run", {"preset": "noop"})

    door.play(scene)

    seconds, is_error, answer = took.pop("an hour")
    assert (40 < seconds < 60, is_error, answer["state"]) == (True, False, "requested")
    assert [(seconds < 60, is_error, answer["exit_code"]) for seconds, is_error, answer in took.values()] == [
        (True, True, 3)
    ] * 2
