"""A sweep through the tools: its group is the handle of all its requests."""

from __future__ import annotations

import pytest

from bridge.mcp import models

pytestmark = [pytest.mark.bus, pytest.mark.long]


def test_an_agent_sends_awaits_and_lists_a_sweep(served):
    async def scene(agent):
        sent = await agent.good("kakeya_run", preset="count", params=["n=1,2,3"])
        group = sent["branch"]
        assert sent == {"branch": group, "existing": False, "points": 3}
        ended = await agent.good("kakeya_wait", request=group)
        while not ended["done"]:
            ended = await agent.good("kakeya_wait", request=group)
        assert (ended["state"], ended["exit_code"], ended["branch"]) == ("succeeded", 0, group)
        assert "3 points: 3 succeeded" in ended["outlook"]
        rows = (await agent.good("kakeya_list", group=group))["requests"]
        assert len(rows) == 3
        refused = await agent.bad("kakeya_fetch", request=group)
        assert "is a group of 3 points: name one of them" in refused["error"]
        assert "kakeya_list" in refused["fix"]
        assert "is not the id of a group" in (await agent.bad("kakeya_list", group="mine"))["error"]
        assert (await agent.good("kakeya_fetch", request=rows[0]["branch"]))["exit_code"] == 0

    served.play(scene)


def test_an_agent_cancels_a_sweep_and_a_mistake_sends_nothing(door, git, bus):
    async def scene(agent):
        assert "n=99" in (await agent.bad("kakeya_run", preset="count", params=["n=1,99"]))["error"]
        assert git(bus, "for-each-ref", "refs/heads/mac-bridge") == ""
        sent = await agent.good("kakeya_run", preset="count", params={"n": [1, 2]})
        open_ = await agent.good("kakeya_status", request=sent["branch"])
        assert (open_["state"], open_["done"]) == ("requested", False)
        ended = await agent.good("kakeya_cancel", request=sent["branch"])
        assert (ended["state"], ended["done"], ended["exit_code"]) == ("cancelled", True, 6)

    door.play(scene)


def test_a_list_of_values_is_the_text_of_a_sweep():
    params = {"n": [2, 4], "loud": [True, False], "cache": ["k=raw,v=raw", "raw"], "word": "a,b"}
    ask = models.Ask(preset="x", params=params)
    assert ask.params == ["n=2,4", "loud=true,false", "cache=k=raw,v=raw;raw", "word=a,b"]
