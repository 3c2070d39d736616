"""The page of presets: the same as `kakeya presets` shows, whoever wrote a definition."""

from __future__ import annotations

import html
import re
import shutil

import pytest

from bridge.bus.folder import bus_folder
from bridge.buses import Buses
from bridge.client import Client
from bridge.presets.announced import runners_of
from bridge.web import watch
from bridge.web.export import export
from tests.bridge.requests.test_offers import Announce, announce, preset
from tests.bridge.web.conftest import Web

pytestmark = pytest.mark.bus

__all__ = ["Announce", "announce"]


@pytest.fixture(autouse=True)
def _afresh():
    bus_folder.forget()
    yield
    bus_folder.forget()


def rows(page):
    """Return the cells of each row, by the name of its preset."""
    parts = re.findall(r"<tr><td><strong>(.*?)</strong></td>(.*?)</tr>", page, re.DOTALL)
    return {
        name: [
            " ".join(html.unescape(re.sub(r"<[^>]*>", " ", cell)).split())
            for cell in cells.split("</td>")[:-1]
        ]
        for name, cells in parts
    }


@pytest.fixture
def share(clone, git):
    """Put a file into .kakeya/presets on the bus's default branch, and nowhere else."""

    def put(name, text):
        folder = clone / ".kakeya/presets"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.yaml").write_text(text)
        git(clone, "add", f".kakeya/presets/{name}.yaml")
        git(clone, "commit", "--quiet", "--message", "Share a preset")
        git(clone, "push", "--quiet", "origin", "HEAD:main")
        shutil.rmtree(clone / ".kakeya")
        bus_folder.forget()

    return put


SHARED = "{name: shared, description: Shared., code: installed, timeout_s: 9, steps: [{argv: [/bin/true]}]}"


def test_each_preset_has_its_place_and_its_runners(clone, jobs, announce, share):
    share("shared", SHARED)
    announce(preset(), preset("noop"))
    client = Client(clone)
    web = Web(client)

    web.page()
    shown = rows(web.page("/presets"))

    known = client.all_presets()
    assert [*shown] == [*known]
    for name, cells in shown.items():
        assert cells[2:] == [known.sources[name], runners_of(known, name) or "no runner offers it now"]
    assert shown["mine"][0] == "Say it."
    assert shown["mine"][1] == "n n: a whole number from 1 to 3; default 1; how many"
    assert shown["mine"][2] == "announced by mac, an unknown runner: no pinned key signed this"
    assert shown["shared"][2] == ".kakeya/presets on origin/main"
    assert shown["noop"][3] == "mac (defined differently there)"


def test_what_is_new_on_the_bus_is_shown_within_a_minute(clone, announce, share, monkeypatch):
    web = Web(Client(clone))
    web.page()
    before = web.ask("/presets")
    assert "shared" not in rows(before.text)

    share("shared", SHARED)
    share("broken", SHARED.replace("timeout_s", "timeout"))
    announce(preset())
    web.page()
    assert {"mine"} == rows(web.page("/presets")).keys() - rows(before.text).keys()
    monkeypatch.setattr(watch, "PRESETS_S", 0.0)
    web.page()
    after = web.ask("/presets", if_none_match=before.headers["etag"])
    assert {"mine", "shared"} == rows(after.text).keys() - rows(before.text).keys()
    assert "broken cannot be used (.kakeya/presets on origin/main)" in after.text
    assert "did you mean timeout_s?" in after.text
    assert web.ask("/presets", if_none_match=after.headers["etag"]).status_code == 304


def test_without_the_bus_the_presets_here_are_shown(clone, bus):
    bus.rename(bus.with_name("away.git"))
    web = Web(Client(clone))

    page = web.page("/presets")

    assert rows(page)["noop"][2:] == ["built-in", "no runner offers it now"]
    assert "the presets on the bus are those that were last seen" in page
    assert "The bus could not be read" in page


def test_row_147_an_announcement_cannot_control_a_page(clone, announce, tmp_path):
    text = "<script>alert(1)</script>\x1b[2J&\u202e"
    params = {"n": {"type": "int", "min": 1, "max": 3, "default": 1, "help": text}}
    announce(preset(description=text, params=params))
    web = Web(Client(clone))
    web.page()

    page = web.page("/presets")
    export(Buses.of(web.client.git.directory), tmp_path / "site", 1)

    for text in (page, (tmp_path / "site/presets.html").read_text()):
        assert "alert(1)" in text
        assert not re.search(r"<script>|\x1b|\u202e", text)
