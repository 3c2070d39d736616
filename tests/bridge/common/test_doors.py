"""Advice names only what its reader has: an agent has tools, a workflow has inputs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from bridge.common import doors
from bridge.common.doors import Door
from bridge.errors import KakeyaError

ROOT = Path(__file__).parents[3]
INPUTS = yaml.safe_load((ROOT / ".github" / "actions" / "run" / "action.yml").read_text(encoding="utf-8"))[
    "inputs"
]
# Commands of git are the same at every door.
GIT = re.compile(r"`?\bgit (?:config|fetch|remote)[^`.;]*`?")
# Everything but the gate, whose fixes are about reports, and the commands, which are only in a terminal.
FILES = [file for file in (ROOT / "bridge").rglob("*.py") if not {"gate", "cli"} & {*file.parts}]
# How many arguments stand before the fix.
BEFORE_THE_FIX = {"Reason": 2, "Check": 3}
OPTION = re.compile(r"(?<![\w`])--[a-z]")
COMMAND = re.compile(r"\bkakeya (?:run|wait|status|logs|fetch|list|doctor|presets|verify|cancel|gate)\b")


def text_of(node: ast.expr) -> str:
    """Return the text of a literal; what is filled in reads ``noop``."""
    if isinstance(node, ast.Constant):
        return str(node.value or "")
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) for part in node.values)
    return text_of(node.body) if isinstance(node, ast.IfExp) else "noop"


def fixes() -> Iterator[str]:
    """Yield each fix that the client's code gives, whatever class its error or check has."""
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (isinstance(node, ast.keyword) and node.arg == "fix") or (
                isinstance(node, ast.Assign)
                and any(name_of(target) in ("fix", "OTHER_PREFIX", "HOW_TO_PIN") for target in node.targets)
            ):
                yield text_of(node.value)
            elif isinstance(node, ast.Call) and (before := BEFORE_THE_FIX.get(name_of(node.func))):
                yield from map(text_of, node.args[before : before + 1])


def name_of(node: ast.expr) -> str:
    return getattr(node, "id", "") or getattr(node, "attr", "")


@cache
def advice() -> list[str]:
    """Return the fixes that name an option, a command or another try."""
    names = ("--", " -p ", "kakeya ", "ry again")
    return sorted({fix for fix in fixes() if any(name in fix for name in names)})


def test_the_code_gives_advice():
    assert len(advice()) > 30


def test_an_agent_is_told_of_tools_and_arguments():
    for fix in advice():
        words = GIT.sub("", doors.advice(fix, Door.MCP))

        assert not OPTION.search(words.replace("--object-format", "").replace("--export", ""))
        assert not re.search(r" -p ", words)
        assert not COMMAND.search(words)


def test_a_workflow_is_told_of_inputs():
    for fix in advice():
        words = GIT.sub("", doors.advice(fix, Door.ACTION))

        assert not re.search(r"--(prefix|suffix|ref|remote|key|expires)| -p ", words)
        assert set(re.findall(r"the input ([\w-]+)", words)) <= INPUTS.keys()
        assert len(COMMAND.findall(words)) == words.count("` in a clone of the repository")


def test_a_page_says_which_commands_are_for_a_terminal():
    for fix in advice():
        words = GIT.sub("", doors.advice(fix, Door.WEB))

        assert "ry again" not in words
        assert len(COMMAND.findall(words)) == words.count("` in a terminal")
        assert not re.search(r"--(remote|key)\b(?! (?:FILE )?of `kakeya web`)", words)


def test_a_person_at_a_terminal_is_told_of_options():
    assert all(doors.advice(fix, Door.TERMINAL) == fix for fix in advice())


def test_the_action_names_its_door(monkeypatch):
    monkeypatch.delenv("KAKEYA_DOOR", raising=False)
    assert doors.current() is Door.TERMINAL
    monkeypatch.setenv("KAKEYA_DOOR", "action")
    assert doors.current() is Door.ACTION
    assert "contents: write" in doors.advice("Use --prefix.", Door.ACTION, "no_push_right")


@pytest.mark.parametrize(
    ("door", "word"), [(Door.ACTION, "clone"), (Door.MCP, "kakeya_doctor"), (Door.WEB, "terminal")]
)
def test_no_class_of_errors_has_the_words_of_another_door(door, word):
    for kind in kinds(KakeyaError):
        assert word in doors.advice("Try again; `kakeya doctor` checks the remote.", door, kind.kind)


def kinds(base: type[KakeyaError]) -> Iterator[type[KakeyaError]]:
    yield base
    for derived in base.__subclasses__():
        yield from kinds(derived)
