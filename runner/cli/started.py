"""What other services start: ``kakeya-runner watchdog`` by launchd, ``hook`` by GitHub's listener."""

from pathlib import Path

import click

from bridge.common import environment
from bridge.common.cli.output import say
from runner.cli.common import for_each_policy, policies_argument, tell
from runner.policy import load_policy
from runner.service.actions_hook import VARIABLES, check_job
from runner.state import heartbeat


@click.command()
@policies_argument
@click.pass_obj
def watchdog_command(policy: Path | None, others: tuple[Path, ...]) -> int:
    """Check once whether the runner hangs, and if so kill it, so that its service restarts it.

    On macOS, `kakeya-runner install` lets launchd run this every minute. On Linux, systemd does this by itself.
    """

    def look(file: Path | None) -> None:
        state = load_policy(file).state
        if state.is_dir():
            heartbeat.kill_if_hanging(state, tell)

    return for_each_policy(policy, others, look)


@click.command()
@click.pass_obj
def hook_command(policy: Path | None) -> None:
    """Allow or refuse the job that GitHub is about to start here.

    For ACTIONS_RUNNER_HOOK_JOB_STARTED: `kakeya-runner install --hook` writes the script for that variable. Reads
    GitHub's description of the job from the environment, and exits with 0 only if `actions` in the policy allows it.
    """
    allowed = check_job(load_policy(policy), {name: environment.get(name) for name in VARIABLES})
    say(f"allowed: {allowed}")
