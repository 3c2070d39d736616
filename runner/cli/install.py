"""``kakeya-runner install``, and what it shares with ``setup`` and ``uninstall``."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pwd import struct_passwd
from typing import Any

import click

from bridge.common.cli.commands import FOLDER, flag, option
from bridge.common.cli.output import put_block, say
from bridge.errors import UsageError
from runner.cli.common import policies_argument, policies_of
from runner.policy import Policy, default_path
from runner.service import actions_listener, launchd, systemd
from runner.service.plan import Plan, Service
from runner.service.served import Served
from runner.service.settings import Settings, find_user, settings_for, settings_to_remove
from runner.service.several import load_members

_SERVICES: Mapping[str, Callable[[Settings], Service]] = {"darwin": launchd.service, "linux": systemd.service}


def service_of(settings: Settings) -> Service:
    """Return the service of this kind of system."""
    if define := _SERVICES.get(sys.platform):
        return define(settings)
    fix = "Let the service manager of this machine start: kakeya-runner serve"
    raise UsageError(f"no service manager is known for {sys.platform}", fix=fix)


def served_by(who: struct_passwd, *, system: bool, root: Path | None) -> Served:
    """Return the policies that the installed service serves."""
    return Served.by(service_of(settings_to_remove(who, system=system)), root)


def changed_service(
    added: Mapping[Path, Policy], who: struct_passwd, *, system: bool, root: Path | None
) -> tuple[Service, Settings]:
    """Return the service that serves these policies too, beside what it serves already."""
    policies = served_by(who, system=system, root=root).plus(added, say)
    settings = settings_for(policies, who, system=system)
    return service_of(settings), settings


def scope_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say whose service it is."""
    user = option(
        "--user scope", str, "user", show_default=False, flag_value="user",
        help="A service of your user (the default).",
    )  # fmt: skip
    system = option(
        "--system scope", flag_value="system", help="A system service: starts at boot, needs root."
    )
    name = option(
        "--as name", metavar="NAME",
        help="With --system: the user that the service runs as.  [default: SUDO_USER]",
    )  # fmt: skip
    return user(system(name(function)))


def default_policy(who: struct_passwd, *, system: bool) -> Path:
    """Return the policy of a service for which none is named."""
    # Under sudo, read the policy from the home of the user who called sudo.
    return Path(who.pw_dir) / ".config/kakeya/runner.yaml" if system else default_path()


def user_of(scope: str, name: str | None) -> tuple[struct_passwd, bool]:
    """Return the service's user, and whether it is a system service."""
    system = scope == "system"
    if name and not system:
        raise UsageError("--as needs --system: a user service always runs as you")
    return find_user(name, system=system), system


def carry_out(plan: Plan, *, yes: bool, commands: bool, notes: Sequence[str] = ()) -> None:
    """Show a plan's changes, or make them, and print what is left to do."""
    for line in plan.carry_out(commands=commands) if yes else plan.show():
        put_block(f"{line}\n")
    for line in plan.then if yes else [*notes, "nothing was changed; add --yes to do this"]:
        say(line)


@click.command()
@policies_argument
@scope_options
@flag("--hook", "Install the script for GitHub's job-started hook instead.")
@flag("--yes", "Make the changes. Without this option they are only shown.")
@option("--root", FOLDER, metavar="DIR", help="Write the files below DIR, for packaging, and run no command.")
@click.pass_obj
def command(
    policy: Path | None,
    others: tuple[Path, ...],
    scope: str,
    name: str | None,
    root: Path | None,
    *,
    hook: bool,
    yes: bool,
) -> None:
    """Install the runner as a service: launchd on macOS, systemd on Linux.

    Shows each change, with new files in full and changed files as a diff; with --yes it makes the changes. Anything
    that is already up to date is left alone. With several policies, one service serves a bus for each. An installed
    service keeps the policies that it serves: `kakeya-runner uninstall POLICY` takes one out.
    """
    who, system = user_of(scope, name)
    files = policies_of(policy, others) if policy or others else []
    settings = None
    if hook:
        if files[1:]:
            raise UsageError("the hook reads one policy", fix="Name only that one.")
        service = actions_listener.hook(files[0] if files else default_policy(who, system=system))
        plan = service.install(root)
    else:
        if not files and not served_by(who, system=system, root=root).files:
            files = [default_policy(who, system=system)]
        added = {each.file: each.policy for each in load_members(files) if each.policy}
        service, settings = changed_service(added, who, system=system, root=root)
        plan = service.install(root)
    if plan.is_done:
        say("nothing to do: everything is up to date")
        return
    carry_out(plan, yes=yes, commands=root is None, notes=settings.notes if settings else ())
