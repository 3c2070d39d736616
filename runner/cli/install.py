"""``kakeya-runner install``."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.common.cli.commands import FOLDER, flag, option
from bridge.common.cli.output import put_block, say
from bridge.errors import UsageError
from runner.policy import default_path, load_policy
from runner.service import hook_script
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
    plan = _plan(policy, system=scope == "system", name=name, root=root, hook=hook, uninstall=uninstall)
    if plan.is_done:
        say("nothing to do: everything is up to date")
        return
    if not yes:
        for line in plan.show():
            put_block(f"{line}\n")
        say("nothing was changed; add --yes to do this")
        return
    for line in plan.carry_out(commands=root is None):
        put_block(f"{line}\n")
    for line in plan.then:
        say(line)


def _plan(
    policy: Path | None,
    *,
    system: bool,
    name: str | None,
    root: Path | None,
    hook: bool,
    uninstall: bool,
) -> Plan:
    if name and not system:
        raise UsageError("--as needs --system: a user service always runs as you")
    who = find_user(name, system=system)
    # Under sudo the settings are still those of the user.
    file = policy or (Path(who.pw_dir) / ".config/kakeya/runner.yaml" if system else default_path())
    rules = load_policy(file)
    if hook:
        return hook_script.uninstall(file, root) if uninstall else hook_script.install(file, root)
    service = service_of(settings_for(rules, file, who, system=system))
    return service.uninstall(root) if uninstall else service.install(root)
