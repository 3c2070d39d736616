"""The ``--help`` text of every command of the three programs, in a terminal of 80 columns."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from bridge.cli import cli as kakeya
from engine.cli import cli as kakeya_engine
from runner.cli import cli as kakeya_runner

PROGRAMS = {"kakeya": kakeya, "kakeya-runner": kakeya_runner, "kakeya-engine": kakeya_engine}

ROOT = Path(__file__).parents[2]
# Of a terminal's 80 columns, click leaves two empty.
_COLUMNS = 78


def texts() -> dict[str, str]:
    """Return the help of each program with all its subcommands.

    It comes from a fresh process: a command that a test has called on its own keeps that call's help option.
    """
    done = subprocess.run(
        [sys.executable, "-m", __name__], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    pages: dict[str, str] = json.loads(done.stdout)
    return pages


def _main() -> None:
    pages = {f"help-{name}.txt": "\n".join(_pages(program, name)) for name, program in PROGRAMS.items()}
    print(json.dumps(pages))


def _pages(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent, **_settings(command))
    yield f"$ {context.command_path} --help\n{command.get_help(context)}\n"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            subcommand = command.get_command(context, each)
            assert subcommand is not None, each
            yield from _pages(subcommand, each, context)


def _settings(command: click.Command) -> dict[str, Any]:
    """Return the context settings of a command as ``click`` applies them, with a fixed width."""
    return {**command.context_settings, "terminal_width": _COLUMNS, "max_content_width": _COLUMNS}


if __name__ == "__main__":
    _main()
