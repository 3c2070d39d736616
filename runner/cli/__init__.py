"""The command `kakeya-runner`."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import click

from bridge.console import CONTEXT, LazyGroup, run_program

COMMANDS = {
    "setup": ("runner.cli.setup", "From nothing to serving: policy, key, check, service."),
    "init": ("runner.cli.init", "Write a policy to start from."),
    "keygen": ("runner.cli.keygen", "Make the key with which answers are signed."),
    "pin": ("runner.cli.pin", "Write the interpreter that runs jobs into the policy."),
    "check": ("runner.cli.check", "Check this host: policy, bus, interpreter, presets."),
    "status": ("runner.cli.status", "Say what the runner does: its job, its queue, its last answers."),
    "approve": ("runner.cli.approve", "Let the code of one request run on this host."),
    "serve": ("runner.cli.serve", "Take requests from the bus until stopped."),
    "once": ("runner.cli.once", "Handle one request branch and end with its exit code."),
    "install": ("runner.cli.install", "Let this machine start the runner by itself."),
    "watchdog": ("runner.cli.watchdog", "Look whether the runner hangs, and end it then."),
    "gc": ("runner.cli.gc", "Archive answered requests and delete them from the bus."),
    "hook": ("runner.cli.hook", "Let GitHub start a job here, or refuse it."),
}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings=CONTEXT)
@click.option(
    "--policy", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="What this host allows.  [default: KAKEYA_RUNNER_POLICY, else ~/.config/kakeya/runner.yaml]",
)  # fmt: skip
@click.version_option(package_name="kakeya-bridge", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, policy: Path | None) -> None:
    """Run jobs that others ask for over git, by this host's own rules.

    Exit codes: 0 succeeded, 1 the job failed, 2 usage, 3 infrastructure (try again), 4 refused, 5 the evidence gate
    rejected it, 6 cancelled, 70 a bug, 124 the job timed out, 130 interrupted.
    """
    context.obj = policy


def main() -> NoReturn:
    """Run the command line."""
    run_program(cli, "kakeya-runner")
