"""Writes docs/cli.md from the programs themselves: `make docs`."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.cli import cli as kakeya
from bridge.common.errors import EXIT_MEANINGS
from engine.cli import cli as kakeya_engine
from runner.cli import cli as kakeya_runner

PROGRAMS = {"kakeya": kakeya, "kakeya-runner": kakeya_runner, "kakeya-engine": kakeya_engine}

STYLE = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "terminal_width": 100}

HEAD = """\
# Command line reference

Written by `make docs` from the programs' own help. Every command that reads has `--json`: data on standard output,
messages on standard error; several objects are printed one per line.

## Exit codes

`kakeya` and `kakeya-runner` share one table:

"""


def main() -> None:
    parts = [HEAD, "| code | meaning |\n|---|---|\n"]
    parts += [f"| {int(code)} | {text} |\n" for code, text in EXIT_MEANINGS.items()]
    for name, program in PROGRAMS.items():
        parts += describe(program, click.Context(program, info_name=name, **STYLE), level=2)
    Path(__file__).with_name("cli.md").write_text("".join(parts), encoding="utf-8")


def describe(command: click.Command, context: click.Context, level: int) -> list[str]:
    """Return a command's section and those of its subcommands, in the order in which help lists them."""
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    parts = [f"\n{'#' * level} {context.command_path}\n\n```text\n{text}\n```\n"]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            inner = click.Context(found, info_name=name, parent=context, **STYLE)
            parts += describe(found, inner, level=min(level + 1, 4))
    return parts


if __name__ == "__main__":
    main()
