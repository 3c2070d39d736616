"""Shared by the subcommands: messages with a time, and a clean stop on signals."""

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click

from bridge.common.cli.commands import FILE, option
from bridge.common.cli.output import say
from bridge.common.cli.program import say_error
from bridge.common.process import ENDING_SIGNALS
from bridge.errors import KakeyaError, as_kakeya_error
from bridge.system.signals import StopRequest
from runner.doctor.presets import refused_by
from runner.policy import Policy, default_path

# How long a command waits until the runner confirms an order: longer than the default pause between polls.
ACK_S = 20.0


def tell(message: str) -> None:
    """Print a message as one line with date and time, cleaned of everything that could control a terminal or CI system.

    If the log file's disk is full, lines are lost, but the runner goes on.
    """
    with suppress(OSError):
        say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}")


def say_refused(policy: Policy) -> None:
    """Print which installed presets the policy refuses, and why."""
    if lines := refused_by(policy):
        say("the policy refuses these presets and allows all others:")
    for line in lines:
        say(f"  {line}")


forward_option = option(
    "--forward", multiple=True, metavar="PATTERN",
    help="Forward requests from branches such as claude/*, whose agents may push to no other one; repeatable.",
)  # fmt: skip


def say_forwarded(policy: Policy) -> None:
    """Print from which branches requests are forwarded."""
    if policy.bus.forward:
        say(
            f"requests are forwarded from {', '.join(policy.bus.forward)}, for agents that may push nowhere else"
        )
        return
    say("requests on agents' own branches are not forwarded: for agents that may push to one branch only,")
    say("      name it under bus.forward in the policy, such as claude/*")


def policies_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument for the policies of a service that serves several buses."""
    return click.argument("others", nargs=-1, type=FILE, metavar="[POLICY]...")(function)


def policies_of(policy: Path | None, others: Sequence[Path]) -> list[Path]:
    """Return the files of the named policies, each once; by default the one of this host."""
    files = [*([policy] if policy else []), *others] or [default_path()]
    return list(dict.fromkeys(file.absolute() for file in files))


def for_each_policy(
    policy: Path | None,
    others: Sequence[Path],
    work: Callable[[Path | None], int | None],
    *,
    as_json: bool = False,
) -> int:
    """Do the work for each named policy, and return the first exit code that is not 0.

    If it fails for one of several, its error is printed, and the work is done for the others too.
    """
    files: list[Path | None] = [*policies_of(policy, others)] if others else [policy]
    codes = []
    for file in files:
        try:
            codes.append(work(file) or 0)
        except (KakeyaError, OSError) as error:
            if len(files) == 1:
                raise
            failure = as_kakeya_error(error)
            if str(file) not in failure.message:
                failure.message = f"{file}: {failure.message}"
            say_error(failure, as_json=as_json)
            codes.append(int(failure.exit_code))
    return next((code for code in codes if code), 0)


def stop_on_signals(stop: StopRequest) -> None:
    """Let every ending signal request a clean stop. A second one ends the process at once."""

    def ask(signum: int, frame: FrameType | None) -> None:
        del frame
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        with suppress(RuntimeError):  # the signal came while a line was written
            tell(f"{signal.Signals(signum).name}: stopping")

    for signum in ENDING_SIGNALS:
        # Under `nohup`, SIGHUP is ignored, so a closed terminal ends nothing.
        if signum != signal.SIGHUP or signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, ask)
