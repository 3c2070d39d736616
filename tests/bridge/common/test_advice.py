"""Advice names only what its reader has: an agent has tools, a workflow has inputs, a page only shows things."""

from __future__ import annotations

import ast
import copy
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bridge.common import advice, environment
from bridge.common.advice import Advice, Door, changed, command, joined, printed, step
from bridge.errors import KakeyaError, UsageError, one_line

ROOT = Path(__file__).parents[3]
TABLE = json.loads(Path(__file__).with_name("advice.json").read_text(encoding="utf-8"))
INPUTS = yaml.safe_load((ROOT / ".github" / "actions" / "run" / "action.yml").read_text(encoding="utf-8"))[
    "inputs"
]
FILES = [file for file in (ROOT / "bridge").rglob("*.py") if file != Path(advice.__file__)]
# What a plain text must not name, since not every door has it. Commands of git are the same at every door.
GIT = re.compile(r"`?\bgit (?:config|fetch|remote|notes)[^`.;]*`?")
OF_A_TERMINAL = re.compile(
    r"\bkakeya (?:run|wait|status|logs|fetch|list|doctor|presets|verify|cancel|gate)\b"
    r"|(?<![\w`])--(?:prefix|suffix|ref|remote|key|expires|snapshot|wait)\b| -p |\bTry again\b"
)
# How many arguments stand before the fix.
BEFORE_THE_FIX = {"Reason": 2, "Check": 3, "constant": 0}


class Filled(ast.NodeTransformer):
    """Replaces what is only known when the code runs by the word noop."""

    def __init__(self, module: str) -> None:
        self.names = vars(importlib.import_module(module))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        return ast.Constant("".join(v.value if isinstance(v, ast.Constant) else "noop" for v in node.values))

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.Constant("noop") if node.attr == "name" else node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return node if node.id in self.names else ast.Constant("noop")


def written() -> list[Advice]:
    """Return each advice that the client's code contains."""
    found = {str(value): value for value in vars(advice).values() if isinstance(value, Advice)}
    for file in FILES:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for node in (node for node in calls if getattr(node.func, "id", "") in ("Advice", "step")):
            module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            filled = Filled(module)
            expression = ast.fix_missing_locations(ast.Expression(filled.visit(node)))
            value = eval(compile(expression, str(file), "eval"), filled.names)
            found[str(value)] = value
    return list(found.values())


def plain_fixes() -> Iterator[str]:
    """Yield the plain texts of fixes. The gate's are about reports, and those of the commands for a terminal."""
    for file in (file for file in FILES if not {"gate", "cli"} & {*file.parts}):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword | ast.Assign):
                names = (
                    [node.arg]
                    if isinstance(node, ast.keyword)
                    else [getattr(t, "id", "") for t in node.targets]
                )
                texts = [node.value] if {"fix", "HOW_TO_PIN", "HOW_TO_SIGN"} & {*names} else []
            else:
                name = (
                    getattr(node.func, "id", getattr(node.func, "attr", ""))
                    if isinstance(node, ast.Call)
                    else ""
                )
                before = BEFORE_THE_FIX.get(name)
                texts = [] if before is None else node.args[before : before + 1]
            for text in texts:
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    yield text.value
                elif isinstance(text, ast.JoinedStr):
                    yield "".join(v.value if isinstance(v, ast.Constant) else "noop" for v in text.values)


def test_each_advice_has_the_words_of_each_door():
    """A new advice, or a changed one, belongs into advice.json, with what each door shows."""
    assert {
        str(one): {door.value: one.at(door) for door in Door if one.at(door) != one} for one in written()
    } == TABLE
    assert len(TABLE) > 25


@pytest.mark.parametrize("row", [[terminal, TABLE[terminal]] for terminal in TABLE], ids=list(TABLE))
def test_a_door_names_only_what_its_reader_has(row):
    terminal, others = row
    for_agents, for_workflows, on_pages = (others.get(door, terminal) for door in ("mcp", "action", "web"))
    if "kakeya gate" not in terminal:
        assert not OF_A_TERMINAL.search(for_agents.replace("Try again", ""))
    assert not re.search(
        r"--(?:prefix|suffix|ref|remote|key|expires|out)(?![^`]*` in a clone)| -p ", for_workflows
    )
    assert {*re.findall(r"the input ([\w-]+)", for_workflows)} <= INPUTS.keys()
    assert for_workflows.count("`kakeya ") == for_workflows.count("` in a clone of the repository")
    assert "Try again" not in on_pages
    assert not re.search(r"--(?:remote|key)\b(?! (?:FILE )?of `kakeya web`)", on_pages)


def test_a_plain_fix_names_nothing_that_a_door_lacks():
    fixes = [*plain_fixes()]
    assert len(fixes) > 50
    assert [fix for fix in fixes if OF_A_TERMINAL.search(GIT.sub("", fix))] == []


def test_an_error_keeps_the_parts_of_its_advice_and_bounds_their_texts():
    error = UsageError("it failed", fix=Advice("a\nb ", command("wait", "x\x1b" + "y" * 2000), "."))
    assert "\n" not in error.fix
    for door in Door:
        words = printed(error.fix, door) or ""
        assert "wait" in words
        assert "\x1b" not in words
        assert len(words) < 1200
    assert one_line("a\nb ") in (printed(error.fix, Door.MCP) or "")


def test_advice_can_be_changed_copied_and_written_as_json():
    fix = step("On the machine of mac", "status", "mac")
    renamed = changed(fix, lambda text: text.replace("mac", "(unreadable)"))
    assert printed(renamed, Door.MCP) == "On the (unreadable)hine of (unreadable): kakeya_status (unreadable)"
    assert changed("plain", str.upper) == "PLAIN"
    for one in (copy.copy(fix), copy.deepcopy(fix)):
        assert isinstance(one, Advice)
        assert one.at(Door.MCP) == fix.at(Door.MCP)
    assert json.loads(json.dumps({"fix": fix})) == {"fix": "On the machine of mac: kakeya status mac"}


def test_several_fixes_become_one():
    both = joined(["Run: git fetch.", advice.SEND_AGAIN])
    assert both == "Run: git fetch. Send it again: kakeya run."
    assert both.at(Door.ACTION) == "Run: git fetch. Run this workflow again."
    assert joined([]) == ""


def test_a_plain_fix_is_the_same_at_every_door():
    assert {printed("Run: git fetch", door) for door in Door} == {"Run: git fetch"}
    assert printed(None, Door.WEB) is None


def test_the_action_names_its_door(monkeypatch):
    monkeypatch.delenv("KAKEYA_DOOR", raising=False)
    assert environment.current_door() is Door.TERMINAL
    monkeypatch.setenv("KAKEYA_DOOR", "action")
    assert environment.current_door() is Door.ACTION


@pytest.mark.parametrize(
    ("door", "word"), [(Door.ACTION, "clone"), (Door.MCP, "kakeya_doctor"), (Door.WEB, "terminal")]
)
def test_no_class_of_errors_has_the_words_of_another_door(door, word):
    for kind in kinds(KakeyaError):
        error = KakeyaError.__new__(kind)
        KakeyaError.__init__(error, "it failed", fix=advice.TRY_AGAIN_OR_CHECK)
        assert word in (printed(error.fix, door) or "")


def kinds(base: type[KakeyaError]) -> Iterator[type[KakeyaError]]:
    yield base
    for derived in base.__subclasses__():
        yield from kinds(derived)
