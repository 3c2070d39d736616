"""One runner process: its lock, store, ledger, presets and identity."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock, Timeout

from bridge.bus import times, wire
from bridge.errors import InfrastructureError, KakeyaError
from bridge.presets import Presets, load_presets
from bridge.system.deadline import stopped_by
from bridge.system.signals import StopRequest
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
from runner.job.sandbox import choose, hub
from runner.ownership import own_files
from runner.parts import Author, Keys, Machine, Operator, Process
from runner.policy import Policy
from runner.state import archive, signing_key
from runner.state.activity import StatusFile
from runner.state.announcer import Announcer
from runner.state.forwarding import Forwarder
from runner.state.health import Health
from runner.state.identity import instance_of
from runner.state.ledger import Ledger
from runner.state.orders import OperatorMode, Orders
from runner.state.recover import open_ledger
from runner.state.turn import FOLDER, Turn

# Smaller corrections of the clock are normal and are ignored.
_CLOCK_S = 60
# The oldest answers to be noted are dropped if there are more.
_MOST_TO_NOTE = 100


@dataclass(frozen=True)
class RunnerContext:
    """All that one runner process has. `runner/serve/compose.py` hands each class the parts that it may touch."""

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
    ended = end_orphans(store, policy.archive)
    for repository in (store, policy.archive):
        if ended[repository]:
            tell(f"{repository}: ended {ended[repository]} git processes of a runner that was killed")
        if removed := remove_stale_files(repository):
            tell(f"{repository}: removed {len(removed)} files that a killed git left, such as {removed[0]}")
    replace_damaged_store(store, tell)
    try:
        archive.mend(policy.archive, tell)
    except (KakeyaError, OSError) as error:
        # Requests can be served without the archive, but nothing is deleted before it is repaired.
        tell(f"the archive is damaged and cannot be repaired now: {error}")
