"""``kakeya-runner uninstall``."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from pwd import struct_passwd

import click

from bridge.bus import presence
from bridge.common.cli.commands import FOLDER, flag, option
from bridge.common.cli.output import put_block, say
from bridge.errors import KakeyaError
from bridge.verify.public_keys import PINNED_FILE
from runner.cli.common import policies_argument, policies_of
from runner.cli.install import carry_out, default_policy, scope_options, served_by, service_of, user_of
from runner.policy import Policy, default_state, load_policy
from runner.service import actions_listener, launchd, systemd
from runner.service.plan import Plan
from runner.service.settings import Settings, settings_for, settings_to_remove
from runner.state.identity import known_instance


@click.command()
@policies_argument
@scope_options
@flag("--hook", "Remove the script for GitHub's job-started hook instead.")
@flag("--yes", "Make the changes. Without this option they are only shown.")
@option("--root", FOLDER, metavar="DIR", help="Remove the files below DIR, and run no command.")
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
    """Remove the runner's service, and say what remains on this host and on the bus.

    Shows each change; with --yes it makes the changes. A running job ends as after `kakeya-runner drain` or a stop, as
    `on_stop` in the policy says. If the service also serves policies that are not named, it goes on with them. Policy,
    state and key stay: for each, the command that removes it is printed.
    """
    who, system = user_of(scope, name)
    files = policies_of(policy, others) if policy or others else []
    if hook:
        service = actions_listener.hook(files[0] if files else default_policy(who, system=system))
        plan = service.uninstall(root)
        if plan.is_done:
            say("the script is not installed")
        else:
            carry_out(plan, yes=yes, commands=root is None)
        return
    served = served_by(who, system=system, root=root).files
    plan, settings = _removal(files, who, system=system, root=root)
    if not plan.is_done:
        carry_out(plan, yes=yes, commands=root is None)
    elif not served:
        say("the service is not installed")
    own = default_policy(who, system=system).absolute()
    named = files or served or [own]
    remains = [line for each in named for line in _of_one(each, alone=len(named) == 1)]
    # The state of a policy that is gone, unless another one that is known here uses the same folder.
    known = [rules.state for each in {*named, *served} if (rules := _rules(each))]
    if own in named and _rules(own) is None and (state := default_state()).exists() and state not in known:
        remains.append(
            f"state of a policy that is gone, with the key that signs: rm -r {shlex.quote(str(state))}"
        )
    if not settings.argv:
        remains += _on_disk(who, settings)
    say("what remains, and what removes it:" if remains else "nothing remains on this host")
    for line in remains:
        put_block(f"  {line}\n")


def _removal(
    files: Sequence[Path], who: struct_passwd, *, system: bool, root: Path | None
) -> tuple[Plan, Settings]:
    """Return the plan that removes the service, or, if it serves other policies than these, only these from it."""
    served, settings = served_by(who, system=system, root=root), settings_to_remove(who, system=system)
    if not files or not served.files:
        return service_of(settings).uninstall(root), settings
    for file in files:
        if served.named(file) not in served.files:
            say(f"the service does not serve {file}")
    rest = served.minus(files, say)
    if not rest:
        return service_of(settings).uninstall(root), settings
    say(f"the service goes on with {', '.join(map(str, rest))}")
    if all(served.named(file) not in served.files for file in files):
        return Plan(), settings
    settings = settings_for(rest, who, system=system)
    return service_of(settings).install(root), settings


def _of_one(file: Path, *, alone: bool) -> Iterator[str]:
    lines = [*_of_policy(file), *_on_bus(file)]
    if lines and not alone:
        yield f"of {file}:"
    yield from lines


def _rules(file: Path) -> Policy | None:
    """Return the policy. If it is missing or wrong, its owner can still remove the service."""
    try:
        return load_policy(file)
    except KakeyaError:
        return None


def _on_bus(file: Path) -> Iterator[str]:
    rules = _rules(file)
    if rules is None:
        return
    bus = shlex.quote(rules.bus.url)
    if instance := known_instance(rules.state):
        yield f"its announcement on the bus, in any clone: git push {bus} :{presence.REFS}{instance}"
    yield "requests and answers on the bus: kakeya-runner gc removes what `retention` allows"
    yield f"its public key in {PINNED_FILE} on the bus: keep it as long as somebody verifies its answers"


def _of_policy(file: Path) -> Iterator[str]:
    rules = _rules(file)
    if rules is not None and rules.state.exists():
        yield f"state, with the key that signs and the archive: rm -r {shlex.quote(str(rules.state))}"
    if file.exists():
        yield f"policy: rm {shlex.quote(str(file))}"


def _on_disk(who: struct_passwd, settings: Settings) -> Iterator[str]:
    log = launchd.log_of(settings)
    if log.exists():
        yield f"log: rm {shlex.quote(str(log))}"
    if not settings.system and systemd.lingers(settings):
        yield f"services that run without a login: loginctl disable-linger {who.pw_name}"
    yield "the programs: what installed them removes them, such as pipx uninstall kakeya-bridge"
