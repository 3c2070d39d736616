"""Sets up a runner: each step is shown, confirmed and done; steps that are already done are skipped."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bridge.checks import Check
from bridge.errors import PolicyError, UsageError
from bridge.verify.public_keys import PINNED_FILE, read_public_keys
from runner.check.readiness import examine
from runner.host.interpreter import find
from runner.policy import Policy, load_policy, write_template
from runner.service import actions_listener as listener
from runner.service import launchd, systemd
from runner.service.plan import Plan, Write
from runner.service.settings import Settings, find_user, settings_for
from runner.state import signing_key


class ServiceManager(Protocol):
    """What starts a runner on one kind of system."""

    def install(self, settings: Settings, root: Path | None = None) -> Plan:
        """Return the plan that installs and starts the service."""

    def uninstall(self, settings: Settings, root: Path | None = None) -> Plan:
        """Return the plan that stops and removes the service."""


_MANAGERS: Mapping[str, ServiceManager] = {"darwin": launchd, "linux": systemd}


@dataclass(frozen=True)
class Wanted:
    """The options of ``kakeya-runner setup``."""

    policy: Path
    url: str
    runner_id: str | None = None
    python: str | None = None
    clone: Path | None = None
    listener: Path | None = None
    root: Path | None = None


@dataclass(frozen=True)
class Step:
    """One step: its title, the changes it would make (none if it is already done), and the function that makes them.

    ``do`` prints each change before it makes it. ``do(False)`` prints system commands for a person instead of running
    them.
    """

    title: str
    shown: Sequence[str]
    do: Callable[[bool], Iterator[str]]
    # Manual steps after this one.
    then: Sequence[str] = ()


def steps(wanted: Wanted) -> Iterator[Step]:
    """Yield the steps in order. Each is prepared after the one before it was done or declined."""
    rules = draft(wanted)
    yield _policy(wanted)
    yield _key(rules)
    yield _pin(rules, wanted.clone)
    yield _of_plan("service", service_plan(wanted, rules))
    if wanted.listener:
        yield _of_plan("GitHub's listener", listener.install(wanted.listener, wanted.policy, wanted.root))


def draft(wanted: Wanted) -> Policy:
    """Return the existing policy, or the one that would be written.

    Raises:
        PolicyError: it serves another bus.
    """
    if wanted.policy.exists():
        rules = load_policy(wanted.policy)
        if rules.bus.url != wanted.url:
            fix = "Edit bus.url there, or name another policy: kakeya-runner --policy FILE setup ..."
            raise PolicyError(f"{wanted.policy} serves {rules.bus.url}, not {wanted.url}", fix=fix)
        return rules
    with tempfile.TemporaryDirectory(prefix="kakeya-") as folder:
        file = Path(folder) / "runner.yaml"
        _write(wanted, file)
        return load_policy(file)


def ready(policy: Path) -> Iterator[Check]:
    """Return the checks of ``kakeya-runner check``."""
    return examine(policy)


def is_ready(checks: Sequence[Check]) -> bool:
    """Return whether the host can serve."""
    return all(check.ok is not False for check in checks)


def service_plan(wanted: Wanted, rules: Policy) -> Plan:
    """Return the plan that installs the service."""
    settings = settings_for(rules, wanted.policy, find_user(None, system=False), system=False)
    return service_manager().install(settings, wanted.root)


def service_manager() -> ServiceManager:
    """Return the service manager of this system.

    Raises:
        UsageError: none is known for it.
    """
    if manager := _MANAGERS.get(sys.platform):
        return manager
    fix = "Let the service manager of this machine start: kakeya-runner serve"
    raise UsageError(f"no service manager is known for {sys.platform}", fix=fix)


def _write(wanted: Wanted, file: Path) -> None:
    interpreter, version = find(wanted.python)
    write_template(file, wanted.url, wanted.runner_id, interpreter=interpreter, version=version)


def _policy(wanted: Wanted) -> Step:
    def do(commands: bool) -> Iterator[str]:  # noqa: ARG001
        _write(wanted, wanted.policy)
        yield f"write {wanted.policy}"

    if wanted.policy.exists():
        return Step("policy", (), do)
    with tempfile.TemporaryDirectory(prefix="kakeya-") as folder:
        file = Path(folder) / "runner.yaml"
        _write(wanted, file)
        lines = file.read_text(encoding="utf-8").splitlines()
    return Step("policy", [f"write {wanted.policy}", *(f"    {line}" for line in lines)], do)


def _key(rules: Policy) -> Step:
    def do(commands: bool) -> Iterator[str]:  # noqa: ARG001
        signing_key.make_key(rules.state)
        yield f"write {rules.state / signing_key.PRIVATE}"

    there = (rules.state / signing_key.PRIVATE).exists()
    return Step(
        "key", () if there else [f"make a key to sign answers with: {rules.state / signing_key.PRIVATE}"], do
    )


def _pin(rules: Policy, clone: Path | None) -> Step:
    """Return the step that pins the public key: it is written into a clone, and a maintainer commits it."""

    def do(commands: bool) -> Iterator[str]:  # noqa: ARG001
        text = signing_key.public_key(rules.state).text
        if clone is None:
            yield text.rstrip("\n")
            return
        write = Write(clone / PINNED_FILE, (_pinned(clone) + text).encode())
        yield next(write.show())
        write.do()

    there = (rules.state / signing_key.PUBLIC).exists() and _is_pinned(
        clone, signing_key.public_key(rules.state).text
    )
    if there:
        return Step("pin", (), do)
    if clone is None:
        steps = [f"print the public key, for a maintainer to add to {PINNED_FILE} on the bus's main branch"]
        then = [
            f"add the key above to {PINNED_FILE} on the bus's main branch; with --clone DIR it is written there"
        ]
        return Step("pin", steps, do, then)
    then = [
        f"git -C {clone} add {PINNED_FILE} && git -C {clone} commit -m 'Pin the runner' && git -C {clone} push"
    ]
    return Step("pin", [f"add the public key to {clone / PINNED_FILE}"], do, then)


def _pinned(clone: Path) -> str:
    file = clone / PINNED_FILE
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _is_pinned(clone: Path | None, text: str) -> bool:
    """Return whether a clone already pins this key."""
    if clone is None or not (old := _pinned(clone)).strip():
        return False
    ours = read_public_keys(text, "the runner's key")[0].raw
    return any(key.raw == ours for key in read_public_keys(old, str(clone / PINNED_FILE)))


def _of_plan(title: str, plan: Plan) -> Step:
    def do(commands: bool) -> Iterator[str]:
        yield from plan.carry_out(commands=commands)

    return Step(title, [] if plan.is_done else list(plan.show()), do, plan.then)
