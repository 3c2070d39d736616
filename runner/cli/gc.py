"""``kakeya-runner gc``."""

from dataclasses import asdict
from pathlib import Path

import click

from bridge.common.cli.commands import flag, json_option
from bridge.common.cli.output import put, put_json, say
from bridge.errors import PolicyError
from runner.cli.common import tell
from runner.context import open_runner
from runner.policy import load_policy
from runner.serve.compose import Composer


@click.command()
@flag("--dry-run", "Only show what would be removed; change nothing.")
@json_option
@click.pass_obj
def command(policy: Path | None, *, dry_run: bool, as_json: bool) -> None:
    """Archive answered requests and delete them from the bus, as `retention` in the policy says.

    A request that waits, runs or was never answered stays. A serving runner does this every hour by itself.
    """
    rules = load_policy(policy)
    if rules.retention is None:
        fix = "Add one to the policy, for instance: retention: {days: 30, keep: 500}"
        raise PolicyError("the policy has no section `retention`, so nothing is removed", fix=fix)
    with open_runner(rules, tell) as context:
        swept = Composer(context).sweeper().sweep(rules.retention, dry_run=dry_run)
        fault = context.bus.deletion_fault
    if as_json:
        put_json({"dry_run": dry_run, **asdict(swept)})
        return
    for branch in swept.deleted:
        put(branch)
    done = f"answered requests {'would be' if dry_run else 'were'} removed"
    say(f"{len(swept.deleted)} of {swept.answered} {done}; {swept.unanswered} wait for an answer")
    if swept.deleted:
        say(f"to read the archive: kakeya verify --remote {swept.archive} BRANCH")
    if swept.stayed:
        say(f"{len(swept.stayed)} could not be deleted: {fault or 'they moved'}")
