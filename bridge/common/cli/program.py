"""Runs a program to its exit code."""

import errno
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import click

from bridge.common import environment
from bridge.common.advice import printed
from bridge.common.cli.commands import PipeClosedError
from bridge.common.cli.output import accept_any_text, put_block, put_json, say
from bridge.common.errors import ExitCode, InfrastructureError, KakeyaError, UsageError, as_kakeya_error

# Errors of printing: a full disk, a quota, a limit on a file's size, a closed or broken terminal.
_CANNOT_PRINT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)

# What a shell reports for a program that SIGPIPE ended: neither success nor a failed job.
_PIPE_CLOSED = 141


def run_program(cli: click.Command, name: str, argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and return its exit code: the only code that turns exceptions into messages.

    Args:
        cli: the command.
        name: the program's name in messages.
        argv: its arguments. None takes this process's.
    """
    as_json = "--json" in (sys.argv[1:] if argv is None else argv)
    try:
        accept_any_text()
        code = cli.main(args=argv, prog_name=name, standalone_mode=False)
        if sys.stdout is not None:
            # Fail here, with a message, if the output cannot be written, and not while Python ends.
            sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else ExitCode.SUCCEEDED)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        put_block(f"{error.format_message()}\n", err=True)
        sys.exit(ExitCode.USAGE)
    except click.ClickException as error:
        _tell(_as_usage_error(error), as_json=as_json)
    except (click.Abort, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, EOFError):
            # Click takes the end of any file for the end of standard input.
            _fail(error.__cause__, as_json=as_json)
        # Click's own exception has the one that the signal raised as its cause.
        for note in getattr(error.__cause__ or error, "__notes__", ()):
            say(note)
        say("interrupted")
        sys.exit(ExitCode.INTERRUPTED)
    except (BrokenPipeError, PipeClosedError):
        # The reader closed the pipe; a second error while closing standard output would only be noise.
        sys.stdout = None
        sys.exit(_PIPE_CLOSED)
    except Exception as error:  # noqa: BLE001 - a bug of ours must look like one
        _fail(error, as_json=as_json)
    finally:
        _give_up_what_cannot_be_written()


def _as_usage_error(error: click.ClickException) -> UsageError:
    context = error.ctx if isinstance(error, click.UsageError) else None
    fix = f"`{context.command_path} --help` shows how it is used." if context else None
    # Click breaks long lists of choices into lines.
    return UsageError(" ".join(error.format_message().split()), fix=fix)


def _give_up_what_cannot_be_written() -> None:
    """Drop output that a full disk refused. Otherwise Python retries at its end and changes the exit code."""
    for name in ("stdout", "stderr"):
        try:
            stream = getattr(sys, name)
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            setattr(sys, name, None)


def _fail(error: Exception, *, as_json: bool) -> NoReturn:
    """Report any exception: a failure, an error of the operating system, or a bug with its traceback."""
    if isinstance(error, OSError) and error.filename is None and error.errno in _CANNOT_PRINT:
        message = f"cannot write the output: {error.strerror or error}"
        fix = "Free some space, or write the output elsewhere."
        error = InfrastructureError(message, fix=fix, code="system")
    fault = as_kakeya_error(error)
    if fault.exit_code is ExitCode.BUG:
        for line in traceback.format_exception(error):
            put_block(line, err=True)
    _tell(fault, as_json=as_json)


def _tell(error: KakeyaError, *, as_json: bool) -> NoReturn:
    say_error(error, as_json=as_json)
    sys.exit(int(error.exit_code))


def say_error(error: KakeyaError, *, as_json: bool) -> None:
    """Print an error and what to do about it; with ``as_json``, also as JSON on standard output."""
    say(f"error: {error.message}")
    error.fix = printed(error.fix, environment.current_door())
    if error.fix:
        say(f"  {error.fix}")
    if as_json:
        with suppress(OSError):  # this output may be what cannot be written
            put_json(error.as_dict())
