"""``kakeya-runner setup`` and ``install``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from bridge.checks import show
from bridge.common.cli.commands import EXISTING_FOLDER, FOLDER, flag, option
from bridge.common.cli.output import put, put_block, say
from bridge.errors import ExitCode, UsageError
from runner.check.readiness import examine
from runner.cli.common import say_refused
from runner.policy import default_path, load_policy
from runner.service import actions_listener
from runner.service.plan import Plan
from runner.service.settings import find_user, settings_for
from runner.service.setup import Wanted, draft, service_of, steps


@click.command()
@option("--bus url", required=True, metavar="URL", help="The git remote to serve.")
@option("--id runner_id", metavar="NAME", help="This runner's name.  [default: the host's]")
@option("--python", metavar="PATH", help="The interpreter that runs jobs.  [default: the runner's own]")
@option(
    "--clone", EXISTING_FOLDER, metavar="DIR",
    help="Write the public key into this clone of the bus, for a maintainer to commit.",
)  # fmt: skip
@option("--listener", FOLDER, metavar="DIR", help="Folder of GitHub's own runner: install the hook there.")
@option("--root", FOLDER, metavar="DIR", help="Write the service's files below DIR and run no command.")
@flag("--yes", "Do everything without asking. Without this option each step is confirmed, or only shown.")
@click.pass_obj
def setup_command(policy: Path | None, /, *, yes: bool, **asked: Any) -> int:
    """Set up a runner: write a policy, create a key, check the host, install the service.

    Shows every step before doing it, and skips steps that are already done, so you can run it again. Without a
    terminal and without --yes, nothing is changed.
    """
    wanted = Wanted((policy or default_path()).absolute(), **asked)
    asks = sys.stdin is not None and sys.stdin.isatty()
    todo: list[str] = []
    for title, plan in steps(wanted):
        if title == "service" and (yes or asks) and wanted.policy.exists() and not _is_fit(wanted.policy):
            say("stopped before installing the service: fix the lines marked FAIL and run this command again")
            return ExitCode.FAILED
        if not _take(title, plan, commands=wanted.root is None, yes=yes, asks=asks):
            say(f"stopped before this step: {title}. Run this command again to continue")
            return ExitCode.FAILED
        todo += plan.then
    if not yes and not asks:
        say("nothing was changed; add --yes to do this, or run it in a terminal")
        return ExitCode.SUCCEEDED
    say_refused(draft(wanted)[1])
    if todo:
        say("still to be done by you:")
    for line in todo:
        say(f"  {line}")
    return ExitCode.SUCCEEDED


def _is_fit(policy: Path) -> bool:
    fit = True
    for check in examine(policy):
        show([check])
        fit &= check.ok is not False
    return fit


def _take(title: str, plan: Plan, *, commands: bool, yes: bool, asks: bool) -> bool:
    """Show a step, and do it after confirmation. Returns False if the user declined."""
    if plan.is_done:
        put(f"{title}: already done")
        return True
    put(f"{title}:")
    for line in plan.show():
        put(f"  {line}")
    if not yes and not asks:
        return True
    if not yes and not click.confirm(f"{title}: do this?", default=True, err=True):
        return False
    for line in plan.carry_out(commands=commands):
        put(line)
    return True


@click.command()
@option(
    "--user scope", str, "user", show_default=False, flag_value="user",
    help="Install a service for your user (the default).",
)  # fmt: skip
@option("--system scope", flag_value="system", help="Install a system service: starts at boot, needs root.")
@option(
    "--as name", metavar="NAME",
    help="With --system: the user that the service runs as.  [default: SUDO_USER]",
)  # fmt: skip
@flag("--hook", "Install the script for GitHub's job-started hook instead.")
@flag("--uninstall", "Remove the service; policy and state stay.")
@flag("--yes", "Make the changes. Without this option they are only shown.")
@option("--root", FOLDER, metavar="DIR", help="Write the files below DIR, for packaging, and run no command.")
@click.pass_obj
def install_command(
    policy: Path | None,
    scope: str,
    name: str | None,
    root: Path | None,
    *,
    hook: bool,
    uninstall: bool,
    yes: bool,
) -> None:
    """Install the runner as a service: launchd on macOS, systemd on Linux.

    Shows each change, with new files in full and changed files as a diff; with --yes it makes the changes. Anything
    that is already up to date is left alone.
    """
    system = scope == "system"
    if name and not system:
        raise UsageError("--as needs --system: a user service always runs as you")
    who = find_user(name, system=system)
    # Under sudo, the policy is still read from the home of the user who called it.
    file = policy or (Path(who.pw_dir) / ".config/kakeya/runner.yaml" if system else default_path())
    rules = load_policy(file)
    service = (
        actions_listener.hook(file) if hook else service_of(settings_for(rules, file, who, system=system))
    )
    plan = service.uninstall(root) if uninstall else service.install(root)
    _carry_out(plan, yes=yes, commands=root is None)


def _carry_out(plan: Plan, *, yes: bool, commands: bool) -> None:
    if plan.is_done:
        say("nothing to do: everything is up to date")
        return
    if not yes:
        for line in plan.show():
            put_block(f"{line}\n")
        say("nothing was changed; add --yes to do this")
        return
    for line in plan.carry_out(commands=commands):
        put_block(f"{line}\n")
    for line in plan.then:
        say(line)
