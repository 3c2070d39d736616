"""What the command lines of the client and the runner share: one way to fail, one way to print."""

from __future__ import annotations

import errno
import re
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import update_wrapper
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn

import click

from bridge.common import doors, sanitize, terminal
from bridge.common.lazy import LazyGroup
from bridge.errors import ExitCode, InfrastructureError, KakeyaError, UsageError, as_told

# What a full disk, a quota, a limit on a file's size and a closed or broken terminal answer to printing.
_CANNOT_PRINT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class CommandGroup(LazyGroup):
    """A lazy group that suggests a command for a name that it does not know."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; say which one may have been meant where there is none."""
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


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json``: data on standard output, messages on standard error."""
    option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
    return update_wrapper(option(function), function)


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


def is_read_by_people() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


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
    # Named, because click writes UTF-8 where it takes a stream in ASCII for a wrong setting.
    click.echo(text, file=sys.stderr if err else sys.stdout, nl=nl)


def _one_line(text: str) -> str:
    return sanitize.printed(sanitize.line(text))


def run_program(cli: click.Command, name: str) -> NoReturn:
    """Run a command line to its exit code: the one place where exceptions become messages."""
    as_json = "--json" in sys.argv[1:]
    terminal.accept_any_text()
    try:
        code = cli.main(prog_name=name, standalone_mode=False)
        if sys.stdout is not None:
            # Fail here, with a message, if the output cannot be written, and not while Python ends.
            sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else ExitCode.SUCCEEDED)
    except KakeyaError as error:
        _tell(error, as_json=as_json)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        put_block(f"{error.format_message()}\n", err=True)
        sys.exit(ExitCode.USAGE)
    except click.ClickException as error:
        where = (
            f"`{error.ctx.command_path} --help` shows how it is used."
            if isinstance(error, click.UsageError) and error.ctx
            else None
        )
        # Click breaks long lists of choices into lines.
        message = " ".join(error.format_message().split())
        _tell(UsageError(message, fix=where), as_json=as_json)
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader closed the pipe; a second error while closing standard output would only be noise.
        sys.stdout = None
        sys.exit(ExitCode.SUCCEEDED)
    except OSError as error:
        _fail_for_the_system(error, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - a bug of ours must look like one
        _fail_as_a_bug(error, as_json=as_json)
    finally:
        _give_up_what_cannot_be_written()


def _give_up_what_cannot_be_written() -> None:
    """Drop output that a full disk refused. Otherwise Python retries at its end and changes the exit code."""
    for name in ("stdout", "stderr"):
        try:
            stream = getattr(sys, name)
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            setattr(sys, name, None)


def _fail_for_the_system(error: OSError, *, as_json: bool) -> NoReturn:
    """Report an error of the operating system: a file could not be read or written, or output not printed."""
    if error.errno is None or (error.filename is None and error.errno not in _CANNOT_PRINT):
        _fail_as_a_bug(error, as_json=as_json)
    fault = as_told(error)
    if error.filename is None:
        # Drop the buffered output: nothing more can be printed there.
        sys.stdout = None
        message = f"cannot write to standard output: {error.strerror or error}"
        fault = InfrastructureError(
            message, fix="Free some space, or write the output elsewhere.", code="system"
        )
    _tell(fault, as_json=as_json and sys.stdout is not None)


def _fail_as_a_bug(error: Exception, *, as_json: bool) -> NoReturn:
    for line in traceback.format_exc().splitlines():
        say(line)
    _tell(as_told(error), as_json=as_json)


def _tell(error: KakeyaError, *, as_json: bool) -> NoReturn:
    say(f"error: {error.message}")
    error.fix = doors.for_reader(error.fix, error.code)
    if error.fix:
        say(f"  {error.fix}")
    if as_json:
        put_json(error.as_dict())
    sys.exit(int(error.exit_code))
