"""The parts of one runner process that several classes use. A class takes those that it may touch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bridge.bus import wire
from bridge.system.signals import StopRequest, Withdrawal
from bridge.verify.public_keys import PublicKey
from bridge.verify.signed_history import Reader
from runner.bus.bus import Bus
from runner.host.fitness import Fitness
from runner.host.interpreter import Interpreter
from runner.job.observer import Observer
from runner.job.sandbox import Sandbox
from runner.state.activity import StatusFile
from runner.state.health import Health
from runner.state.heartbeat import Heartbeat
from runner.state.ledger import Ledger
from runner.state.orders import Orders

if TYPE_CHECKING:
    from securesystemslib.signer import Signer


@dataclass(frozen=True)
class Machine:
    """This host, and what it can run."""

    # Facts about the host for answers and reports.
    facts: dict[str, Any]
    # Versions of the software that was installed when the runner started.
    versions: dict[str, str | None]
    interpreter: Interpreter
    fitness: Fitness
    sandbox: Sandbox


@dataclass(frozen=True)
class Keys:
    """The key with which this runner signs, and the keys whose signatures count."""

    # Signs this runner's states and answers; None if the runner has no key.
    signer: "Signer | None"
    # All public keys that may have signed answers of this runner, the signer's first.
    public: tuple[PublicKey, ...]
    # Reads branches. If the policy lists the runners' keys, only states signed with one of them count.
    reader: Reader


@dataclass(frozen=True)
class Operator:
    """The operator's side of this runner: messages, the status file, and orders."""

    tell: Callable[[str], None]
    status_file: StatusFile
    orders: Orders
    observer: Observer = field(default_factory=Observer)


@dataclass(frozen=True)
class Process:
    """This process: its requests to stop, and the checks of whether it may go on."""

    stop: StopRequest
    health: Health
    # The heartbeat does something only while the runner serves.
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    # Set if the job that came without a bus is withdrawn; over a bus, its branch says so.
    withdrawal: Withdrawal = field(default_factory=Withdrawal)


@dataclass(frozen=True)
class Author:
    """What it takes to write the states of a request: the bus, the record of what was written, the keys, the name."""

    bus: Bus
    ledger: Ledger
    keys: Keys
    identity: wire.Runner
    labels: list[str]
    lease_s: float
    # Other runners wait for no lease that is longer.
    longest_lease_s: float
    # Also gets the job's output.
    prints: Callable[[bytes], None]
