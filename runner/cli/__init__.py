"""The command ``kakeya-runner``."""

from bridge.common.cli.startup import QuietInterrupt

with QuietInterrupt():
    from pathlib import Path
    from typing import NoReturn

    import click

    from bridge.common.cli.commands import CONTEXT, FILE, LazyGroup, option
    from bridge.common.cli.program import run_program
    from bridge.common.version import built_from, version_option
    from bridge.system import signals

COMMANDS = {
    "setup": "Set up a runner: policy, key, checks, service.",
    "init": "Write a first policy file.",
    "keygen": "Create the key that signs answers.",
    "pin": "Pin the interpreter that runs jobs in the policy.",
    "try": "Run a preset of your own as a job would run, before anybody asks for it.",
    "check": "Check this host: policy, bus, interpreter, presets.",
    "status": "Show what the runner is doing: its job, its queue, its last answers.",
    "approve": "Allow the code of one request to run on this host.",
    "serve": "Serve requests from the bus until stopped.",
    "drain": "Let the running runner finish its job and end.",
    "maintenance": "Let the running runner take no requests for a while.",
    "once": "Handle one request and exit with its exit code.",
    "serve-ssh": "Answer the one manifest that an SSH client sends.",
    "install": "Install the runner as a service of this machine.",
    "uninstall": "Remove the service, and say what remains.",
    "watchdog": "Check once whether the runner hangs, and if so kill it.",
    "gc": "Archive answered requests and delete them from the bus.",
    "hook": "Allow or refuse a job that GitHub is about to start here.",
}
MODULES = {
    "first": ("init", "pin", "keygen"),
    "orders": ("drain", "maintenance"),
    "trying": ("try",),
    "started": ("watchdog", "hook"),
    "looking": ("check", "status"),
    "serving": ("serve", "once", "serve-ssh"),
}


@click.group(cls=LazyGroup, package=__name__, table=COMMANDS, modules=MODULES, context_settings=CONTEXT)
@option(
    "--policy", FILE, metavar="FILE",
    help="Policy file of this host.  [default: KAKEYA_RUNNER_POLICY, else ~/.config/kakeya/runner.yaml]",
)  # fmt: skip
@version_option("kakeya-runner", built_from)
@click.pass_context
def cli(context: click.Context, policy: Path | None) -> None:
    """Run jobs that others request through a git repository, under this host's own rules.

    Exit codes: 0 succeeded, 1 the job failed, 2 usage error, 3 infrastructure problem (retry later), 4 refused,
    5 rejected by the evidence gate, 6 cancelled, 70 bug, 124 the job timed out, 130 interrupted.
    """
    context.obj = policy


def main() -> NoReturn:
    """Run the command line."""
    with QuietInterrupt():
        signals.end_on_signals()
    run_program(cli, "kakeya-runner")
