"""The pages as files: whole, relative, without a script, and never in the place of something else."""

from __future__ import annotations

import re
import time
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from bridge.buses import Buses
from bridge.errors import InfrastructureError, UsageError
from bridge.web.export import MARK, export

pytestmark = pytest.mark.bus


def links_of(page: Path) -> set[Path]:
    found = re.findall(r'(?:href|src|action)="([^"]*)"', page.read_text(encoding="utf-8"))
    return {(page.parent / unquote(unescape(one))).resolve() for one in found if not one.startswith("#")}


def test_every_link_leads_to_a_file_and_nothing_runs(web, jobs, keyed, tmp_path):
    runs = [web.client.run("noop") for _ in range(2)]
    keyed.handle(preset_folder=str(jobs))
    runs.append(web.client.run("talk"))
    folder = tmp_path / "site"

    count = export(Buses.of(web.client.git.directory), folder, 100)

    files = [path for path in folder.rglob("*") if path.is_file()]
    pages = [path for path in files if path.suffix == ".html"]
    assert count == len(files)
    assert len(pages) == 3 + len(runs)
    assert not [path for path in files if path.suffix == ".js"]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "<script" not in text
        assert "<form" not in text
        assert 'http-equiv="Content-Security-Policy" content="default-src ' in text
        assert all(link.is_file() and link.is_relative_to(folder) for link in links_of(page)), page
    reached, new = set(), {folder / "index.html"}
    while new:
        reached |= new
        new = {link for page in new if page.suffix == ".html" for link in links_of(page)} - reached
    assert reached == {path for path in files if path.name != MARK}
    assert (folder / "run" / runs[0].branch / "log.txt").read_text() == "done\n"


def test_an_earlier_export_is_replaced_and_a_limit_kept(web, tmp_path):
    folder = tmp_path / "site"
    old = web.client.run("noop")
    export(Buses.of(web.client.git.directory), folder, 1)
    time.sleep(1 - time.time() % 1)  # names tell which is newer by the second
    new = web.client.run("noop")
    export(Buses.of(web.client.git.directory), folder, 1)

    assert not (folder / "run" / old.branch).exists()
    assert (folder / "run" / new.branch / "index.html").is_file()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".kakeya-web")] == []


def test_what_is_no_export_stays(web, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")

    for name in ("full", "link", "file"):
        with pytest.raises(UsageError):
            export(Buses.of(web.client.git.directory), tmp_path / name, 10)

    assert [path.name for path in full.iterdir()] == ["mine"]


def test_without_a_bus_nothing_is_written(web, bus, tmp_path):
    export(Buses.of(web.client.git.directory), tmp_path / "site", 10)
    bus.rename(bus.with_name("away"))

    with pytest.raises(InfrastructureError):
        export(Buses.of(web.client.git.directory), tmp_path / "site", 10)

    assert (tmp_path / "site" / "index.html").is_file()
