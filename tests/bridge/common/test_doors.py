"""Advice names only what its reader has: an agent has tools, a workflow has inputs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bridge.common import doors

ROOT = Path(__file__).parents[3]
INPUTS = yaml.safe_load((ROOT / ".github" / "actions" / "run" / "action.yml").read_text(encoding="utf-8"))[
    "inputs"
]
# Commands of git are the same at every door.
GIT = re.compile(r"`?\bgit (?:config|fetch|remote)[^`.;]*`?")
FOLDERS = ("bus", "presets", "requests", "verify")
FILES = [
    ROOT / "bridge" / "client.py",
    *(file for name in FOLDERS for file in (ROOT / "bridge" / name).glob("*.py")),
]


def text_of(node: ast.expr) -> str:
    """Return the text of a literal; what is filled in reads ``noop``."""
    if isinstance(node, ast.Constant):
        return str(node.value or "")
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) for part in node.values)
    return "noop"


def fixes() -> Iterator[str]:
    """Yield the advice that the client's code gives."""
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (isinstance(node, ast.keyword) and node.arg == "fix") or (
                isinstance(node, ast.Assign)
                and any(isinstance(t, ast.Name) and t.id == "fix" for t in node.targets)
            ):
                yield text_of(node.value)


ADVICE = sorted({fix for fix in fixes() if "--" in fix or " -p " in fix or "kakeya " in fix})


@pytest.mark.parametrize("fix", ADVICE)
def test_an_agent_is_told_of_tools_and_arguments(fix):
    told = GIT.sub("", doors.for_agents(fix))

    assert "--" not in told.replace("--object-format", "")  # of `git init`
    assert not re.search(
        r" -p |\bkakeya (run|wait|status|logs|fetch|list|doctor|presets|verify|cancel)\b", told
    )


@pytest.mark.parametrize("fix", ADVICE)
def test_a_workflow_is_told_of_inputs(monkeypatch, fix):
    monkeypatch.setenv("KAKEYA_DOOR", "action")

    told = GIT.sub("", doors.for_reader(fix, "usage"))

    assert not re.search(r"--(prefix|suffix|ref|remote|key|expires)| -p ", told)
    assert set(re.findall(r"the input ([\w-]+)", told)) <= INPUTS.keys()


def test_a_person_at_a_terminal_is_told_of_options(monkeypatch):
    monkeypatch.delenv("KAKEYA_DOOR", raising=False)

    assert doors.for_reader("Use --prefix.", "no_push_right") == "Use --prefix."
