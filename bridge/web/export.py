"""Writes the pages as static files, without scripts and with relative links."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bridge.buses import Buses, silent_error
from bridge.client import Client
from bridge.common.advice import TRY_AGAIN_OR_CHECK
from bridge.common.whole_files import atomic_folder_write
from bridge.errors import InfrastructureError, UsageError
from bridge.web.figures import Figures
from bridge.web.pages import BusView, Links, Pages, assets, bus_links, list_file, overview
from bridge.web.runs import MOST_LOG, Runs
from bridge.web.snapshot import PAGE_ROWS, Filter, Row, Snapshot
from bridge.web.watch import Watch

# Marker file in every exported folder: only a folder with it is replaced.
MARK = ".kakeya-web"

POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'"


def export(buses: Buses, folder: Path, limit: int) -> int:
    """Write the pages of the newest ``limit`` requests into a folder, and return the number of files.

    An earlier export is replaced only after the new one is complete.

    Raises:
        UsageError: the folder contains other files.
        InfrastructureError: the bus, or each of several, cannot be read.
    """
    _check(folder)
    views, watches = _read(buses, limit)
    folder.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with atomic_folder_write(folder.absolute()) as pages:
        for path, text in _all_files(views, watches):
            target = pages / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            count += 1
    return count


def _read(buses: Buses, limit: int) -> tuple[list[BusView], dict[str, Watch]]:
    """Read all buses. Returns their views, and the watch of each that could be read."""

    def read(client: Client) -> tuple[Watch, Snapshot]:
        watch = Watch(client)
        current = watch.refresh()
        if current.problem:
            raise InfrastructureError(current.problem, fix=TRY_AGAIN_OR_CHECK)
        return watch, replace(current, rows=current.rows[:limit])

    answers = buses.ask(read)
    if all(answer.error for answer in answers):
        raise silent_error(answers)
    views, watches = list[BusView](), dict[str, Watch]()
    for answer in answers:
        label = answer.bus.label if buses.several else ""
        if answer.value is None:
            views.append(BusView(label, problem=answer.error.message if answer.error else ""))
            continue
        watches[label], snapshot = answer.value
        views.append(BusView(label, snapshot=snapshot))
    return views, watches


def _all_files(views: Sequence[BusView], watches: Mapping[str, Watch]) -> Iterator[tuple[str, str]]:
    if not views[0].label:
        yield from _files(watches[""], views[0].snapshot, Links("", files=True))
        return
    shown = []
    for view in views:
        if view.label not in watches:
            shown.append(view)
            continue
        folder = f"bus/{view.label}/"
        links = bus_links(view.label, files=True)
        for path, text in _files(watches[view.label], view.snapshot, links):
            yield f"{folder}{path}", text
        shown.append(replace(view, pages=Pages("", replace(links, root=folder))))
    yield MARK, ""
    yield from _sheets()
    yield "index.html", overview(shown, files=True, policy=POLICY)


def _sheets() -> Iterator[tuple[str, str]]:
    for name, (_, content) in assets().items():
        if not name.endswith(".js"):
            yield name, content


def _check(folder: Path) -> None:
    fix = "Name a new or empty folder, or one of an earlier export, with --export."
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder} is not a folder", fix=fix)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise UsageError(f"{folder} holds something else", fix=fix)


def _files(watch: Watch, snapshot: Snapshot, links: Links) -> Iterator[tuple[str, str]]:
    runs = Runs(watch)
    figures = Figures(runs, lambda: snapshot)
    while figures.step():
        pass
    pages = Pages(watch.address, links, POLICY, lambda: figures.alarms, runs.shown)
    yield MARK, ""
    yield from _sheets()
    # The list comes last: by then every answer was verified.
    for row in snapshot.rows:
        yield from _request(runs, pages, snapshot, row)
    for page in range(1, snapshot.listing(Filter(), 1, PAGE_ROWS).pages + 1):
        yield list_file(page), pages.requests(snapshot, Filter(), page)
    yield "presets.html", pages.presets(snapshot)
    yield "trends.html", pages.trends(snapshot, figures.trends(), figures.progress())


def _request(runs: Runs, pages: Pages, snapshot: Snapshot, row: Row) -> Iterator[tuple[str, str]]:
    # Git has no branch below another branch, so the paths of pages do not collide. `is_safe` forbids `..`.
    folder = f"run/{row.branch}"
    there = pages.at("../" * (folder.count("/") + 1))
    if row.status.answered:
        yield f"{folder}/index.html", there.request(snapshot, row, runs.answered(row.request_branch), None)
    else:
        yield f"{folder}/index.html", there.request(snapshot, row, None, runs.log(row.request_branch))
    yield f"{folder}/log.txt", runs.log(row.request_branch, MOST_LOG).text
