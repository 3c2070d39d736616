"""Writes docs/cli.md from the programs themselves: `make docs`."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Collection, Iterator
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

Written by `make docs` from the programs' own help (`-h` or `--help`); `--version` shows a program's version and commit.
Shared options are described once, under their program, and named in each command. Square brackets at the end hold an
option's default and its range. Of the commands of `kakeya-engine`, the page has the purpose and the names of the
options; `--help` and manual pages (`man kakeya-engine-serve`) have the rest.
REQUEST and RUN are a branch, a nonce or a part of either, or a sweep's group; by default what was sent last from this
repository. With `--json`, data is on standard output and messages are on standard error; several objects are printed
one per line.

## Exit codes

A program ends with 141 if the reader of its output closes the pipe (`| head`), like one that SIGPIPE ends.

An error's JSON has `safe_to_retry`: whether to repeat the same call. It is
true for code 3, unless a second request would be sent.

| code | meaning |
|---|---|
"""
# What the head of the page says, so that no command repeats it.
REPEATED = re.compile(
    r"\n\n\s*Exit codes: [^.]*\.\s*$"
    r"|(REQUEST|RUN) is a branch, a nonce or a part of either, or a sweep's group; by default what was sent last"
    r"\s+from\s+this\s+repository\.\s*"
)


# The program whose commands have many options, which matter only to somebody who runs them and so has their help.
NAMED_ONLY = "kakeya-engine"


def main() -> None:
    parts = [HEAD]
    parts += [f"| {int(code)} | {text} |\n" for code, text in EXIT_MEANINGS.items()]
    for name, program in PROGRAMS.items():
        parts += describe_program(program, click.Context(program, info_name=name, **STYLE))
    Path(__file__).with_name("cli.md").write_text("".join(parts), encoding="utf-8")


def describe_program(program: click.Group, context: click.Context) -> Iterator[str]:
    """Yield the sections of a program: its help, the options that several commands share, and each command."""
    commands = list(leaves(program, context))
    counts = Counter(
        (long_name(option), record)
        for command, inner in commands
        for option, record in options(command, inner)
    )
    # Of options with the same name and different texts, the most frequent is shared.
    shared = {name: record for (name, record), count in reversed(counts.most_common()) if count > 1}
    yield section(text_of(program, context, ()), level=2)
    if context.info_name == NAMED_ONLY:
        for command, inner in commands:
            yield section(purpose_of(command, inner), level=3)
        return
    formatter = context.make_formatter()
    with formatter.section("Shared options"):
        formatter.write_dl([record for _, record in counts if record in shared.values()])
    yield f"\n```text\n{plain(formatter.getvalue())}\n```\n"
    for command, inner in commands:
        yield section(text_of(command, inner, shared.values()), level=3)


def leaves(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield the commands that do something, of a group and of its groups, in the order in which help lists them."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        for option in command.params:
            if isinstance(option.type, click.IntRange | click.FloatRange) and not option.metavar:
                option.metavar = "N"
        inner = click.Context(command, info_name=name, parent=context, **STYLE)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield command, inner
        if isinstance(command, click.Group):
            yield from leaves(command, inner)


def options(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Parameter, tuple[str, str]]]:
    """Yield the options that a command's help lists, each with its name and text there."""
    for option in command.get_params(context):
        record = option.get_help_record(context)
        if isinstance(option, click.Option) and record and not {"--help", "--version"} & {*option.opts}:
            names, text = record
            yield option, (names, text.replace("[default: ", "["))


def long_name(option: click.Parameter) -> str:
    return max(option.opts, key=len)


def text_of(command: click.Command, context: click.Context, shared: Collection[tuple[str, str]]) -> str:
    """Return the help of a command, with only the names of the shared options."""
    records = list(options(command, context))
    formatter = introduced(command, context, command.help or "")
    if own := [record for _, record in records if record not in shared]:
        with formatter.section("Options"):
            formatter.write_dl(own)
    named(formatter, "Shared", [option for option, record in records if record in shared])
    return plain(formatter.getvalue())


def purpose_of(command: click.Command, context: click.Context) -> str:
    """Return the first paragraph of a command's help, and the names of its options."""
    formatter = introduced(command, context, (command.help or "").strip().split("\n\n")[0])
    named(formatter, "Options", [option for option, _ in options(command, context)])
    return plain(formatter.getvalue())


def introduced(command: click.Command, context: click.Context, text: str) -> click.HelpFormatter:
    """Return a formatter with a command's usage and the text of its help."""
    described = copy.copy(command)
    described.help = REPEATED.sub("", text).strip()
    formatter = context.make_formatter()
    described.format_usage(context, formatter)
    described.format_help_text(context, formatter)
    return formatter


def named(formatter: click.HelpFormatter, title: str, listed: list[click.Parameter]) -> None:
    """Write the names of options, if there are any, as a paragraph."""
    if listed:
        formatter.write_paragraph()
        formatter.write_text(f"{title}: {', '.join(map(long_name, listed))}.")


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def section(text: str, level: int) -> str:
    """Return a section, whose title is the command's usage."""
    usage, _, rest = text.partition("\n\n")
    title = " ".join(usage.removeprefix("Usage: ").replace(" [OPTIONS]", "").split())
    return f"\n{'#' * level} {title}\n\n```text\n{rest}\n```\n"


if __name__ == "__main__":
    main()
