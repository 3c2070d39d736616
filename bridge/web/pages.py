"""Renders each page as HTML: collects its content and fills its template."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from bridge.bus.wire import State
from bridge.presets.announced import runners_of
from bridge.requests.sighting import RunnerSighting
from bridge.show.alarm import WINDOW
from bridge.show.build import version
from bridge.show.forms.templates import render, style
from bridge.show.forms.words import spaced
from bridge.verify.verdict import Conclusion
from bridge.web.figures import Shown
from bridge.web.runs import Answered, LogText
from bridge.web.snapshot import PAGE_ROWS, Filter, Row, Snapshot

_TEMPLATES = Path(__file__).with_name("templates")

# How many waiting or running requests are shown above the list; the others are only in the list.
_ABOVE = 25

_TRENDS = 60
# Fewer than one in this many histories without a change raise an alarm: see bridge.show.alarm.
_ODDS = 100

# The Content-Security-Policy: only this server's style sheet, script and requests.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


@dataclass(frozen=True)
class Links:
    """The links of one page. ``root`` is the relative path to the first page. Exported files have no queries."""

    root: str = "/"
    files: bool = False
    # The label of the bus, if there are several.
    bus: str = ""

    @property
    def top(self) -> str:
        """The address of the page of all buses; empty if there is only one."""
        if not self.bus:
            return ""
        return f"{self.root}../../index.html" if self.files else "/"

    def home(self, page: int = 1, wanted: Filter | None = None) -> str:
        """Return the address of a page of the list."""
        if self.files:
            return f"{self.root}{list_file(page)}"
        params = (wanted.as_params() if wanted else {}) | ({"page": str(page)} if page > 1 else {})
        return self.root + (f"?{urlencode(params)}" if params else "")

    def group(self, group: str) -> str:
        """Return the address of the list of a group's requests."""
        return self.home(1, Filter(group=group))

    def run(self, branch: str) -> str:
        """Return the address of a request's page."""
        return f"{self.root}run/{quote(branch)}" + ("/index.html" if self.files else "")

    def log(self, branch: str) -> str:
        """Return the address of a request's log as plain text."""
        return f"{self.root}run/{quote(branch)}/log.txt" if self.files else f"{self.root}log/{quote(branch)}"

    def trends(self) -> str:
        """Return the address of the trends."""
        return f"{self.root}trends" + (".html" if self.files else "")

    def presets(self) -> str:
        """Return the address of the presets."""
        return f"{self.root}presets" + (".html" if self.files else "")

    def asset(self, name: str) -> str:
        """Return the address of the style sheet or the script."""
        return f"{self.root}{name}"


SERVED = Links()


def bus_links(label: str, *, files: bool = False) -> Links:
    """Return the links of one of several buses."""
    return Links("" if files else f"/bus/{quote(label)}/", files, label)


def list_file(page: int) -> str:
    """Return the name of the file with a page of the list."""
    return "index.html" if page == 1 else f"page-{page}.html"


class Pages:
    """The pages of one bus. ``links`` builds addresses. ``policy`` is the Content-Security-Policy of exported files."""

    def __init__(
        self, address: str, links: Links = SERVED, policy: str = "", alarms: Callable[[], int] = lambda: 0,
        shown: Callable[[Row], Conclusion] = lambda row: row.status.shown,
    ) -> None:  # fmt: skip
        self._address = address
        self._links = links
        self._policy = policy
        self._alarms = alarms
        # A function that returns what is known about a row's answer.
        self._shown = shown

    def at(self, root: str) -> "Pages":
        """Return the same pages for another folder level; ``root`` is the relative path to the first page."""
        links = replace(self._links, root=root)
        return Pages(self._address, links, self._policy, self._alarms, self._shown)

    @property
    def links(self) -> Links:
        """The addresses of these pages."""
        return self._links

    @property
    def shown(self) -> Callable[[Row], Conclusion]:
        """Returns what is known of a row's answer."""
        return self._shown

    def requests(self, snapshot: Snapshot, wanted: Filter, page: int, size: int = PAGE_ROWS) -> str:
        """Return a page of the list. The first page begins with the runners, the queue and the running jobs."""
        listing = snapshot.listing(wanted, page, size)
        is_first = wanted == Filter() and listing.page == 1
        states = list(State)
        counts = Counter(
            (row.state, shown.word, shown.grade) for row in snapshot.rows for shown in [self._shown(row)]
        )
        return self._render(
            "requests.html", snapshot, title="Requests", listing=listing, wanted=wanted, choices=snapshot.choices,
            runners=_with_availability(snapshot) if is_first else [],
            waiting=snapshot.waiting[:_ABOVE] if is_first else [],
            running=snapshot.running[:_ABOVE] if is_first else [],
            counts=sorted(counts.items(), key=lambda each: states.index(each[0][0])),
        )  # fmt: skip

    def request(self, snapshot: Snapshot, row: Row, answer: Answered | None, log: LogText | None) -> str:
        """Return the page of one request, with its answer or its log so far."""
        title = f"{row.status.preset} {spaced(self._shown(row).word)}"
        return self._render("request.html", snapshot, title=title, row=row, answer=answer, log=log)

    def trends(
        self, snapshot: Snapshot, shown: Sequence[Shown], progress: tuple[int, int], name: str = "", preset: str = ""
    ) -> str:  # fmt: skip
        """Return the page of trends."""
        return self._render(
            "trends.html", snapshot, title="Trends", shown=shown[:_TRENDS], more=max(0, len(shown) - _TRENDS),
            progress=progress, name=name, preset=preset, presets=[value for value, _ in snapshot.choices["preset"]],
            odds=_ODDS, window=WINDOW,
        )  # fmt: skip

    def presets(self, snapshot: Snapshot) -> str:
        """Return the page with the presets that can be requested."""
        known = snapshot.presets
        offers = {name: runners_of(known, name) for name in known}
        return self._render("presets.html", snapshot, title="Presets", known=known, offers=offers)

    def message(self, title: str, text: str, fix: str = "") -> str:
        """Return an error page."""
        return self._render("message.html", Snapshot(), title=title, text=text, fix=fix)

    def _render(self, name: str, snapshot: Snapshot, /, **values: Any) -> str:
        return render(
            name, _TEMPLATES, links=self._links, address=self._address, policy=self._policy, snapshot=snapshot,
            version=version(), alarms=self._alarms(), outcome=self._shown, **values,
        )  # fmt: skip


@dataclass(frozen=True)
class BusView:
    """What the page of all buses shows of one: its pages and snapshot; without pages, why there are none."""

    label: str
    pages: Pages | None = None
    snapshot: Snapshot = field(default_factory=Snapshot)
    problem: str = ""

    @property
    def runners(self) -> list[tuple[RunnerSighting, str]]:
        """The runners of the bus, each with its availability."""
        return _with_availability(self.snapshot)

    @property
    def recent(self) -> tuple[Row, ...]:
        """The requests that are shown, the newest first."""
        return self.snapshot.rows[:_ABOVE]


def overview(buses: Sequence[BusView], *, files: bool = False, policy: str = "") -> str:
    """Return the page of all buses."""
    links = Links("" if files else "/", files=files)
    return render(
        "buses.html", _TEMPLATES, links=links, address="", policy=policy, snapshot=Snapshot(), version=version(),
        alarms=0, title="Buses", buses=buses,
    )  # fmt: skip


def _with_availability(snapshot: Snapshot) -> list[tuple[RunnerSighting, str]]:
    now = time.time()
    return [(sighting, str(sighting.availability(now))) for sighting in snapshot.runners]


def assets() -> dict[str, tuple[str, str]]:
    """Return the files that pages load, as ``{name: (content type, content)}``."""
    here = resources.files("bridge.web").joinpath("static")
    sheet = str(style()) + here.joinpath("web.css").read_text(encoding="utf-8")
    return {
        "style.css": ("text/css", sheet),
        "page.js": ("text/javascript", here.joinpath("page.js").read_text(encoding="utf-8")),
    }
