"""One bus of several, and asking all of them side by side, each for a limited time."""

import atexit
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from bridge.client import Client, Run
from bridge.common import environment
from bridge.errors import InfrastructureError, KakeyaError, UsageError, as_kakeya_error
from bridge.system import spawn
from bridge.system.deadline import within

# How long each of several buses may take to answer.
ANSWER_S = 20.0
# How long after that its answer may take to be worked on.
_WORK_S = 10.0

T = TypeVar("T")


@dataclass(frozen=True)
class Bus:
    """One bus of a clone: its name for people, and the client for it."""

    label: str
    remote: str
    options: Mapping[str, Any]
    place: str | None = None
    # Whether its git processes run in a session of their own.
    own_session: bool = False

    @cached_property
    def client(self) -> Client:
        """The client for this bus."""
        client = Client(remote=self.remote, place=self.place, **self.options)
        client.git = replace(client.git, own_session=self.own_session)
        return client

    def run(self, branch: str) -> Run:
        """Return the request on a branch of this bus."""
        return self.sent(Run(self.client, branch))

    def sent(self, run: Run) -> Run:
        """Return a request of this bus with the bus's label, if there are several."""
        return run if self.place is None else replace(run, bus=self.label)

    def new_client(self) -> Client:
        """Return a client that asks nobody for passwords: several buses are asked at once."""
        client = Client(remote=self.remote, place=self.place, **self.options)
        quiet = environment.without_prompts(client.git.env)
        # A ^C at a terminal is for this process.
        client.git = replace(client.git, env=quiet, own_session=True)
        return client


@dataclass(frozen=True)
class Answer(Generic[T]):
    """The outcome of asking one bus: a value, or the error."""

    bus: Bus
    value: T | None = None
    error: KakeyaError | None = None
    # The client that asked; None if the error came before it.
    client: Client | None = None


def ask_all(
    buses: Sequence[Bus],
    work: Callable[[Client], T],
    *,
    at_once: bool = True,
    is_enough: Callable[[Mapping[int, Answer[T]]], bool] = lambda _: False,
) -> list[Answer[T]]:
    """Ask several buses as ``Buses.ask`` does."""
    answers: dict[int, Answer[T]] = {}
    incoming: SimpleQueue[tuple[int, Answer[T]]] = SimpleQueue()

    def ask(number: int, bus: Bus) -> None:
        client = None
        try:
            with within(ANSWER_S):
                client = bus.new_client()
                incoming.put((number, Answer(bus, work(client), client=client)))
        except Exception as error:  # noqa: BLE001 - whatever fails with one bus must not stop the others
            incoming.put((number, Answer(bus, error=as_kakeya_error(error), client=client)))

    for number, bus in enumerate(buses):
        thread = threading.Thread(target=ask, args=(number, bus), daemon=True)
        thread.start()
        if not at_once:
            thread.join(ANSWER_S + _WORK_S)
    until = time.monotonic() + ANSWER_S + _WORK_S
    while len(answers) < len(buses) and not is_enough(answers):
        try:
            number, answer = incoming.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            break
        answers[number] = answer
    if len(answers) < len(buses):
        # What still asks must not outlive this process.
        atexit.unregister(spawn.end_children)
        atexit.register(spawn.end_children)
    late = InfrastructureError(f"it gave no answer in {ANSWER_S + _WORK_S:g} s")
    return [answers.get(number, Answer(bus, error=late)) for number, bus in enumerate(buses)]


def silent(answers: Iterable[Answer[Any]]) -> Iterator[tuple[str, str]]:
    """Yield the label of each bus that could not be asked, and why."""
    for answer in answers:
        if answer.error is not None:
            yield answer.bus.label, answer.error.message


def silent_error(answers: Sequence[Answer[Any]]) -> InfrastructureError:
    """Return the error if no bus answered, or if the needed one did not."""
    first = next(answer.error for answer in answers if answer.error is not None)
    reasons = "; ".join(f"{label}: {reason}" for label, reason in silent(answers))
    return InfrastructureError(f"a bus does not answer: {reasons}", fix=first.fix, code=first.code)


def raise_if_silent(answers: Sequence[Answer[Any]], error: UsageError) -> None:
    """Raise an InfrastructureError in place of ``error`` if a bus that did not answer may have the request."""
    if any(answer.error is not None for answer in answers):
        raise InfrastructureError(
            f"{error.message}, as far as they answer; {silent_error(answers).message}",
            fix=silent_error(answers).fix,
        ) from error
