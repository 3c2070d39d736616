"""A group whose commands are imported when they are called, and options that several commands have."""

import importlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import click

from bridge.common.cli.startup import QuietInterrupt
from bridge.common.errors import UsageError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

PATH = click.Path(path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
EXISTING_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


class PipeClosedError(Exception):
    """The reader of the output closed its pipe. Click would end a ``BrokenPipeError`` with exit code 1 itself."""


@contextmanager
def noticing_closed_pipes() -> Iterator[None]:
    """Replace a ``BrokenPipeError`` by ``PipeClosedError``."""
    try:
        yield
    except BrokenPipeError as error:
        raise PipeClosedError from error


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class LazyGroup(click.Group):
    """A group with a table of its commands and their help lines, so that showing its help imports no command.

    Args:
        args: of ``click.Group``.
        package: that contains the commands. ``a-b`` is ``command`` in the module ``a_b``.
        table: the commands and their help lines.
        modules: the module of commands that share one. There ``a-b`` is ``a_b_command``.
        kwargs: of ``click.Group``.
    """

    def __init__(
        self,
        *args: Any,
        package: str,
        table: Mapping[str, str],
        modules: Mapping[str, Collection[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.package = package
        self.table = table
        self.modules = {name: module for module, names in (modules or {}).items() for name in names}

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Return the context of a call. This may print the help."""
        with noticing_closed_pipes():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command."""
        with noticing_closed_pipes():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        del ctx
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if the name is unknown."""
        del ctx
        if cmd_name not in self.table:
            return None
        name = cmd_name.replace("-", "_")
        with QuietInterrupt():
            module = importlib.import_module(f"{self.package}.{self.modules.get(cmd_name, name)}")
        command: click.Command = getattr(module, f"{name}_command" if cmd_name in self.modules else "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(self.table.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; if there is none, suggest a similar name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib  # noqa: PLC0415 - only for this message

            near = difflib.get_close_matches(args[0], self.table, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"there is no command {args[0]!r}.{hint}", ctx) from error


class Duration(click.ParamType[timedelta]):
    """A time span such as 90s, 15m, 2h or 7d; a plain number is seconds."""

    name = "duration"
    _units: ClassVar = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read the time span."""
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)", str(value))
        if not match:
            self.fail(f"{value!r} is not a time span: write 90s, 15m, 2h or 7d", param, ctx)
        return timedelta(seconds=float(match[1]) * self._units[match[2]])


class Number(click.FloatRange):
    """A number in a range. ``nan`` and ``inf`` are no numbers, though click lets them pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number


class Percentage(click.ParamType[float]):
    """A share such as 5% or 2.5%, read as 0.05 or 0.025."""

    name = "percent"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the share."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"([0-9]{1,4}(?:\.[0-9]{1,6})?)%", str(value), re.ASCII)
        if not match:
            self.fail(f"{value!r} is not a percentage: write 5% or 2.5%", param, ctx)
        return float(match[1]) / 100


class Text(click.ParamType[str]):
    """A text. An argument whose bytes are not UTF-8 is refused, because its meaning is unknown."""

    name = "text"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        text = str(value)
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            self.fail("is not text in UTF-8", param, ctx)
        return text


TEXT = Text()
REFERENCE = click.STRING  # the name of a thing that may be a file, whose bytes need not be text


def option(names: str, kind: Any = TEXT, default: Any = None, **settings: Any) -> Decorator:
    """Return an option whose help shows its default.

    Args:
        names: separated by spaces: ``--seed``, ``-n --limit``, ``--json as_json``.
        kind: click's type, or ``str`` for a text.
        default: None for an option that need not be there.
        settings: of ``click.option``.
    """
    if default is not None:
        settings = {"default": default, "show_default": True, **settings}
    kind = None if settings.get("is_flag") else TEXT if kind is str else kind
    return click.option(*names.split(), type=kind, **settings)


def flag(names: str, about: str) -> Decorator:
    """Return an option that takes no value."""
    return click.option(*names.split(), is_flag=True, help=about)


def split_settings(texts: Iterable[str]) -> dict[str, str]:
    """Split the ``NAME=VALUE`` texts of an option ``--env``. One without ``=`` is a UsageError."""
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--env {text}: write it as --env NAME=VALUE")
        settings[name] = value
    return settings


def options(*parts: Decorator) -> Decorator:
    """Return several options as one decorator."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for part in reversed(parts):
            command = part(command)
        return command

    return add


# Data on standard output, messages on standard error.
json_option = flag("--json as_json", "Print JSON for programs.")
