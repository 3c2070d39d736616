"""One runner process: its lock, store, ledger, presets and identity."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from bridge.bus import times, wire
from bridge.errors import InfrastructureError, KakeyaError
from bridge.presets import Presets, load_presets
from bridge.system.deadline import stopped_by
from bridge.system.signals import StopRequest, Withdrawal
from bridge.verify.public_keys import PublicKey
from bridge.verify.signed_history import Reader
from runner.bus.backoff import Spread
from runner.bus.bus import Bus
from runner.bus.damage import replace_damaged_store
from runner.bus.others import OtherRunners
from runner.bus.packed_refs import HEADS
from runner.bus.stale_files import end_orphans, remove_stale_files
from runner.host.clock import Clock
from runner.host.facts import describe_host, describe_versions
from runner.host.fitness import Fitness
from runner.host.interpreter import Interpreter
from runner.host.models import Models
from runner.job import workspace
from runner.job.observer import Observer
from runner.job.sandbox import Sandbox, choose, hub
from runner.ownership import own_files
from runner.policy import Policy
from runner.state import archive, signing_key
from runner.state.activity import StatusFile
from runner.state.announcer import Announcer
from runner.state.forwarding import Forwarder
from runner.state.health import Health
from runner.state.heartbeat import Heartbeat
from runner.state.identity import instance_of
from runner.state.ledger import Ledger
from runner.state.orders import OperatorMode, Orders
from runner.state.recover import open_ledger
from runner.state.turn import FOLDER, Turn

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

# Smaller corrections of the clock are normal and are ignored.
_CLOCK_S = 60
# The oldest answers to be noted are dropped if there are more.
_MOST_TO_NOTE = 100


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


@dataclass(frozen=True)
class RunnerContext:
    """The parts of one runner process. What serves requests is put together from them; a class takes what it uses."""

    policy: Policy
    bus: Bus
    forwarder: Forwarder
    ledger: Ledger
    presets: Presets
    identity: wire.Runner
    others: OtherRunners
    clock: Clock
    # The announcer does something only while the runner serves.
    announcer: Announcer
    machine: Machine
    keys: Keys
    operator: Operator
    process: Process
    turn: Turn = field(default_factory=Turn)
    spread: Spread = field(default_factory=Spread)
    is_one_of_several: bool = False
    # Whether requests come over a bus: then other runners and the requester's files are there too.
    has_bus: bool = True
    # Branches whose answers are to be noted on the bus.
    to_note: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_TO_NOTE))

    @property
    def secrets(self) -> list[str]:
        """Texts that must never appear in a log or report: the bus's credential and the hub's tokens."""
        return [*self.bus.secrets, *hub.tokens(self.policy.env)]

    @property
    def author(self) -> Author:
        """What it takes to write states."""
        return Author(
            self.bus, self.ledger, self.keys, self.identity, self.policy.labels, self.policy.bus.lease_s,
            self.policy.bus.longest_lease_s, self.operator.observer.prints,
        )  # fmt: skip

    def update_operator_mode(self) -> OperatorMode:
        """Return the operator's current order, and publish it in the status file and on the bus."""
        order = self.operator.orders.now()
        self.operator.status_file.set_mode(order.state, order.reason)
        self.announcer.set_mode(order)
        return order


@contextmanager
def open_runner(
    policy: Policy, tell: Callable[[str], None], turns: Path | None = None, owner: Policy | None = None
) -> Iterator[RunnerContext]:
    """Open and lock the state folder. In the folder ``turns``, the runners of one service take turns.

    ``owner`` is given if ``policy`` is that of one job without a bus: the policy of the runner whose key signs, whose
    orders count and whose files no job may see.

    Raises:
        InfrastructureError: another process has it.
        PolicyError: the policy requires a sandbox that does not work here, or if it lists runners' keys and this runner
            has none.
    """
    state = policy.state
    with own_files(), ExitStack() as stack:
        state.mkdir(parents=True, exist_ok=True)
        state.chmod(0o700)
        try:
            stack.enter_context(FileLock(state / "lock").acquire(timeout=0))
        except Timeout as error:
            fix = "Stop the other runner, or give this one a `state` of its own in its policy."
            raise InfrastructureError(f"another runner is using {state}", fix=fix, code="locked") from error
        _remove_leftovers(policy, tell)
        home = (owner or policy).state
        signer = signing_key.load_signer(home)
        public_keys = signing_key.record_key(home, signing_key.public_half(signer)) if signer else ()
        reader = signing_key.reader(policy, signer)
        bus, host = stack.enter_context(closing(Bus(policy.bus, state))), describe_host()
        ledger = open_ledger(state / "ledger.sqlite", bus.git, policy.archive, tell, reader)
        stack.enter_context(closing(ledger))
        presets = load_presets(policy.preset_folder)
        instance = instance_of(state, host["fingerprint"], tell)
        identity = wire.Runner(id=policy.id, instance=instance, version=version("kakeya-bridge"))
        interpreter = Interpreter(policy.interpreter, policy.interpreter_version)
        fitness = Fitness(policy, presets, interpreter, Models(policy))
        witness = partial(times.request_times, bus.git, HEADS)
        stop = StopRequest()
        versions = describe_versions(interpreter)
        context = RunnerContext(
            policy=policy,
            bus=bus,
            forwarder=Forwarder(bus, state, tell),
            ledger=ledger,
            presets=presets,
            identity=identity,
            others=OtherRunners(policy.bus, state, reader.keys, instance),
            clock=Clock(max(_CLOCK_S, policy.limits.clock_skew_s), witness),
            announcer=Announcer(bus, policy, fitness, identity, signer, is_shared=turns is not None),
            machine=Machine(host, versions, interpreter, fitness, choose(owner or policy, tell)),
            keys=Keys(signer, public_keys, reader),
            operator=Operator(tell, StatusFile(state), Orders(home)),
            process=Process(stop, Health(state, bus)),
            turn=Turn(turns or _own_turns(state), instance),
            is_one_of_several=turns is not None,
            has_bus=owner is None,
        )
        with stopped_by(stop):
            yield context


def _own_turns(state: Path) -> Path:
    folder = state / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _remove_leftovers(policy: Policy, tell: Callable[[str], None]) -> None:
    """Remove what a killed runner left in the state folder, and mend a damaged store or archive."""
    workspace.remove_leftovers(policy.state)
    store = policy.state / "store.git"
    for repository in (store, policy.archive):
        if ended := end_orphans(repository):
            tell(f"{repository}: ended {ended} git processes of a runner that was killed")
        if removed := remove_stale_files(repository):
            tell(f"{repository}: removed {len(removed)} files that a killed git left, such as {removed[0]}")
    replace_damaged_store(store, tell)
    try:
        archive.mend(policy.archive, tell)
    except (KakeyaError, OSError) as error:
        # Requests can be served without the archive, but nothing is deleted before it is repaired.
        tell(f"the archive is damaged and cannot be repaired now: {error}")
