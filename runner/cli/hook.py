"""`kakeya-runner hook`."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.console import say
from bridge.system import environment
from runner.policy import load_policy
from runner.service.actions_hook import VARIABLES, check_job


@click.command()
@click.pass_obj
def command(policy: Path | None) -> None:
    """Let GitHub start this job here, or refuse it.

    For ACTIONS_RUNNER_HOOK_JOB_STARTED: `kakeya-runner install --hook` writes the script that it points to. Reads what
    GitHub says of the job from the environment, and ends with 0 only for a job that `actions` in the policy allows.
    """
    allowed = check_job(load_policy(policy), {name: environment.get(name) for name in VARIABLES})
    say(f"allowed: {allowed}")
