"""Prints text so that it cannot add lines or control the terminal, in any encoding; in colours only if wanted."""

import codecs
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from bridge.common import environment, sanitize

if TYPE_CHECKING:
    from rich.console import Console

    _Console = TypeVar("_Console", bound=Console)

_LEAST_WIDTH = 20
_ESCAPED = "kakeya-escaped"


class Colored(NamedTuple):
    """A part of a line that a terminal shows in its colour, if it has one."""

    text: str
    color: str


def put(*parts: str | Colored | Path, err: bool = False) -> None:
    """Print one line on standard output. The parts cannot add a second line or control the terminal."""
    shown = (
        click.style(one_line(part.text), fg=part.color or None)
        if isinstance(part, Colored) and not is_plain()
        else one_line(part.text if isinstance(part, Colored) else str(part))
        for part in parts
    )
    _echo("".join(shown), err=err)


def say(*parts: str | Colored | Path) -> None:
    """Print one message for people, on standard error. The parts cannot add a second line."""
    put(*parts, err=True)


def put_block(text: str, *, err: bool = False) -> None:
    """Print several lines, such as a job's log, with control characters replaced by visible escapes."""
    _echo(sanitize.strip_commands(sanitize.block(text)), nl=False, err=err)


def put_json(value: object) -> None:
    """Print one value as one line of JSON, at once."""
    _echo(sanitize.data(value))


def one_line(text: str) -> str:
    """Return text as it is printed: on one line that cannot control the terminal."""
    return sanitize.strip_commands(sanitize.line(text))


def is_read_by_people(*, err: bool = False) -> bool:
    """Return whether standard output, or standard error, is a terminal."""
    stream = sys.stderr if err else sys.stdout
    return stream is not None and stream.isatty()


def is_plain() -> bool:
    """Return whether the user wants no colours or other styles on any output (https://no-color.org)."""
    return environment.get("NO_COLOR") is not None or environment.get("TERM") == "dumb"


def rich_console(**options: Any) -> "Console":
    """Return a rich console."""
    from rich.console import Console  # noqa: PLC0415 - slow to import

    return fit(Console(**styles(), **options))


def styles() -> dict[str, Any]:
    """Return the options of a rich console that make it obey the user's environment."""
    return {"_environ": environment.for_terminal()} | ({"color_system": None} if is_plain() else {})


def fit(console: "_Console") -> "_Console":
    """Widen a console in which no table fits. The terminal then wraps the lines."""
    console.width = max(console.width, _LEAST_WIDTH)
    return console


def accept_any_text() -> None:
    r"""Write characters that the encoding lacks in the form ``\u00e9``, which JSON reads back as the same character."""
    codecs.register_error(_ESCAPED, _escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPED)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _echo(text: str, *, nl: bool = True, err: bool = False) -> None:
    # Name the encoding: click takes an ASCII stream for a wrong setting and would write UTF-8.
    click.echo(text, file=sys.stderr if err else sys.stdout, nl=nl)
