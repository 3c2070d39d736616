"""One runner process: its lock, its store, its ledger, its presets, and who it is to others."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from filelock import FileLock, Timeout

from bridge import wire
from bridge.errors import InfrastructureError
from bridge.presets import Preset, load_presets
from runner import workspace
from runner.bus import Bus
from runner.host import describe_host, describe_versions
from runner.interpreter import Interpreter
from runner.ledger import Ledger
from runner.policy import Policy
from runner.sandbox import Sandbox, choose


@dataclass(frozen=True)
class Session:
    """Everything that one runner process works with."""

    policy: Policy
    bus: Bus
    ledger: Ledger
    presets: dict[str, Preset]
    identity: wire.Runner
    host: dict[str, Any]
    versions: dict[str, str | None]
    interpreter: Interpreter
    tell: Callable[[str], None]
    sandbox: Sandbox = field(default_factory=Sandbox)
    stop: threading.Event = field(default_factory=threading.Event)


@contextmanager
def open_session(policy: Policy, tell: Callable[[str], None]) -> Iterator[Session]:
    """Open the state directory for this process alone. Raises InfrastructureError where another one has it.

    Raises PolicyError where the policy requires a sandbox that does not hold here.
    """
    state = policy.state
    state.mkdir(parents=True, exist_ok=True)
    state.chmod(0o700)
    lock = FileLock(state / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        fix = "Stop the other runner, or give this one a `state` of its own in its policy."
        raise InfrastructureError(f"another runner is using {state}", fix=fix, code="locked") from error
    try:
        workspace.sweep(state)
        ledger = Ledger(state / "ledger.sqlite")
        try:
            yield Session(
                policy=policy,
                bus=Bus(policy.bus, state),
                ledger=ledger,
                presets=load_presets(policy.preset_folder),
                identity=wire.Runner(
                    id=policy.id, instance=_instance(policy), version=version("kakeya-bridge")
                ),
                host=describe_host(),
                versions=describe_versions(policy.interpreter),
                interpreter=Interpreter(policy.interpreter, policy.interpreter_version),
                tell=tell,
                sandbox=choose(policy, tell),
            )
        finally:
            ledger.close()
    finally:
        lock.release()


def _instance(policy: Policy) -> str:
    """Return the id of the state directory, which tells two runners of one name apart."""
    path = policy.state / "instance"
    if not path.exists():
        path.write_text(secrets.token_hex(8), encoding="ascii")
    return path.read_text(encoding="ascii").strip()
