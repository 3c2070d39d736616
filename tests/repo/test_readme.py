"""README.md shows commands that exist, and output that they print."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import click
import pytest

from bridge.cli import cli as kakeya
from bridge.presets import load_presets
from engine.cli import cli as kakeya_engine
from runner.cli import cli as kakeya_runner
from tests.repo import console

PROGRAMS = {"kakeya": kakeya, "kakeya-engine": kakeya_engine, "kakeya-runner": kakeya_runner}
SHOWN = console.commands(console.README)
NUMBER = re.compile(r"(?<![A-Za-z0-9])\d+(\.\d+)?")


def test_there_are_commands_of_each_program():
    assert {"make", "pip", "kakeya", "kakeya-runner"} <= {words[0] for words in SHOWN}


@pytest.mark.parametrize("words", [w for w in SHOWN if w[0] in PROGRAMS], ids=" ".join)
def test_a_command_parses(words):
    """As far as its program reads the words before it does anything."""
    command: click.Command = PROGRAMS[words[0]]
    rest = words[1:]
    context = command.make_context(words[0], list(rest), obj={"repo": ".", "remote": "origin"})
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, words
        context = found.make_context(name, rest, parent=context)
        command = found


@pytest.mark.parametrize("words", [w for w in SHOWN if w[:2] == ["kakeya", "run"]], ids=" ".join)
def test_a_request_fits_its_preset(words):
    given = dict(value.split("=", 1) for flag, value in pairwise(words) if flag == "-p")
    preset = load_presets()[words[2]]
    assert preset.check_params({name: int(value) for name, value in given.items()}) is not None


@pytest.mark.parametrize("words", [w for w in SHOWN if w[0] == "pip"], ids=" ".join)
def test_only_this_source_tree_or_its_wheels_are_installed(words):
    assert words[1] == "install"
    assert all(word.startswith((".", "dist/")) for word in words[2:])


def test_nothing_is_installed_by_our_name_from_an_index():
    """Nobody has registered it: a stranger could."""
    named = re.compile(r"""pip install[^\n`]*?["' ]kakeya[-_]bridge(-models)?(\[|["'`=<>~ ]|$)""")
    tops = ("bridge", "runner", "engine", "docs", "presets", "benchmarks", ".github")
    files = [
        path
        for top in tops
        for path in (console.ROOT / top).rglob("*")
        if path.suffix in {".py", ".md", ".yaml", ".yml", ".sh"}
    ]
    files += [*console.ROOT.glob("*.md"), console.ROOT / "Makefile"]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    assert named.search("Run pip install 'kakeya-bridge[cpu]'.")
    assert [str(path) for path, text in texts.items() if named.search(text)] == []


def shape(line: str) -> str:
    """Return what of a line is the same on each run: of a table's row its name, of the job's log its label."""
    if line.startswith("  | "):
        return line.split()[1] if line.split()[1:] else ""
    if line.startswith("│"):
        first, second = [cell.strip() for cell in line.strip("│").split("│")][:2]
        return " ".join([NUMBER.sub("#", first), *([second] if second[:1].isalpha() else [])]).strip()
    if line.startswith("gate: "):
        return "gate:"
    if line[:1] in ("┏", "┡", "└"):
        return line[0]  # a table is as wide as its figures
    if line.startswith("┃"):
        return " ".join(line.replace("┃", " ").split())
    line = re.sub(r"\b[0-9]{10}-[0-9a-f]{12}\b", "NONCE", line.rstrip())
    return NUMBER.sub("#", line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  succeeded: every step ended with 0 4.0 s", "  succeeded: every step ended with # # s"),
        ("  | chip           AMD EPYC", "chip"),
        ("┏━━━━━━━━━━┳━━━━━━┓", "┏"),
        ("┃          ┃  tau ┃", "tau"),
        ("│        4.25 │ E8 Voronoi      │ 4.74e-03 │", "# E8 Voronoi"),
        ("│ mlx-lm alone     │ 120 (117 to 121) │                     │", "mlx-lm alone"),
        ("  pushed mac-bridge/noop-1795311128-efd45232e449", "  pushed mac-bridge/noop-NONCE"),
    ],
)
def test_what_of_a_line_is_compared(line, expected):
    assert shape(line) == expected


@pytest.mark.bus
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(importlib.util.find_spec("mlx_lm") is None, reason="the engine is not installed")
def test_the_demonstration_prints_what_is_shown(tmp_path):
    """Each line of the block in order, up to numbers, what a machine is called, and lines left out as `...`.

    A machine with other work to do gets another verdict of its last job: what follows from it is then not compared.
    `DEMO_LOG` names a file with what `make demo` printed, if it ran already.
    """
    (shown,) = console.blocks(console.section("Try it"), "text")
    if log := os.environ.get("DEMO_LOG"):
        output = Path(log).read_text(encoding="utf-8")
    else:
        argv = [sys.executable, "-P", "-m", "bridge", "demo"]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        output = done.stdout

    printed = iter([shape(line) for line in output.splitlines()])
    held = "all answers are verified and accepted" in output
    passing = ("  requested ", "  claimed ", "  running ")  # states that a quick job may go through unseen
    verdict = ("all answers ", "everything ", "  succeeded", "adaptive drafts: ")
    missing = [
        line
        for line in shown.splitlines()
        if shape(line) and not set(line) <= set(" .│") and shape(line) != "..."
        if not line.startswith(passing if held else passing + verdict)
        if shape(line) not in printed
    ]
    assert missing == [], f"{missing}\n{output}"
