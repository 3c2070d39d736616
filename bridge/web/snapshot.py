"""The state of the bus after one poll: every request with its status. Immutable, so that all pages can share it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from bridge.presets import Presets
from bridge.requests.sighting import RunnerSighting
from bridge.requests.status import Status

PAGE_ROWS = 100
# A filter offers at most this many choices; others can be typed into the address.
_CHOICES = 200


@dataclass(frozen=True)
class Row:
    """One request in a list."""

    status: Status
    request_branch: RequestBranch
    requested_at: int
    # The requester's name, as the manifest says; nobody has checked it. Empty if the manifest cannot be read.
    requester: str = ""
    params: str = ""

    @property
    def branch(self) -> str:
        """The request's branch."""
        return self.status.branch

    @property
    def state(self) -> State:
        """The request's state."""
        return self.status.state


@dataclass(frozen=True)
class Filter:
    """Selects the listed requests. An empty text matches all."""

    preset: str = ""
    state: str = ""
    requester: str = ""
    # The id of a sweep's group.
    group: str = ""

    def fits(self, row: Row) -> bool:
        """Return whether a request is listed."""
        return (
            self.preset in ("", row.status.preset)
            and self.state in ("", row.state)
            and self.requester in ("", row.requester)
            and self.group in ("", row.status.group)
        )

    def as_params(self) -> dict[str, str]:
        """Return the query parameters of this filter."""
        params = {
            "preset": self.preset,
            "state": self.state,
            "requester": self.requester,
            "group": self.group,
        }
        return {name: value for name, value in params.items() if value}


@dataclass(frozen=True)
class Listing:
    """One page of a list."""

    rows: tuple[Row, ...]
    total: int
    page: int
    pages: int


@dataclass(frozen=True)
class Snapshot:
    """All requests, the newest first, as of the last successful poll."""

    rows: tuple[Row, ...] = ()
    runners: tuple[RunnerSighting, ...] = ()
    # The presets that can be requested, with the runners that offer them.
    presets: Presets = field(default_factory=lambda: Presets({}, {}))
    # The time of the poll by this machine's clock, and the error of the latest poll if that failed, with the
    # fix.
    at: float = 0.0
    problem: str = ""
    fix: str = ""
    # Incremented with each change, so that a page can ask for news.
    version: int = 0
    changed: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def by_branch(self) -> dict[str, Row]:
        """The requests by branch."""
        return {row.branch: row for row in self.rows}

    @cached_property
    def waiting(self) -> list[Row]:
        """Unclaimed requests, the oldest first."""
        return [row for row in reversed(self.rows) if row.state is State.REQUESTED]

    @cached_property
    def running(self) -> list[Row]:
        """Requests that a runner holds, the oldest first."""
        return [row for row in reversed(self.rows) if row.state.is_taken]

    @cached_property
    def ended(self) -> tuple[Row, ...]:
        """Answered requests, the newest first."""
        return tuple(row for row in self.rows if row.state.is_final)

    @cached_property
    def choices(self) -> dict[str, list[tuple[str, int]]]:
        """The choices of each filter, with the number of matching requests."""
        choices = {
            "preset": Counter(row.status.preset or "" for row in self.rows),
            "state": Counter(str(row.state) for row in self.rows),
            "requester": Counter(row.requester for row in self.rows),
        }
        return {
            name: sorted((value, count) for value, count in counts.most_common(_CHOICES) if value)
            for name, counts in choices.items()
        }

    def listing(self, wanted: Filter, page: int, size: int = PAGE_ROWS) -> Listing:
        """Return one page of matching requests, counted from 1. A number beyond the last page gives the last page.

        Without a filter, only ended requests are listed, because the others are shown above the list.
        """
        rows = self.ended if wanted == Filter() else tuple(row for row in self.rows if wanted.fits(row))
        pages = max(1, -(-len(rows) // size))
        page = min(max(1, page), pages)
        return Listing(rows[(page - 1) * size : page * size], len(rows), page, pages)
