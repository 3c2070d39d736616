"""Sets up a runner: each step is shown, confirmed and done; steps that are already done are skipped."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import PolicyError, UsageError
from bridge.verify.public_keys import PINNED_FILE, read_public_keys
from runner.host.interpreter import find
from runner.policy import Policy, load_policy, write_template
from runner.service import actions_listener as listener
from runner.service import launchd, systemd
from runner.service.plan import Plan, Service, Step, write
from runner.service.settings import Settings, find_user, settings_for
from runner.state import signing_key

_SERVICES: Mapping[str, Callable[[Settings], Service]] = {"darwin": launchd.service, "linux": systemd.service}


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


def steps(wanted: Wanted) -> Iterator[tuple[str, Plan]]:
    """Yield the steps in order, by title. Each is prepared after the one before it was done or declined."""
    text, rules = draft(wanted)
    yield "policy", Plan([] if wanted.policy.exists() else [write(wanted.policy, text, mode=0o600)])
    yield "key", _key(rules.state)
    yield "pin", _pin(rules.state, wanted.clone)
    settings = settings_for(rules, wanted.policy, find_user(None, system=False), system=False)
    yield "service", service_of(settings).install(wanted.root)
    if wanted.listener:
        yield "GitHub's listener", listener.install(wanted.listener, wanted.policy, wanted.root)


def draft(wanted: Wanted) -> tuple[bytes, Policy]:
    """Return the existing policy, as text and parsed, or the one that would be written.

    Raises:
        PolicyError: it serves another bus.
    """
    if wanted.policy.exists():
        rules = load_policy(wanted.policy)
        if rules.bus.url != wanted.url:
            fix = "Edit bus.url there, or name another policy: kakeya-runner --policy FILE setup ..."
            raise PolicyError(f"{wanted.policy} serves {rules.bus.url}, not {wanted.url}", fix=fix)
        return wanted.policy.read_bytes(), rules
    interpreter, version = find(wanted.python)
    with tempfile.TemporaryDirectory(prefix="kakeya-") as folder:
        file = Path(folder) / "runner.yaml"
        write_template(file, wanted.url, wanted.runner_id, interpreter=interpreter, version=version)
        return file.read_bytes(), load_policy(file)


def service_of(settings: Settings) -> Service:
    """Return the service for the service manager of this system.

    Raises:
        UsageError: none is known for it.
    """
    if define := _SERVICES.get(sys.platform):
        return define(settings)
    fix = "Let the service manager of this machine start: kakeya-runner serve"
    raise UsageError(f"no service manager is known for {sys.platform}", fix=fix)


def _key(state: Path) -> Plan:
    file = state / signing_key.PRIVATE

    def make() -> str:
        signing_key.make_key(state)
        return f"write {file}"

    return Plan([] if file.exists() else [Step([f"make a key to sign answers with: {file}"], make)])


def _pin(state: Path, clone: Path | None) -> Plan:
    """Return the plan that pins the public key: it is written into a clone, and a maintainer commits it."""
    # Without the key, the steps are only shown.
    key = signing_key.public_key(state) if (state / signing_key.PUBLIC).exists() else None
    text = key.text if key else "(the public key)\n"
    if clone is None:
        title = f"print the public key, for a maintainer to add to {PINNED_FILE} on the bus's main branch"
        todo = f"add the key above to {PINNED_FILE} on the bus's main branch; with --clone DIR it is written there"
        return Plan([Step([title], lambda: text.rstrip("\n"))], (todo,))
    file = clone / PINNED_FILE
    old = file.read_text(encoding="utf-8") if file.is_file() else ""
    if key and old.strip() and any(pinned.raw == key.raw for pinned in read_public_keys(old, str(file))):
        return Plan()
    commit = f"git -C {clone} add {PINNED_FILE} && git -C {clone} commit -m 'Pin the runner' && git -C {clone} push"
    return Plan([write(file, (old + text).encode())], (commit,))
