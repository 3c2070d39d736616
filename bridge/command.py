"""What the command lines share: lazily loaded subcommands, one way to fail, one way to print."""

from __future__ import annotations

import importlib
import json
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import update_wrapper
from typing import Any, ClassVar, NoReturn

import click

from bridge.errors import ExitCode, KakeyaError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class LazyGroup(click.Group):
    """A group whose subcommands are imported when they are called.

    `table` gives each one's module and the line that the group's help shows, so that help imports nothing.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = dict(table)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the subcommands in the order of the table."""
        del ctx
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a subcommand. Its function is called `command`."""
        del ctx
        if cmd_name not in self.table:
            return None
        found: click.Command = importlib.import_module(self.table[cmd_name][0]).command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands from the table."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])

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
        found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)", str(value))
        if not found:
            self.fail(f"{value!r} is not a time span: write 90s, 15m, 2h or 7d", param, ctx)
        return timedelta(seconds=float(found[1]) * self._units[found[2]])


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json`: data on standard output, messages on standard error."""
    option = click.option("--json", "as_json", is_flag=True, help="Print data for programs, as JSON.")
    return update_wrapper(option(function), function)


def say(text: str) -> None:
    """Print a message for people, on standard error."""
    click.echo(text, err=True)


def put_json(value: object) -> None:
    """Print one value as one line of JSON, at once."""
    click.echo(json.dumps(value, ensure_ascii=False, default=str))
    sys.stdout.flush()


def run_program(cli: click.Command, name: str) -> NoReturn:
    """Run a command line to its exit code: the one place where exceptions become messages."""
    as_json = "--json" in sys.argv[1:]
    try:
        code = cli.main(prog_name=name, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else ExitCode.SUCCEEDED)
    except KakeyaError as error:
        _fail(error.message, error.fix, error.exit_code, as_json=as_json, code=error.code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        where = (
            f"`{error.ctx.command_path} --help` shows how it is used."
            if isinstance(error, click.UsageError) and error.ctx
            else None
        )
        _fail(error.format_message(), where, ExitCode.USAGE, as_json=as_json, code="usage")
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # Whoever read the output has had enough; a second failure while closing it would only be noise.
        sys.stdout = None
        sys.exit(ExitCode.SUCCEEDED)
    except Exception as error:  # noqa: BLE001 - a bug of ours must look like one
        traceback.print_exc()
        _fail(
            f"this is a bug: {type(error).__name__}: {error}",
            "Please report it with the lines above.",
            ExitCode.BUG,
            as_json=as_json,
            code="bug",
        )


def _fail(message: str, fix: str | None, exit_code: int, *, as_json: bool, code: str) -> NoReturn:
    say(f"error: {message}")
    if fix:
        say(f"  {fix}")
    if as_json:
        put_json({"error": message, "code": code, "fix": fix, "exit_code": int(exit_code)})
    sys.exit(int(exit_code))
