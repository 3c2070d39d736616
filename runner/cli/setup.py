"""``kakeya-runner setup``."""

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from bridge.checklist import show
from bridge.common.cli.commands import EXISTING_FOLDER, FOLDER, REFERENCE, flag, option
from bridge.common.cli.output import put, say
from bridge.errors import ExitCode, PolicyError
from bridge.verify.public_keys import PINNED_FILE, read_public_keys
from runner.cli.common import forward_option, say_forwarded, say_refused
from runner.cli.install import changed_service
from runner.cli.pinning import how_to_pin
from runner.doctor.readiness import examine
from runner.host.interpreter import find
from runner.policy import Policy, default_path, load_policy, write_template
from runner.service import actions_listener
from runner.service.plan import Plan, Step, write
from runner.service.settings import find_user
from runner.state import signing_key


@click.command()
@option("--bus url", REFERENCE, required=True, metavar="URL", help="The git remote to serve.")
@option("--id runner_id", metavar="NAME", help="This runner's name.  [default: the host's]")
@option(
    "--python", REFERENCE, metavar="PATH", help="The interpreter that runs jobs.  [default: the runner's own]"
)
@option(
    "--clone", EXISTING_FOLDER, metavar="DIR",
    help="Write the public key into this clone of the bus, for a maintainer to commit.",
)  # fmt: skip
@forward_option
@option("--listener", FOLDER, metavar="DIR", help="Folder of GitHub's own runner: install the hook there.")
@option("--root", FOLDER, metavar="DIR", help="Write the service's files below DIR and run no command.")
@flag("--yes", "Do everything without asking. Without this option each step is confirmed, or only shown.")
@click.pass_obj
def command(
    policy: Path | None,
    url: str,
    runner_id: str | None,
    python: str | None,
    forward: tuple[str, ...],
    clone: Path | None,
    listener: Path | None,
    root: Path | None,
    *,
    yes: bool,
) -> int:
    """Set up a runner: write a policy, create a key, check the host, install the service.

    Shows every step before doing it, and skips steps that are already done, so you can run it again. Without a
    terminal and without --yes, nothing is changed. An installed service keeps its other policies and gets this one too.
    """
    file = (policy or default_path()).absolute()
    asks = not yes and sys.stdin is not None and sys.stdin.isatty()
    changes = yes or asks
    todo: list[str] = []

    def steps() -> Iterator[tuple[str, Plan]]:
        """Yield the steps in order, by title. A step is prepared after the previous one was done or declined."""
        text, rules = _draft(file, url, runner_id, python, forward)
        yield "policy", Plan([] if file.exists() else [write(file, text, mode=0o600)])
        yield "key", _key(rules.state)
        yield "pin", _pin(rules.state, clone)
        who = find_user(None, system=False)
        service, _ = changed_service({file: rules}, who, system=False, root=root)
        yield "service", service.install(root)
        if listener:
            yield "GitHub's listener", actions_listener.install(listener, file, root)

    for title, plan in steps():
        if title == "service" and changes and file.exists() and not _is_fit(file):
            say("stopped before installing the service: fix the lines marked FAIL and run this command again")
            return ExitCode.FAILED
        todo += plan.then
        if not _take(title, plan, commands=root is None, changes=changes, asks=asks):
            say(f"stopped before this step: {title}. Run this command again to continue")
            return ExitCode.FAILED
    if not changes:
        say("nothing was changed; add --yes to do this, or run it in a terminal")
        return ExitCode.SUCCEEDED
    rules = load_policy(file)
    say_refused(rules)
    say_forwarded(rules)
    if todo:
        say("still to be done by you:")
    for line in todo:
        say(f"  {line}")
    return ExitCode.SUCCEEDED


def _take(title: str, plan: Plan, *, commands: bool, changes: bool, asks: bool) -> bool:
    """Show a step, and carry it out after confirmation. Returns False if the user declined."""
    put(f"{title}: already done" if plan.is_done else f"{title}:")
    for line in plan.show():
        put(f"  {line}")
    if asks and not plan.is_done and not click.confirm(f"{title}: do this?", default=True, err=True):
        return False
    for line in plan.carry_out(commands=commands) if changes else ():
        put(line)
    return True


def _is_fit(policy: Path) -> bool:
    fit = True
    for check in examine(policy):
        show([check])
        fit &= check.ok is not False
    return fit


def _draft(
    file: Path, url: str, runner_id: str | None, python: str | None, forward: Sequence[str]
) -> tuple[bytes, Policy]:
    """Return the existing policy, as text and parsed, or the one that would be written."""
    if file.exists():
        rules = load_policy(file)
        if rules.bus.url != url:
            fix = "Edit bus.url there, or name another policy: kakeya-runner --policy FILE setup ..."
            raise PolicyError(f"{file} serves {rules.bus.url}, not {url}", fix=fix)
        if missing := [pattern for pattern in forward if pattern not in rules.bus.forward]:
            fix = "Add it to bus.forward there."
            raise PolicyError(f"{file} exists, and forwards nothing from {', '.join(missing)}", fix=fix)
        return file.read_bytes(), rules
    interpreter, version = find(python)
    with tempfile.TemporaryDirectory(prefix="kakeya-") as folder:
        draft = Path(folder) / "runner.yaml"
        write_template(draft, url, runner_id, interpreter=interpreter, version=version, forward=forward)
        return draft.read_bytes(), load_policy(draft)


def _key(state_folder: Path) -> Plan:
    file = state_folder / signing_key.PRIVATE
    if os.path.lexists(file):
        return Plan()

    def make() -> str:
        signing_key.make_missing_key(state_folder)
        return f"write {file}"

    return Plan([Step([f"make a key to sign answers with: {file}"], make)])


def _pin(state_folder: Path, clone: Path | None) -> Plan:
    """Return the plan that pins the public key: print it, or write it into a clone for a maintainer to commit."""
    # Without the key, the steps are only shown.
    keys = signing_key.public_keys(state_folder) if (state_folder / signing_key.PRIVATE).exists() else ()
    text = "".join(key.text for key in keys) or "(the public key)\n"
    if clone is None:
        title = f"print the public key, for a maintainer to add to {PINNED_FILE} on the bus's main branch"
        todo = how_to_pin(keys, state_folder / signing_key.PUBLIC) if keys else ()
        return Plan([Step([title], lambda: text.rstrip("\n"))], tuple(todo))
    file = clone / PINNED_FILE
    old = file.read_text(encoding="utf-8") if file.is_file() else ""
    pinned = read_public_keys(old, str(file)) if keys and old.strip() else ()
    if keys and not (missing := [key for key in keys if key not in pinned]):
        return Plan()
    if keys:
        text = "".join(key.text for key in missing)
    git = f"git -C {shlex.quote(str(clone))}"
    commit = f"{git} add {PINNED_FILE} && {git} commit -m 'Pin the runner' && {git} push origin HEAD"
    # A runner's new key stands above its old ones.
    is_replaced = any(key in pinned for key in keys)
    return Plan([write(file, (text + old if is_replaced else old + text).encode())], (commit,))
