"""Tables and coloured lines: a cell is text on one line, whatever stands in it."""

from __future__ import annotations

import pytest
from rich.panel import Panel
from rich.text import Text

from bridge.common.cli.screen import Grid, console

HOSTILE = "a\nb\x1b[2J\u202e[bold]c[/] :smile: [/x]"
SHOWN = r"a\nb\x1b[2J\u202e[bold]c[/] :smile: [/x]"


def shown(capsys, what) -> str:
    screen = console()
    screen.width = 200
    screen.print(what)
    return capsys.readouterr().out


@pytest.mark.parametrize("cell", [HOSTILE, Text(HOSTILE)], ids=["text", "styled text"])
def test_a_cell_is_one_line_of_text(capsys, cell):
    grid = Grid()
    grid.add_row("name", cell)

    assert shown(capsys, grid).rstrip() == f"name  {SHOWN}"


def test_what_was_forgotten_steers_nothing_all_the_same(capsys):
    printed = shown(capsys, Panel(Text("x\x1b]52;c;eA==\x07\u2028\x9b")))

    assert printed.replace("\n", "").isprintable()
    assert r"x\x1b]52;c;eA==" in printed


def test_text_is_no_markup(capsys):
    assert shown(capsys, "[red]x[/] :smile: [/nothing]") == "[red]x[/] :smile: [/nothing]\n"


def test_a_heading_makes_a_header(capsys):
    grid = Grid("state", "branch")
    grid.add_row("running", None)

    assert shown(capsys, grid).split() == ["state", "branch", "running"]
