"""The command ``kakeya``."""

from bridge.common.cli.startup import QuietInterrupt

with QuietInterrupt():
    import atexit
    from gc import freeze
    from typing import NoReturn

    import click

    from bridge.common import environment
    from bridge.common.cli.commands import CONTEXT, REFERENCE, LazyGroup, option
    from bridge.common.cli.program import run_program
    from bridge.common.version import built_from, version_option
    from bridge.system import signals

COMMANDS = {
    "demo": "Run a demonstration on this machine: bus, runner, jobs, answers.",
    "doctor": "Check whether this clone can send requests, and say how to fix what it lacks.",
    "init": "Write a first preset of your own into this repository.",
    "presets": "List the available jobs, or show one.",
    "run": "Request a job.",
    "manifest": "Print the manifest of a job, for a runner without a git bus.",
    "status": "Show the state of a request.",
    "wait": "Wait for an answer, verify it, and exit with its exit code.",
    "logs": "Print a job's log; -f follows it.",
    "fetch": "Verify an answer and write its files into a folder.",
    "verify": "Verify an answer.",
    "report": "Show a run's results and evidence, or compare several runs.",
    "gate": "Judge local reports with the checks that a runner uses.",
    "measure": "Run a preset on this machine; write its reports with their signed runs.",
    "cancel": "Cancel a request.",
    "list": "List the requests on the remote.",
    "gc": "Remove records of old requests, here or on the remote.",
    "mcp": "Serve the bridge to an agent as MCP tools.",
    "web": "Show the bus as pages in a browser.",
    "completion": "Print the completion script for a shell.",
}
MODULES = {
    "request": ("status", "wait", "logs", "cancel", "fetch", "verify"),
    "run": ("run", "manifest"),
    "remote": ("list", "gc"),
    "serving": ("mcp", "web"),
}


@click.group(cls=LazyGroup, package=__name__, table=COMMANDS, modules=MODULES, context_settings=CONTEXT)
@option(
    "-C repo", REFERENCE, ".", show_default=False, metavar="DIR",
    help="Work in the git repository that contains DIR.",
)  # fmt: skip
@version_option("kakeya", built_from)
@click.pass_context
def cli(context: click.Context, repo: str) -> None:
    """Run named jobs, with limits, on a machine that you can reach only through a git repository.

    Exit codes: 0 succeeded, 1 the job failed, 2 usage error, 3 infrastructure problem (retry later), 4 refused,
    5 rejected by the evidence gate, 6 cancelled, 70 bug, 124 the job timed out, 130 interrupted.
    """
    context.obj = {"repo": repo}


def main() -> NoReturn:
    """Run the command line."""
    with QuietInterrupt():
        # At exit, Python would search everything imported for garbage, which takes longer than most commands.
        atexit.register(freeze)
        environment.without_plugins()
        signals.end_on_signals()
    run_program(cli, "kakeya")
