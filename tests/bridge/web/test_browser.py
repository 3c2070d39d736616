"""The server in a real browser: live, by keyboard, in the dark, narrow, and with hostile text on every page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import requests

from bridge.bus import wire
from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from bridge.requests.status import status_of
from bridge.verify.verdict import Conclusion, Trust
from bridge.web.pages import Links, Pages, assets
from bridge.web.snapshot import Filter, Row, Snapshot
from tests.bridge.show.test_report_forms import PAYLOADS
from tests.browser import CHROMIUM, Browser

pytestmark = [pytest.mark.bus, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")]

POLL_S = 0.2
OURS = ['<link rel="stylesheet" href="/style.css">', '<script src="/page.js" defer=""></script>']


@pytest.fixture
def url(clone, jobs, tmp_path):
    """Serve the pages of the bus, and return their address."""
    log = tmp_path / "web.log"
    argv = [
        sys.executable,
        "-P",
        "-m",
        "bridge",
        "-C",
        str(clone),
        "web",
        "--port",
        "0",
        "--poll",
        f"{POLL_S}",
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=out)
    found = None
    while found is None and process.poll() is None:
        found = re.search(r"http://127\.0\.0\.1:[0-9]+/", log.read_text())
        time.sleep(0.02)
    assert found, log.read_text()
    yield found[0].rstrip("/")
    process.terminate()
    assert process.communicate(timeout=120)[0] == b""


@pytest.fixture
def browser(tmp_path):
    with Browser(tmp_path / "profile") as found:
        yield found


def test_a_page_follows_a_run_to_its_end_without_being_loaded_again(
    url, client, browser, jobs, keyed, tmp_path, runners
):
    go = tmp_path / "go"
    (tmp_path / "talk.py").write_text(
        "import pathlib, time\nfor i in range(20):\n    print('line', i, time.time(), flush=True); time.sleep(0.1)\n"
        f"    while i in (5, 12) and not pathlib.Path(f'{go}-{{i}}').exists(): time.sleep(0.1)\n"
    )
    run = client.run("talk")
    browser.open(f"{url}/")
    browser.wait("document.querySelectorAll('#waiting a.row').length === 1")
    browser.run("window.mark = 'the same page'")
    runners.start(preset_folder=str(jobs), bus={"poll_s": 0.1, "pushes_per_minute": 600})
    browser.wait("document.querySelectorAll('#running a.row').length === 1")
    assert browser.run("window.mark") == "the same page"

    browser.open(f"{url}/run/{run.branch}")
    browser.wait("document.getElementById('log')?.textContent.includes('line 3')")
    browser.run("window.mark = 'the same page'")
    go.with_name("go-5").touch()
    browser.wait("document.getElementById('log')?.textContent.includes('line 10')")
    go.with_name("go-12").touch()
    browser.wait("document.querySelector('.badge').textContent === 'succeeded'", timeout=60)
    assert browser.run("window.mark") == "the same page"
    assert browser.said() == []


def test_hostile_text_on_every_page_stays_text(url, client, browser, jobs, keyed, forger):
    runs = [client.run("noop", requested_by="ada") for _ in range(3)]
    keyed.handle(preset_folder=str(jobs))
    ended, running, waiting = (run.branch for run in runs)
    text = "".join(PAYLOADS.values()).replace("\x00", "\\0")
    forger.rewrite(
        ended, {f"{wire.LOGS}/noop-0.log": text.encode()}, reason={"code": "x", "message": text[:900]}
    )
    for branch, state in ((running, "running"), (waiting, "requested")):
        made = wire.parse_state(forger.read(branch, wire.STATE))
        runner = made.runner.model_copy(update={"id": PAYLOADS["an end of an attribute"]})
        about = {"state": State(state), "detail": text[:900], "runner": runner}
        stream = f"{text}\n".encode()
        forger.put(branch, {wire.STATE: made.model_copy(update=about).to_bytes(), wire.STREAM: stream})
    until = time.monotonic() + 120
    while "onmouseover" not in requests.get(f"{url}/", timeout=120).text:
        assert time.monotonic() < until
    for path in ("/", *(f"/run/{run.branch}" for run in runs), f"/log/{ended}", f"/log/{running}", "/trends"):
        browser.open(url + path)
        time.sleep(0.7)
        assert browser.said() == [], path
        elements = "[...document.querySelectorAll('script, img, iframe, link, style, [onclick], [onerror]')]"
        names = browser.run(f"{elements}.map((one) => one.outerHTML)")
        plain = path.startswith("/log/")
        assert names == ([] if plain else OURS), path
        assert all(asked.startswith((url, "data:")) for asked in browser.asked()), path


def test_keys_move_open_filter_and_go_back(url, client, browser):
    runs = sorted(client.run("noop").branch for _ in range(3))
    browser.open(f"{url}/")
    browser.wait("document.querySelectorAll('#waiting a.row').length === 3")

    for key in "jjk":
        browser.press(key)
    assert browser.run("document.activeElement.getAttribute('href')") == f"/run/{runs[0]}"
    browser.press("j")
    browser.press("Enter")
    browser.wait(
        f"location.pathname === {json.dumps(f'/run/{runs[1]}')} && document.readyState === 'complete'"
    )
    browser.press("u")
    browser.wait("location.pathname === '/' && document.readyState === 'complete'")
    browser.press("/")
    assert browser.run("document.activeElement.name") == "preset"
    browser.press("Escape")
    browser.press("Tab")
    assert browser.run("document.activeElement.matches(':focus-visible')")
    # Whoever has no mouse can skip what stands above.
    browser.open(f"{url}/")
    browser.press("Tab")
    assert browser.run("document.activeElement.className") == "skip"


def test_a_filter_is_chosen_by_keyboard_while_requests_arrive(url, client, browser, jobs, keyed):
    for preset in ("noop", "measure"):
        client.run(preset)
    keyed.handle(preset_folder=str(jobs))
    browser.open(f"{url}/")
    browser.wait("document.querySelectorAll('#list a.row').length === 2")
    # The choices are those of when the page was loaded.
    browser.open(f"{url}/")
    browser.run("window.mark = 'the same page'")
    browser.press("/")
    for count in (1, 2):
        browser.press("ArrowDown")
        # The first new request also brings a section that was not there.
        client.run("noop")
        browser.wait(f"document.querySelectorAll('#waiting a.row').length === {count}")
        at = "[document.activeElement.name, document.activeElement.selectedIndex, location.search, window.mark]"
        assert browser.run(at) == ["preset", count, "", "the same page"]
    browser.press("Tab")
    browser.press("Tab")
    browser.press("Tab")
    browser.press("Enter")
    browser.wait("location.search.includes('preset=') && document.readyState === 'complete'")


def test_a_link_keeps_the_focus_while_requests_arrive(url, client, browser):
    first = client.run("noop").branch
    browser.open(f"{url}/")
    browser.wait("document.querySelectorAll('#waiting a.row').length === 1")
    browser.press("j")
    for count in (2, 3):
        client.run("noop")
        browser.wait(f"document.querySelectorAll('#waiting a.row').length === {count}")
        assert browser.run("document.activeElement.getAttribute('href')") == f"/run/{first}"


def test_nothing_overflows_and_all_text_can_be_read(url, client, browser, jobs, keyed):
    """Contrast as WCAG 2 asks for it: at least 4.5 to 1."""
    # The names of requests with a key are the longest.
    run = client.run("noop", idempotency_key="wide")
    keyed.handle(preset_folder=str(jobs))
    client.run("talk", idempotency_key="wide too")
    until = time.monotonic() + 120
    while "Waiting" not in requests.get(f"{url}/", timeout=120).text:
        assert time.monotonic() < until
    for path in ("/", f"/run/{run.branch}", "/trends"):
        browser.open(url + path)
        for width, dark in ((320, True), (480, False), (800, True), (1400, False)):
            browser.look(width=width, dark=dark)
            assert browser.run("document.documentElement.scrollWidth") <= width, (path, width)
            assert browser.run(CONTRAST) == [], (path, dark)
            narrow = "[...document.querySelectorAll('a.row')].filter((one) => one.clientWidth < 150).length"
            assert browser.run(narrow) == 0, (path, width)


def test_no_column_squeezes_the_text_of_another(browser, tmp_path):
    """Each cell with text is at least 12 characters wide, however long the texts beside it are."""
    text = "window=128 " * 8
    content = ("requester@" + "example." * 8 + "org", text)
    rows = []

    def shown(row):
        return Conclusion(row.state, "ACCEPTED_BY_REQUESTER", Trust.SIGNED, "runner-" * 9)

    for i, state in enumerate((State.SUCCEEDED, State.RUNNING, State.REQUESTED)):
        branch = f"mac-bridge/{'k3-fused-allmlx-' * 4}x-{1_795_000_000 + i}-abcdef12"
        read = RequestBranch(branch, f"{i:040x}", f"{i:040x}", None, None, has_foreign_commits=False)
        status = replace(status_of(read), state=state, detail=text, runner="runner-" * 10)
        rows.append(Row(status, read, 1_795_000_000, *content))
    page = Pages("the bus", Links("", files=True), shown=shown).requests(
        Snapshot(tuple(rows), at=1.0), Filter(), 1
    )
    for name, body in {"index.html": page, **{name: body for name, (_, body) in assets().items()}}.items():
        (tmp_path / name).write_text(body, encoding="utf-8")
    browser.open((tmp_path / "index.html").as_uri())
    for width in (320, 700, 1060, 1280, 1920):
        browser.look(width=width)
        assert browser.run("document.documentElement.scrollWidth") <= width, width
        assert browser.run(SQUEEZED) == [], width


# A character is about half as wide as it is high.
SQUEEZED = """
[...document.querySelectorAll('.list td:not(.n)')]
  .filter((cell) => cell.textContent.trim().length > 12)
  .filter((cell) => cell.scrollWidth > cell.clientWidth
    || cell.querySelector('.badge') === null && cell.clientWidth < 6 * parseFloat(getComputedStyle(cell).fontSize))
  .map((cell) => `${cell.clientWidth} pixels: ${cell.textContent.trim()}`)
"""


CONTRAST = """
(() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = ([r, g, b]) => [r, g, b]
    .map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const color = rgb(getComputedStyle(one).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const one of document.querySelectorAll("body *")) {
    const text = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!text || one.closest("svg, option") || !one.offsetParent) continue;
    const pair = [light(rgb(getComputedStyle(one).color)), light(behind(one))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < 4.5) found.push(`${one.tagName}.${one.className} ${ratio.toFixed(2)}`);
  }
  return found;
})()
"""
