"""The skill's table of usual calls is followed row by row, as an agent does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = [pytest.mark.bus, pytest.mark.long]

SKILL = (Path(__file__).parents[2] / "docs" / "skill" / "SKILL.md").read_text(encoding="utf-8")


def rows() -> list[tuple[str, list[str]]]:
    """Return the tool of each row of the table, with the arguments that the row names."""
    table = SKILL.split("## The five usual calls", 1)[1].split("\n## ", 1)[0]
    cells = [line.split(" | ")[1] for line in table.splitlines() if re.match(r"\| \d\. ", line)]
    return [(names[0], names[1:]) for cell in cells if (names := re.findall(r"`([a-z_]+)`", cell))]


def test_the_table_of_usual_calls_can_be_followed(served, clone):
    values = {"preset": "talk", "params": [], "idempotency_key": "eval-1", "offset": -1600}

    async def scene(agent):
        branch, answers = None, {}
        for tool, named in rows():
            args = {name: values[name] for name in named if name != "done"}
            if branch and tool != "kakeya_run":
                args["request"] = branch
            answer = await agent.good(tool, **args)
            while tool == "kakeya_wait" and not answer["done"]:
                answer = await agent.good(tool, **args)
            branch = answer.get("branch", branch)
            answers[tool] = answer
        same = {name: values[name] for name in ("preset", "params", "idempotency_key")}
        return answers, await agent.good("kakeya_run", **same)

    answers, again = served.play(scene)

    assert list(answers) == ["kakeya_doctor", "kakeya_run", "kakeya_wait", "kakeya_logs", "kakeya_fetch"]
    assert answers["kakeya_doctor"]["ready"] is True
    assert answers["kakeya_wait"]["exit_code"] == 0
    assert "line 3" in answers["kakeya_logs"]["untrusted_log"]
    assert list(clone.glob("kakeya-results/*"))
    assert (again["branch"], again["existing"]) == (answers["kakeya_run"]["branch"], True)
