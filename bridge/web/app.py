"""The web server on loopback: its routes, a thread that polls the bus, and one that verifies answers for trends."""

import hashlib
import secrets
import threading
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from bridge.client import Client
from bridge.common import listening
from bridge.common.advice import Door, printed
from bridge.common.cli.output import say
from bridge.errors import KakeyaError, as_kakeya_error
from bridge.system import spawn
from bridge.web.figures import Figures
from bridge.web.guard import Guard
from bridge.web.pages import Pages, assets
from bridge.web.runs import MOST_LOG, Runs
from bridge.web.snapshot import Filter, Row
from bridge.web.watch import Watch

MOST_CONNECTIONS = 64
_MOST_PAGE = 10**6
_MOST_VALUE = 200
_GONE = "There is no such request on the bus. It may have been deleted there, or belong to another bus."


class Site:
    """The pages of a bus that is being watched."""

    def __init__(self, watch: Watch, runs: Runs, figures: Figures) -> None:
        self._watch, self._runs, self._figures = watch, runs, figures
        self._pages = Pages(watch.address, alarms=lambda: figures.alarms, shown=runs.shown)
        # Makes ETags differ from those of an earlier server process.
        self._name = secrets.token_hex(8)
        self._assets = assets()
        # Rendering the page of a large answer takes tens of megabytes.
        self._turn = threading.BoundedSemaphore(2)

    def requests(self, request: Request) -> Response:
        """The list."""
        snapshot = self._watch.snapshot
        params = {name: value[:_MOST_VALUE] for name, value in request.query_params.items()}
        wanted = Filter(params.get("preset", ""), params.get("state", ""), params.get("requester", ""))
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
        kind, content = self._assets[request.url.path.removeprefix("/")]
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

    def _row(self, request: Request) -> Row:
        row = self._watch.snapshot.by_branch.get(request.path_params["branch"])
        if row is None:
            raise HTTPException(404, _GONE)
        return row

    def _page(self, request: Request, version: tuple[object, ...], make: Callable[[], str]) -> Response:
        digest = hashlib.sha256(repr((self._name, version)).encode()).hexdigest()[:32]
        headers = {"ETag": f'"{digest}"'}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return HTMLResponse(make(), headers=headers)


def make_app(watch: Watch, runs: Runs, figures: Figures, hosts: frozenset[str]) -> ASGIApp:
    """Return the ASGI application. ``hosts`` are the accepted values of the ``Host`` header."""
    site = Site(watch, runs, figures)
    routes = [
        Route("/", site.requests),
        Route("/trends", site.trends),
        Route("/presets", site.presets),
        Route("/run/{branch:path}", site.request),
        Route("/log/{branch:path}", site.log),
        *(Route(f"/{name}", site.asset) for name in assets()),
    ]
    app = Starlette(
        routes=routes, exception_handlers={404: site.fault, KakeyaError: site.fault, 500: site.fault}
    )
    app.router.redirect_slashes = False
    return Guard(app, hosts)


class Connection(listening.Connection):
    """A reader's connection. One that does not read its answer cannot block the others."""

    stalled_s = 30.0


def serve(client: Client, port: int, poll_s: float) -> None:
    """Serve until interrupted. Port 0 selects a free port. The address is printed on standard error.

    Any program on this machine can connect, and can read everything that this clone can fetch.
    """
    listener = listening.listen_here(port, "--port")
    port = listener.getsockname()[1]
    watch, stop = Watch(client), threading.Event()
    say(f"reading the bus at {watch.address}")
    first = watch.refresh()
    if first.problem:
        say(f"the bus could not be read yet: {first.problem}")
    runs = Runs(watch)
    figures = Figures(runs, lambda: watch.snapshot)
    for work in (lambda: watch.run(stop, poll_s), lambda: figures.run(stop)):
        threading.Thread(target=work, daemon=True).start()
    app = make_app(watch, runs, figures, frozenset(listening.names(port)))
    say(f"the bus is at http://{listening.LOOPBACK}:{port}/ (^C ends this)")
    config = listening.configure(app, MOST_CONNECTIONS, keep_alive_s=10, connection=Connection)
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        stop.set()
        spawn.end_children()
