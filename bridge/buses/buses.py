"""The buses that a clone uses, in the order of its settings."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bridge.bus.branch_names import age_sort_key
from bridge.buses.asking import Answer, Bus, ask_all, raise_if_silent, silent_error
from bridge.buses.choice import fitness, has_best, merged_presets
from bridge.buses.setting import read_setting
from bridge.client import Client, Run
from bridge.common.advice import REMOTE, Advice
from bridge.errors import UsageError
from bridge.presets import Presets, split_params
from bridge.presets.params import Value
from bridge.requests import idempotency
from bridge.requests.groups.names import GROUP, check_group, group_of
from bridge.requests.outbox import DEFAULT_REMOTE, find_branch, no_such_request, place_of
from bridge.requests.request_commit import identity
from bridge.requests.status import Status
from bridge.system.git import open_repository
from bridge.verify.public_keys import Pin, ReportKeys

if TYPE_CHECKING:
    from bridge.requests.answered.reuse import Reused

T = TypeVar("T")


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
        return ask_all(self.buses, work, at_once=at_once, is_enough=is_enough)

    def group_id(self, name: str | None = None) -> str | None:
        """Return the id of the sweep that a name means: the name itself; without a name, the sweep that was sent last.

        None if the name means a request, or if what was sent last is one.
        """
        if name is not None:
            return name if GROUP.fullmatch(name) else None
        sent = self.first.client.sent.branches()
        return group_of(sent[-1]) if sent else None

    def find(self, name: str | None = None) -> Run:
        """Return a request by its branch, its nonce or a part of either, from the bus that has it.

        Raises:
            UsageError: no request fits, several do, or several buses have it.
            InfrastructureError: no bus has it, and one of them does not answer.
        """
        first = self.first.client
        if not self.several:
            return first.find(name)
        answers: list[Answer[dict[str, str]]] = []

        def listed() -> Iterable[str]:
            answers.extend(self._list_branches())
            return {branch: None for answer in answers for branch in answer.value or ()}

        try:
            branch = find_branch(name, first.sent, listed)
        except UsageError as error:
            raise_if_silent(answers, error)
            raise
        for bus in self.buses:
            if bus.client.sent.was_sent_here(branch):
                return bus.run(branch)
        if not answers:
            answers = self._list_branches()
        having = [answer.bus for answer in answers if branch in (answer.value or ())]
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
        raise_if_silent(answers, missing)
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
        answers = self.ask(lambda client: fitness(client, preset, labels), is_enough=has_best)
        ranked = [(answer.value, i) for i, answer in enumerate(answers) if answer.value is not None]
        if ranked:
            return self.buses[min(ranked)[1]]
        raise silent_error(answers)

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
        answers = self._list_branches()
        return next(
            (
                each.bus
                for each in answers
                if any(own.name_index(name) is not None for name in each.value or ())
            ),
            None,
        )

    def find_answer(self, preset: str, texts: Sequence[str], **content: Any) -> "tuple[Run, Reused] | None":
        """Return the earlier answer as ``Client.find_answer`` does, from the first bus that has one.

        ``texts`` are the parameters as ``NAME=VALUE``.
        """
        answers = self.ask(
            lambda client: client.find_answer(preset, read_values(client, preset, texts), **content)
        )
        for answer in answers:
            if answer.value is not None:
                run, known = answer.value
                return answer.bus.sent(run), known
        return None

    def newest(
        self, limit: int = 50, *, verified: bool = True, group: str | None = None
    ) -> tuple[list[tuple[Bus, Status]], list[Answer[list[Status]]]]:
        """Return the newest requests of all buses, newest first, each with its bus; and each bus's outcome.

        With ``group``, all requests of that group are returned.

        Raises:
            UsageError: ``group`` is not the id of a group.
        """
        if group is not None:
            check_group(group)
        answers = self.ask(lambda client: client.list(limit, verified=verified, group=group))
        rows = [(answer.bus, status) for answer in answers for status in answer.value or ()]
        if self.several:
            rows.sort(key=lambda row: age_sort_key(row[1].branch), reverse=True)
        return (rows[:limit] if group is None else rows), answers

    def all_presets(self) -> Presets:
        """Return the presets of all buses. If buses have presets of the same name, the first bus's counts.

        Raises:
            InfrastructureError: no bus answers.
        """
        answers = self.ask(lambda client: client.all_presets())
        if not self.several:
            (only,) = answers
            assert only.value is not None  # noqa: S101 - a single bus raises
            return only.value
        return merged_presets(answers)

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


def _labels(buses: Sequence[Bus]) -> str:
    return ", ".join(bus.label for bus in buses)
