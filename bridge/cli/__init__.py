"""The command `kakeya`."""

from __future__ import annotations

from typing import NoReturn

import click

from bridge.console import CONTEXT, LazyGroup, run_program

COMMANDS = {
    "demo": ("bridge.cli.demo", "Show the whole path on this machine: bus, runner, jobs, answer."),
    "doctor": ("bridge.cli.doctor", "Check what a request from here needs, and say what is missing."),
    "presets": ("bridge.cli.presets", "List the jobs that can be asked for, or show one."),
    "run": ("bridge.cli.run", "Ask for a job."),
    "status": ("bridge.cli.status", "Say where a request stands."),
    "wait": ("bridge.cli.wait", "Wait for an answer and end with its exit code."),
    "logs": ("bridge.cli.logs", "Print a job's log; -f follows it."),
    "fetch": ("bridge.cli.fetch", "Write an answer's files into a folder, once they are verified."),
    "verify": ("bridge.cli.verify", "Check an answer offline, from the branch alone."),
    "report": (
        "bridge.cli.report",
        "Show a run with its claims and evidence, or compare several.",
    ),
    "gate": ("bridge.cli.gate", "Judge reports that lie here, by the rules that a runner uses."),
    "cancel": ("bridge.cli.cancel", "Ask the runner to stop."),
    "list": ("bridge.cli.list", "List the requests on the remote."),
    "gc": ("bridge.cli.gc", "Forget old requests."),
    "completion": ("bridge.cli.completion", "Print the completion script for a shell."),
}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings=CONTEXT)
@click.option("-C", "repo", default=".", metavar="DIR", help="Work in the repository that holds DIR.")
@click.version_option(package_name="kakeya-bridge", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, repo: str) -> None:
    """Ask a machine you cannot reach to run a named, bounded job, with git as the only wire.

    Exit codes: 0 succeeded, 1 the job failed, 2 usage, 3 infrastructure (try again), 4 refused, 5 the evidence gate
    rejected it, 6 cancelled, 70 a bug, 124 the job timed out, 130 interrupted.
    """
    context.obj = {"repo": repo, "remote": "origin"}


def main() -> NoReturn:
    """Run the command line."""
    run_program(cli, "kakeya")
