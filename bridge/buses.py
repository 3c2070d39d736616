"""The buses of a clone: the one remote that serves as the bus, or the several that its settings list.

Git's setting ``kakeya.bus`` lists them, one a value, as ``REMOTE`` or ``LABEL=REMOTE``; a remote is a name or a URL. A
bus that does not answer does not stop the others. With fewer than two buses, nobody else is asked and nothing is added
to what is shown.
"""

import atexit
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bridge.bus.branch_names import age_sort_key
from bridge.bus.presence import RunnerState
from bridge.client import Client, Run
from bridge.common import environment
from bridge.common.advice import REMOTE, Advice
from bridge.errors import InfrastructureError, KakeyaError, UsageError, as_kakeya_error
from bridge.presets import Presets, split_params
from bridge.presets.params import Value
from bridge.requests import idempotency
from bridge.requests.outbox import DEFAULT_REMOTE, find_branch, no_such_request, place_of
from bridge.requests.request_commit import identity
from bridge.requests.sighting import RunnerSighting
from bridge.requests.status import Status
from bridge.system import git_output, spawn
from bridge.system.deadline import within
from bridge.system.git import Git, open_repository
from bridge.verify.public_keys import Pin, ReportKeys

SETTING = "kakeya.bus"
MOST = 16
# How long each of several buses may take to answer.
ANSWER_S = 20.0
# How long after that its answer may take to be worked on.
_WORK_S = 10.0

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")

T = TypeVar("T")

if TYPE_CHECKING:
    from bridge.requests.answered.reuse import Reused


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


@dataclass(frozen=True)
class Buses:
    """The buses of a clone, in the order of its settings."""

    buses: tuple[Bus, ...]

    @classmethod
    def of(
        cls, repo: Path | str = ".", remote: str | None = None, *, own_session: bool = False, **options: Any
    ) -> "Buses":
        """Return the buses that the settings list; only one if ``remote`` names it, by its label, its name or its URL.

        Raises:
            UsageError: there is no repository, or the setting cannot be used.
        """
        options = {"repo": repo, **options}
        listed = read_setting(open_repository(repo))
        # The usual place stays the default remote's, so that what this clone knows stays known.
        places: dict[str, str | None] = {name: place_of(name) for name in listed.values()}
        if len(listed) < 2:  # noqa: PLR2004 - one bus is no choice
            places = dict.fromkeys(places)
        if remote is not None:
            listed = {remote: listed.get(remote, remote)}
        names = listed or {DEFAULT_REMOTE: DEFAULT_REMOTE}
        return cls(tuple(
            Bus(label, name, options, places.get(name), own_session) for label, name in names.items()
        ))  # fmt: skip

    @property
    def several(self) -> bool:
        """Whether the clone has several buses."""
        return len(self.buses) > 1

    @property
    def first(self) -> Bus:
        """The first bus."""
        return self.buses[0]

    def ask(
        self,
        work: Callable[[Client], T],
        *,
        at_once: bool = True,
        is_enough: Callable[[Mapping[int, Answer[T]]], bool] = lambda _: False,
    ) -> list[Answer[T]]:
        """Ask all buses side by side, each for a limited time. A single one is asked as usual, and may raise.

        Without ``at_once``, they are asked one after another. ``is_enough`` says of the answers so far, by the number
        of the bus, whether the others are needed.
        """
        if not self.several:
            client = self.first.client
            return [Answer(self.first, work(client), client=client)]
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

        for number, bus in enumerate(self.buses):
            thread = threading.Thread(target=ask, args=(number, bus), daemon=True)
            thread.start()
            if not at_once:
                thread.join(ANSWER_S + _WORK_S)
        until = time.monotonic() + ANSWER_S + _WORK_S
        while len(answers) < len(self.buses) and not is_enough(answers):
            try:
                number, answer = incoming.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                break
            answers[number] = answer
        if len(answers) < len(self.buses):
            # What still asks must not outlive this process.
            atexit.register(spawn.end_children)
        late = InfrastructureError(f"it gave no answer in {ANSWER_S + _WORK_S:g} s")
        return [answers.get(number, Answer(bus, error=late)) for number, bus in enumerate(self.buses)]

    def find(self, name: str | None = None) -> Run:
        """Return a request by its branch, its nonce or a part of either, from the bus that has it.

        Raises:
            UsageError: no request fits, several do, or several buses have it.
            InfrastructureError: no bus has it, and one of them does not answer.
        """
        first = self.first.client
        if not self.several:
            return first.find(name)
        asked: list[Answer[dict[str, str]]] = []

        def listed() -> Iterable[str]:
            asked.extend(self._list_branches())
            return {branch: None for answer in asked for branch in answer.value or ()}

        try:
            branch = find_branch(name, first.sent, listed)
        except UsageError as error:
            _raise_if_silent(asked, error)
            raise
        for bus in self.buses:
            if bus.client.sent.was_sent_here(branch):
                return bus.run(branch)
        if not asked:
            asked = self._list_branches()
        having = [answer.bus for answer in asked if branch in (answer.value or ())]
        if not having and first.carriers.is_unforwarded(branch):
            having = [self.first]
        if len(having) == 1:
            return having[0].run(branch)
        if having:
            names = ", ".join(bus.label for bus in having)
            fix = Advice("Choose one with ", REMOTE, ".")
            raise UsageError(f"several buses have {branch}: {names}", fix=fix, code="ambiguous_bus")
        other = first.sent.other_bus(branch, [bus.remote for bus in self.buses])
        missing = no_such_request(branch, first.remote, other)
        missing.message = f"there is no request {branch} on {_labels(self.buses)}"
        _raise_if_silent(asked, missing)
        raise missing

    def _list_branches(self) -> list[Answer[dict[str, str]]]:
        return self.ask(lambda client: client.remote.list_branches(*client.patterns))

    def choose(
        self, preset: str, labels: Sequence[str] = (), key: str | None = None, who: str | None = None
    ) -> Bus:
        """Return the bus for a request: the first one on which a live runner offers the preset.

        If there is none, a bus on which a runner might take it, or that shares the preset, is better than another one.
        A request that was sent under the same idempotency key stays where it is.

        Raises:
            InfrastructureError: no bus answers.
        """
        if not self.several:
            return self.first
        if key is not None and (bus := self._bus_of_key(key, who)):
            return bus
        asked = self.ask(lambda client: _fitness(client, preset, labels), is_enough=_has_best)
        ranked = [(answer.value, i) for i, answer in enumerate(asked) if answer.value is not None]
        if ranked:
            return self.buses[min(ranked)[1]]
        raise silent_error(asked)

    def _bus_of_key(self, key: str, who: str | None) -> Bus | None:
        client = self.first.client
        # Neither the note nor the names depend on the content.
        own = idempotency.Key.of(
            key, who or identity(client.git).email, {}, idempotency.read_secret(client.git)
        )
        if noted := client.sent.keyed(own.note):
            for bus in self.buses:
                if bus.client.sent.was_sent_here(noted[0]):
                    return bus
        asked = self._list_branches()
        return next(
            (
                each.bus
                for each in asked
                if any(own.name_index(name) is not None for name in each.value or ())
            ),
            None,
        )

    def find_answer(self, preset: str, texts: Sequence[str], **content: Any) -> "tuple[Run, Reused] | None":
        """Return the earlier answer as ``Client.find_answer`` does, from the first bus that has one.

        ``texts`` are the parameters as ``NAME=VALUE``.
        """
        asked = self.ask(
            lambda client: client.find_answer(preset, read_values(client, preset, texts), **content)
        )
        for answer in asked:
            if answer.value is not None:
                run, known = answer.value
                return answer.bus.sent(run), known
        return None

    def newest(
        self, limit: int = 50, *, verified: bool = True, group: str | None = None
    ) -> tuple[list[tuple[Bus, Status]], list[Answer[list[Status]]]]:
        """Return the newest requests of all buses, newest first, each with its bus; and each bus's outcome.

        With ``group``, all requests of that group are returned.
        """
        asked = self.ask(lambda client: client.list(limit, verified=verified, group=group))
        rows = [(answer.bus, status) for answer in asked for status in answer.value or ()]
        if self.several:
            rows.sort(key=lambda row: age_sort_key(row[1].branch), reverse=True)
        return (rows[:limit] if group is None else rows), asked

    def all_presets(self) -> Presets:
        """Return the presets of all buses. If buses have presets of the same name, the first bus's counts.

        Raises:
            InfrastructureError: no bus answers.
        """
        asked = self.ask(lambda client: client.all_presets())
        if not self.several:
            (only,) = asked
            assert only.value is not None  # noqa: S101 - a single bus raises
            return only.value
        return _merged(asked)

    def pin(self) -> Pin | None:
        """Return the keys that are pinned for any of the buses. A request's answer needs a key of the request's bus.

        Raises:
            UsageError: a named key cannot be read.
        """
        pins: list[Pin] = []
        for answer in self.ask(lambda client: client.pin):
            if answer.error is not None:
                # A broken pin must not count as no pin.
                raise answer.error
            pins += [answer.value] if answer.value and answer.value not in pins else []
        keys = tuple(dict.fromkeys(key for pin in pins for key in pin.keys))
        return Pin(keys, " and ".join(dict.fromkeys(pin.source for pin in pins))) if pins else None

    def report_keys(self, named: str | None = None) -> ReportKeys:
        """Return the keys that may vouch for local reports."""
        keys = ReportKeys.find(self.first.client.git, self.first.remote, named)
        return replace(keys, pin=self.pin()) if self.several else keys


def read_values(client: Client, preset: str, texts: Sequence[str]) -> dict[str, Value]:
    """Return the values of parameters that are given as ``NAME=VALUE``. Raises a PresetError if they do not fit."""
    known = client.preset(preset)
    return known.read_params(split_params(texts, known.params))


def read_setting(git: Git) -> dict[str, str]:
    """Return the listed buses, as ``{label: remote}``.

    Raises:
        UsageError: two have the same label, or there are too many.
    """
    values = git_output.settings(git("config", "-z", "--get-regexp", r"^kakeya\.bus$", ok=(0, 1, 128)).stdout)
    pairs: list[tuple[str, str]] = []
    for _, value in values:
        label, has_label, remote = value.partition("=")
        is_pair = has_label and remote and _LABEL.fullmatch(label)
        pairs.append((label, remote) if is_pair else ("", value))
    # A label may be given to a bus that another value lists without one.
    labels = {remote: label for label, remote in reversed(pairs) if label}
    listed: dict[str, str] = {}
    for _, remote in pairs:
        if remote in listed.values():
            continue
        label = labels.get(remote) or _label_of(remote)
        if label in listed:
            fix = f"Give it another label: git config --add {SETTING} LABEL={remote}"
            raise UsageError(f"git's setting {SETTING} gives two buses the label {label}", fix=fix)
        listed[label] = remote
    if len(listed) > MOST:
        raise UsageError(f"git's setting {SETTING} lists {len(listed)} buses; {MOST} are the most")
    return listed


def _label_of(remote: str) -> str:
    """Return a label for a remote's name or address: the name, or the last part of the address."""
    if _LABEL.fullmatch(remote):
        return remote
    last = re.split(r"[/:]", remote.rstrip("/"))[-1].removesuffix(".git")
    return _UNFIT.sub("-", last).strip("-.")[:40] or "bus"


def _labels(buses: Sequence[Bus]) -> str:
    return ", ".join(bus.label for bus in buses)


def silent(asked: Iterable[Answer[Any]]) -> Iterator[tuple[str, str]]:
    """Yield the label of each bus that could not be asked, and why."""
    for answer in asked:
        if answer.error is not None:
            yield answer.bus.label, answer.error.message


def silent_error(asked: Sequence[Answer[Any]]) -> InfrastructureError:
    """Return the error if no bus answered, or if the needed one did not."""
    first = next(answer.error for answer in asked if answer.error is not None)
    reasons = "; ".join(f"{label}: {reason}" for label, reason in silent(asked))
    return InfrastructureError(f"a bus does not answer: {reasons}", fix=first.fix, code=first.code)


def _raise_if_silent(asked: Sequence[Answer[Any]], error: UsageError) -> None:
    """Raise an InfrastructureError in place of ``error`` if a bus that did not answer may have the request."""
    if any(answer.error is not None for answer in asked):
        raise InfrastructureError(
            f"{error.message}, as far as they answer; {silent_error(asked).message}",
            fix=silent_error(asked).fix,
        ) from error


def _fitness(client: Client, preset: str, labels: Sequence[str]) -> int:
    """Return how well a bus fits a request: 0 is best."""
    now = time.time()
    runners = [each for each in client.runners() if not each.lacks(labels)]
    alive = [each for each in runners if each.is_alive(now)]
    if any(_offers(each, preset) and _is_well(each) for each in alive):
        return 0
    if any(_offers(each, preset) for each in alive):
        return 1
    if any(each.record.presets is None for each in alive):
        return 2
    # Nobody lives there who offers it: somebody did, or the bus itself shares it.
    is_shared = f" on {client.remote.name}/" in client.presets.sources.get(preset, "")
    return 3 if is_shared or any(_offers(each, preset) for each in runners) else 4


def _has_best(answers: Mapping[int, Answer[int]]) -> bool:
    """Return whether a bus is the best one whatever the others answer."""
    for number in range(len(answers)):
        if number not in answers:
            return False
        if answers[number].value == 0:
            return True
    return False


def _offers(sighting: RunnerSighting, preset: str) -> bool:
    return preset in (sighting.record.presets or {})


def _is_well(sighting: RunnerSighting) -> bool:
    return sighting.record.state is RunnerState.SERVING and not sighting.record.reason


def _merged(asked: Sequence[Answer[Presets]]) -> Presets:
    """Return the presets of all buses that answered, each with the runners of all buses that offer it."""
    known = [(answer.bus, answer.value) for answer in asked if answer.value is not None]
    if not known:
        raise silent_error(asked)
    whole = known[0][1]
    presets, broken, sources = dict(whole), dict(whole.broken), dict(whole.sources)
    notes = [*whole.notes]
    offers: dict[str, list[Any]] = {}
    announced = set(whole.announced)
    for bus, some in known:
        for name in some.offers:
            offers.setdefault(name, []).extend(replace(offer, bus=bus.label) for offer in some.offers[name])
        for name, preset in some.items():
            if name not in presets and name not in broken:
                presets[name], sources[name] = preset, some.sources[name]
                announced |= {name} & some.announced
        notes += [note for note in some.notes if note not in notes]
    notes += [f"the bus {label} is left out: {reason}" for label, reason in silent(asked)]
    merged = Presets(presets, broken, sources, notes)
    merged.announced, merged.offers = announced, offers
    return merged
