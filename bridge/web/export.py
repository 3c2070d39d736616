"""Writes the pages as static files, without scripts and with relative links."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bridge.client import Client
from bridge.common.advice import TRY_AGAIN_OR_CHECK
from bridge.common.whole_files import atomic_folder_write
from bridge.errors import InfrastructureError, UsageError
from bridge.web.figures import Figures
from bridge.web.pages import Links, Pages, assets, list_file
from bridge.web.runs import MOST_LOG, Runs
from bridge.web.snapshot import PAGE_ROWS, Filter, Row, Snapshot
from bridge.web.watch import Watch

# Marker file in every exported folder: only a folder with it is replaced.
MARK = ".kakeya-web"

POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'"


def export(client: Client, folder: Path, limit: int) -> int:
    """Write the pages of the newest ``limit`` requests into a folder, and return the number of files.

    An earlier export is replaced only after the new one is complete.

    Raises:
        UsageError: the folder contains other files.
        InfrastructureError: the bus cannot be read.
    """
    _check(folder)
    watch = Watch(client)
    current = watch.refresh()
    if current.problem:
        raise InfrastructureError(current.problem, fix=TRY_AGAIN_OR_CHECK)
    snapshot = replace(current, rows=current.rows[:limit])
    folder.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with atomic_folder_write(folder.absolute()) as pages:
        for path, text in _files(watch, snapshot):
            target = pages / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            count += 1
    return count


def _check(folder: Path) -> None:
    fix = "Name a new or empty folder, or one of an earlier export, with --export."
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder} is not a folder", fix=fix)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise UsageError(f"{folder} holds something else", fix=fix)


def _files(watch: Watch, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    runs = Runs(watch)
    figures = Figures(runs, lambda: snapshot)
    while figures.step():
        pass
    pages = Pages(watch.address, Links("", files=True), POLICY, lambda: figures.alarms, runs.shown)
    yield MARK, ""
    for name, (_, content) in assets().items():
        if not name.endswith(".js"):
            yield name, content
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
