"""Prints text that cannot add lines of its own or control the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import click

from bridge.common import sanitize
from bridge.common.cli import terminal


class Colored(NamedTuple):
    """A part of a line that a terminal shows in a colour."""

    text: str
    color: str


def put(*parts: str | Colored | Path) -> None:
    """Print one line on standard output. The parts cannot add a second line or control the terminal."""
    _print(parts, err=False)


def say(*parts: str | Colored | Path) -> None:
    """Print one message for people, on standard error. The parts cannot add a second line."""
    _print(parts, err=True)


def is_read_by_people(*, err: bool = False) -> bool:
    """Return whether standard output, or standard error, is a terminal."""
    stream = sys.stderr if err else sys.stdout
    return stream is not None and stream.isatty()


def put_block(text: str, *, err: bool = False) -> None:
    """Print several lines, such as a job's log, with control characters replaced by visible escapes."""
    _echo(sanitize.printed(sanitize.block(text)), nl=False, err=err)


def put_json(value: object) -> None:
    """Print one value as one line of JSON, at once."""
    _echo(sanitize.data(value))


def _print(parts: tuple[str | Colored | Path, ...], *, err: bool) -> None:
    shown = (
        click.style(_one_line(part.text), fg=part.color)
        if isinstance(part, Colored) and not terminal.is_plain()
        else _one_line(part.text if isinstance(part, Colored) else str(part))
        for part in parts
    )
    _echo("".join(shown), err=err)


def _echo(text: str, *, nl: bool = True, err: bool = False) -> None:
    # The encoding is named, because click takes an ASCII stream for a wrong setting and writes UTF-8.
    click.echo(text, file=sys.stderr if err else sys.stdout, nl=nl)


def _one_line(text: str) -> str:
    return sanitize.printed(sanitize.line(text))
