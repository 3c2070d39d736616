"""The web server on loopback: its routes, a thread that polls the bus, and one that verifies answers for trends."""

import hashlib
import secrets
import threading
from collections.abc import Callable, Sequence

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from bridge.buses import Buses
from bridge.common import listening
from bridge.common.advice import TRY_AGAIN_OR_CHECK, Door, printed
from bridge.common.cli.output import say
from bridge.errors import KakeyaError, UsageError, as_kakeya_error
from bridge.system import spawn
from bridge.web.figures import Figures
from bridge.web.guard import Guard
from bridge.web.pages import SERVED, BusView, Links, Pages, assets, bus_links, overview
from bridge.web.runs import MOST_LOG, Runs
from bridge.web.snapshot import Filter, Row
from bridge.web.watch import Watch

MOST_CONNECTIONS = 64
# How long a poll of one of several buses may take.
_POLL_S = 60.0
_MOST_PAGE = 10**6
_MOST_VALUE = 200
_GONE = "There is no such request on the bus. It may have been deleted there, or belong to another bus."


class Site:
    """The pages of a bus that is being watched."""

    def __init__(self, watch: Watch, runs: Runs, figures: Figures, links: Links = SERVED) -> None:
        self._watch, self._runs, self._figures = watch, runs, figures
        self._pages = Pages(watch.address, links, alarms=lambda: figures.alarms, shown=runs.shown)
        # Makes ETags differ from those of an earlier server process.
        self._name = secrets.token_hex(8)
        self._assets = assets()
        # Rendering the page of a large answer takes tens of megabytes.
        self._turn = threading.BoundedSemaphore(2)

    def requests(self, request: Request) -> Response:
        """The list."""
        snapshot = self._watch.snapshot
        params = {name: value[:_MOST_VALUE] for name, value in request.query_params.items()}
        wanted = Filter(*(params.get(name, "") for name in ("preset", "state", "requester", "group")))
        page = params.get("page", "1")
        number = min(int(page), _MOST_PAGE) if page.isascii() and page.isdecimal() else 1
        version = snapshot.version, self._figures.alarms, self._runs.version
        return self._page(request, version, lambda: self._pages.requests(snapshot, wanted, number))

    def request(self, request: Request) -> Response:
        """One request."""
        snapshot, row = self._watch.snapshot, self._row(request)

        def make() -> str:
            if row.status.answered:
                answer = self._runs.answered(row.request_branch)
                with self._turn:
                    return self._pages.request(snapshot, row, answer, None)
            return self._pages.request(snapshot, row, None, self._runs.log(row.request_branch))

        version = snapshot.changed[row.branch], self._figures.alarms, snapshot.problem
        return self._page(request, version, make)

    def trends(self, request: Request) -> Response:
        """How figures changed."""
        snapshot = self._watch.snapshot
        name, preset = (request.query_params.get(key, "")[:_MOST_VALUE] for key in ("name", "preset"))

        def make() -> str:
            shown = self._figures.trends(name, preset)
            return self._pages.trends(snapshot, shown, self._figures.progress(), name, preset)

        return self._page(request, (snapshot.version, self._figures.version), make)

    def presets(self, request: Request) -> Response:
        """The page with the presets that can be requested."""
        snapshot = self._watch.snapshot
        version = snapshot.version, self._figures.alarms
        return self._page(request, version, lambda: self._pages.presets(snapshot))

    def log(self, request: Request) -> Response:
        """A log as plain text."""
        return PlainTextResponse(self._runs.log(self._row(request).request_branch, MOST_LOG).text)

    def asset(self, request: Request) -> Response:
        """The style sheet and the script."""
        kind, content = self._assets[request.url.path.rpartition("/")[2]]
        return Response(content, media_type=kind)

    def fault(self, request: Request, error: Exception) -> Response:
        """An error page."""
        del request
        if isinstance(error, HTTPException):
            text = _GONE if error.detail == _GONE else "There is no such page."
            return HTMLResponse(self._pages.message("Not found", text), error.status_code, error.headers)
        fault = as_kakeya_error(error)
        if not isinstance(error, KakeyaError):
            say(f"error: {fault.message}")
        fix = printed(fault.fix, Door.WEB) or ""
        return HTMLResponse(self._pages.message("This page cannot be shown", fault.message, fix), 500)

    def routes(self) -> list[Route]:
        """Return the routes of these pages."""
        root = self._pages.links.root
        return [
            Route(root, self.requests),
            Route(f"{root}trends", self.trends),
            Route(f"{root}presets", self.presets),
            Route(f"{root}run/{{branch:path}}", self.request),
            Route(f"{root}log/{{branch:path}}", self.log),
            *(Route(f"{root}{name}", self.asset) for name in self._assets),
        ]

    def view(self) -> BusView:
        """Return what the page of all buses shows."""
        return BusView(self._pages.links.bus, self._pages, self._watch.snapshot)

    @property
    def version(self) -> tuple[object, ...]:
        """Another value if the page of all buses has changed."""
        return self._watch.snapshot.version, self._runs.version

    def _row(self, request: Request) -> Row:
        row = self._watch.snapshot.by_branch.get(request.path_params["branch"])
        if row is None:
            raise HTTPException(404, _GONE)
        return row

    def _page(self, request: Request, version: tuple[object, ...], make: Callable[[], str]) -> Response:
        return _page(request, (self._name, version), make)


def _page(request: Request, version: object, make: Callable[[], str]) -> Response:
    digest = hashlib.sha256(repr(version).encode()).hexdigest()[:32]
    headers = {"ETag": f'"{digest}"'}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return HTMLResponse(make(), headers=headers)


class AllBuses:
    """The page of all buses, above the pages of each."""

    def __init__(self, sites: Sequence[Site | BusView]) -> None:
        self._sites = sites
        self._name = secrets.token_hex(8)

    def page(self, request: Request) -> Response:
        """The page."""
        version = [site.version if isinstance(site, Site) else "" for site in self._sites]
        return _page(request, (self._name, version), self._make)

    def _make(self) -> str:
        return overview([site.view() if isinstance(site, Site) else site for site in self._sites])


def make_app(watch: Watch, runs: Runs, figures: Figures, hosts: frozenset[str]) -> ASGIApp:
    """Return the ASGI application. ``hosts`` are the accepted values of the ``Host`` header."""
    site = Site(watch, runs, figures)
    return _app(site, site.routes(), hosts)


def _app(site: Site, routes: Sequence[Route], hosts: frozenset[str]) -> ASGIApp:
    app = Starlette(
        routes=routes, exception_handlers={404: site.fault, KakeyaError: site.fault, 500: site.fault}
    )
    app.router.redirect_slashes = False
    return Guard(app, hosts)


class Connection(listening.Connection):
    """A reader's connection. One that does not read its answer cannot block the others."""

    stalled_s = 30.0


def serve(buses: Buses, port: int, poll_s: float) -> None:
    """Serve until interrupted. Port 0 selects a free port. The address is printed on standard error.

    Any program on this machine can connect, and can read everything that this clone can fetch.
    """
    listener = listening.listen_here(port, "--port")
    port = listener.getsockname()[1]
    stop, hosts = threading.Event(), frozenset(listening.names(port))
    app = several_app(buses, stop, poll_s, hosts) if buses.several else _serve_one(buses, stop, poll_s, hosts)
    say(
        f"{'they are' if buses.several else 'the bus is'} at http://{listening.LOOPBACK}:{port}/ (^C ends this)"
    )
    config = listening.configure(app, MOST_CONNECTIONS, keep_alive_s=10, connection=Connection)
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        stop.set()
        spawn.end_children()


def _serve_one(buses: Buses, stop: threading.Event, poll_s: float, hosts: frozenset[str]) -> ASGIApp:
    watch = Watch(buses.first.client)
    say(f"reading the bus at {watch.address}")
    first = watch.refresh()
    if first.problem:
        say(f"the bus could not be read yet: {first.problem}")
    site = _start(watch, stop, poll_s, SERVED)
    return _app(site, site.routes(), hosts)


def several_app(buses: Buses, stop: threading.Event, poll_s: float, hosts: frozenset[str]) -> ASGIApp:
    """Return the application for several buses. Each is polled by a thread of its own, so none waits for another."""
    sites: list[Site | BusView] = []
    for answer in buses.ask(Watch):
        label, watch = answer.bus.label, answer.value
        if watch is None:
            reason = answer.error.message if answer.error else ""
            say(f"the bus {label} is left out: {reason}")
            sites.append(BusView(label, problem=reason))
            continue
        say(f"reading the bus {label} at {watch.address}")
        watch.limit_s = _POLL_S
        sites.append(_start(watch, stop, poll_s, bus_links(label)))
    read = [site for site in sites if isinstance(site, Site)]
    if not read:
        raise UsageError("no bus can be read", fix=TRY_AGAIN_OR_CHECK)
    top = [Route("/", AllBuses(sites).page), *(Route(f"/{name}", read[0].asset) for name in assets())]
    return _app(read[0], [*top, *(route for site in read for route in site.routes())], hosts)


def _start(watch: Watch, stop: threading.Event, poll_s: float, links: Links) -> Site:
    """Start to poll a bus and to verify its answers, and return its pages."""
    runs = Runs(watch)
    figures = Figures(runs, lambda: watch.snapshot)
    for work in (lambda: watch.run(stop, poll_s), lambda: figures.run(stop)):
        threading.Thread(target=work, daemon=True).start()
    return Site(watch, runs, figures, links)
