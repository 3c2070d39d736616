"""`kakeya-runner gc`."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.console import json_option, put, put_json, say
from bridge.errors import PolicyError
from runner.cli.common import tell
from runner.policy import load_policy
from runner.session import open_session
from runner.upkeep.retention import sweep


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")
@json_option
@click.pass_obj
def command(policy: Path | None, *, dry_run: bool, as_json: bool) -> None:
    """Archive answered requests and delete them from the bus, as `retention` in the policy says.

    A request that waits, runs or was never answered stays. A serving runner does this by itself every hour.
    """
    rules = load_policy(policy)
    if rules.retention is None:
        fix = "Add for instance: retention: {days: 30, keep: 500}"
        raise PolicyError("the policy has no section `retention`, so everything stays", fix=fix)
    with open_session(rules, tell) as session:
        swept = sweep(session, rules.retention, dry_run=dry_run)
    if as_json:
        put_json({"dry_run": dry_run, **swept.as_dict()})
        return
    for branch in swept.deleted:
        put(branch)
    done = "would go" if dry_run else "are gone"
    say(
        f"{len(swept.deleted)} of {swept.answered} answered requests {done}; {swept.unanswered} wait for an answer"
    )
    if swept.deleted:
        say(f"look into the archive: kakeya verify --remote {swept.archive} BRANCH")
    if swept.stayed:
        say(
            f"{len(swept.stayed)} could not be deleted: they moved, or this credential may not delete branches"
        )
