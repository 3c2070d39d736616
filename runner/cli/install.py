"""``kakeya-runner install``."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.common.cli.commands import FOLDER, flag, option
from bridge.common.cli.output import put_block, say
from bridge.errors import UsageError
from runner.policy import default_path, load_policy
from runner.service import actions_listener
from runner.service.plan import Plan
from runner.service.settings import find_user, settings_for
from runner.service.setup import service_of


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
def command(
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
    """Show a plan or, with ``yes``, carry it out."""
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
