"""Writes the manual pages of the three programs: `python release/man_pages.py FOLDER VERSION`.

Called when a wheel or a source distribution is built (release/hatch_build.py). Needs the base install and click-man.
"""

from __future__ import annotations

import copy
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the tree that is built, not what is installed

import click
from click_man.core import write_man_pages

from bridge.cli import cli as kakeya
from engine.cli import cli as kakeya_engine
from runner.cli import cli as kakeya_runner

PROGRAMS = {"kakeya": kakeya, "kakeya-runner": kakeya_runner, "kakeya-engine": kakeya_engine}


def main() -> None:
    """Run the command line."""
    folder, version = sys.argv[1:]
    for name, program in PROGRAMS.items():
        line = (program.help or "").partition("\n")[0]
        # A page without a date: the same tree gives the same pages on each day.
        write_man_pages(name, loaded(program, line), version=version, target_dir=folder, date=" ")


def loaded(command: click.Command, line: str) -> click.Command:
    """Return a copy for click-man, which sees only loaded commands and writes texts as they are.

    Args:
        command: of a program, or a program.
        line: what it does, for the page's title.
    """
    parts = {
        "params": [described(parameter) for parameter in command.params],
        "hidden": command.hidden,
        "help": roff(command.help or line),
        "short_help": roff(line.rstrip(".")),
    }
    if not isinstance(command, click.Group):
        return click.Command(command.name, **parts)
    context = click.Context(command)
    inner = {name: command.get_command(context, name) for name in command.list_commands(context)}
    lines = {name: first_sentence(each) for name, each in inner.items()} | getattr(command, "table", {})
    commands = {name: loaded(each, lines[name]) for name, each in inner.items()}
    return click.Group(command.name, commands, **parts)


def first_sentence(command: click.Command) -> str:
    """Return the first sentence of a command's help."""
    return re.split(r"(?<=\.)\s", command.help or "")[0]


def described(parameter: click.Parameter) -> click.Parameter:
    """Return a copy of a parameter whose text is safe in a page. A range stands behind it, as in docs/cli.md."""
    parameter = copy.copy(parameter)
    if isinstance(parameter.type, click.IntRange | click.FloatRange):
        parameter.metavar = parameter.metavar or "N"
    if isinstance(parameter, click.Option):
        parameter.help = roff(parameter.help or "")
    return parameter


def roff(text: str) -> str:
    """Return a text in roff: a dash can be copied, code is bold, and no line is taken for a request."""
    text = text.replace("\b\n", "").replace("\\", r"\e").replace("-", r"\-")
    text = re.sub(r"`([^`]*)`", r"\\fB\1\\fP", text)
    return re.sub(r"(?m)^(?=\s*[.'])", r"\\&", text)


if __name__ == "__main__":
    main()
