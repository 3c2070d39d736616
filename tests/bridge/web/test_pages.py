"""What the pages of a real bus show, whoever wrote what lies on it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from bridge.bus import wire
from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from bridge.buses import Buses
from bridge.client import Client
from bridge.groups import Ask, start
from bridge.presets.points import Points
from bridge.requests.status import status_of
from bridge.web.snapshot import Filter, Row, Snapshot
from tests.bridge.show.test_report_forms import PAYLOADS
from tests.bridge.web.conftest import Web


class Structure(HTMLParser):
    """The elements of a page with the names of their attributes."""

    def __init__(self, text):
        super().__init__()
        self.seen = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, sorted(name for name, _ in attrs)))

    def handle_endtag(self, tag):
        self.seen.append(tag)


def text_of(page):
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


@pytest.mark.bus
class TestRealBus:
    def test_a_request_from_waiting_to_its_verified_answer(self, web, jobs, keyed, clone, git):
        git(clone, "config", "kakeya.publicKey", str(keyed.key()))
        web = Web(Client(clone))
        assert "There are no requests on this bus" in web.page()

        run = web.client.run("noop", requested_by="ada@example.org")
        waiting = web.page()
        assert "no runner has announced itself on this bus." in text_of(waiting)
        assert "ada@example.org" in waiting
        assert "It waits: no runner has announced itself" in text_of(web.page(f"/run/{run.branch}"))

        keyed.handle(preset_folder=str(jobs))
        assert "succeeded" in text_of(web.page())
        answered = text_of(web.page(f"/run/{run.branch}"))
        assert "signed with a pinned key" in answered
        assert "every step ended with 0" in answered
        assert f"kakeya verify {run.branch}" in answered
        assert web.page(f"/log/{run.branch}") == "done\n"

    def test_the_list_has_the_parameters_and_the_verdict_of_each_request(self, web, jobs, keyed, forger):
        run = web.client.run("count", {"n": 7})
        assert "n=7" in web.page()
        keyed.handle(preset_folder=str(jobs))
        forger.rewrite(run.branch, gate={"verdict": "REJECTED"})

        page = text_of(web.page())
        assert "n=7" in page
        assert "succeeded not verified" in page
        # The verdict in an answer counts once the answer was verified.
        web.figures.step()
        page = text_of(web.page())
        assert "does not hold" in page
        assert "succeeded" not in page.partition("age")[2].partition("n=7")[0]

    @pytest.mark.long
    def test_a_log_that_grows_and_the_end_of_the_job(self, web, jobs, tmp_path, runners, wait_for):
        go = tmp_path / "go"
        script = (
            "import pathlib, time\nfor i in range(40):\n    print('line', i, flush=True); time.sleep(0.05)\n"
            f"    while i in (9, 19, 29) and not pathlib.Path(f'{go}-{{i}}').exists(): time.sleep(0.05)\n"
        )
        (tmp_path / "talk.py").write_text(script)
        run = web.client.run("talk")
        runners.start(preset_folder=str(jobs), bus={"poll_s": 0.1, "pushes_per_minute": 600})
        seen = []

        def ends():
            page = web.page(f"/run/{run.branch}")
            seen.append(len(re.findall(r"line \d+", page.partition('id="log"')[2])))
            if seen[-1] in (10, 20, 30):
                go.with_name(f"go-{seen[-1] - 1}").touch()
            return "every step ended with 0" in page

        wait_for(ends)

        assert {10, 20, 30} <= {*seen}, seen
        assert [n for n in seen if n] == sorted(n for n in seen if n) or seen[-1] == 40

    def test_a_page_that_is_current_is_not_sent_again(self, web):
        run = web.client.run("noop")
        web.watch.refresh()
        for path in ("/", f"/run/{run.branch}", "/trends", "/?state=requested"):
            tag = web.ask(path).headers["etag"]
            assert web.ask(path, If_None_Match=tag).status_code == 304
            web.watch.refresh()
            assert web.ask(path, If_None_Match=tag).status_code == 304, path
        tag = web.ask("/").headers["etag"]
        run.cancel()
        web.watch.refresh()
        assert web.ask("/", If_None_Match=tag).status_code == 200

    def test_a_remote_out_of_reach_is_told_and_what_was_seen_stays(self, web, bus):
        run = web.client.run("noop")
        assert run.branch in web.page()
        bus.rename(bus.with_name("away"))

        page = web.page()

        assert "The bus could not be read" in page
        assert run.branch in page
        bus.with_name("away").rename(bus)
        assert "could not be read" not in web.page()

    def test_a_request_that_is_gone_is_gone_from_the_pages(self, web, bus, git):
        run = web.client.run("noop")
        web.page(f"/run/{run.branch}")
        git(bus, "update-ref", "-d", f"refs/heads/{run.branch}")
        assert run.branch not in web.page()
        assert web.ask(f"/run/{run.branch}").status_code == 404

    def test_other_branches_and_names_that_are_none_have_no_page(self, web):
        web.watch.refresh()
        for name in (
            "main",
            "../../etc/passwd",
            "mac-bridge/..",
            "%2e%2e/x",
            "mac-bridge/noop",
            "--help",
            "",
        ):
            assert web.ask(f"/run/{name}").status_code == 404, name
            assert web.ask(f"/log/{name}").status_code == 404, name

    def test_the_clone_s_own_references_stay_as_they_are(self, web, git, clone):
        web.client.run("noop")
        before = git(clone, "for-each-ref").splitlines()
        web.page()

        after = git(clone, "for-each-ref").splitlines()
        assert [line for line in after if "refs/kakeya-web/" not in line] == before
        assert len(after) == len(before) + 1

    @pytest.mark.parametrize("what", ["result", "nothing"])
    def test_an_answer_that_cannot_be_read_is_a_page_that_says_so(self, web, jobs, keyed, forger, what):
        run = web.client.run("noop")
        keyed.handle(preset_folder=str(jobs))
        forger.put(run.branch, {wire.RESULT: b"{" if what == "result" else None})

        page = text_of(web.page(f"/run/{run.branch}"))

        assert "does not hold" in page
        assert "Nothing in this answer can be read" in page
        assert web.page(f"/log/{run.branch}") == ""

    @pytest.mark.long
    def test_no_text_from_the_bus_leaves_its_place(self, web, jobs, keyed, forger):
        runs = [web.client.run("noop", requested_by="ada") for _ in range(3)]
        keyed.handle(preset_folder=str(jobs))
        ended, running, waiting = (run.branch for run in runs)
        paths = ("/", *(f"/run/{run.branch}" for run in runs), "/?requester=x")

        def write(text):
            text = text.replace("\x00", "\\0")
            forger.rewrite(
                ended, {f"{wire.LOGS}/noop-0.log": text.encode()}, reason={"code": "x", "message": text}
            )
            for branch, state in ((running, "running"), (waiting, "requested")):
                made = wire.parse_state(forger.read(branch, wire.STATE))
                about = {
                    "state": State(state),
                    "detail": text,
                    "runner": made.runner.model_copy(update={"id": text[:64]}),
                }
                forger.put(branch, {
                    wire.STATE: made.model_copy(update=about).to_bytes(), wire.STREAM: f"{text}\n".encode(),
                })  # fmt: skip
            web.watch.refresh()
            return [web.page(path) for path in paths]

        fine = write("fine")
        for name, payload in PAYLOADS.items():
            for path, one, other in zip(paths, fine, write(payload), strict=True):
                assert Structure(other).seen == Structure(one).seen, (path, name)
                assert re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", other) is None, name


@pytest.mark.bus
def test_row_100_an_answer_that_replaces_a_verified_one_is_shown_as_such(web, jobs, keyed, forger):
    run = web.client.run("noop")
    keyed.handle(signed=False, preset_folder=str(jobs))
    assert "does not hold" not in text_of(web.page(f"/run/{run.branch}"))

    forger.rewrite(run.branch, reason={"code": "done", "message": "every step ended well"})

    page = text_of(web.page(f"/run/{run.branch}"))
    assert "does not hold" in page
    assert "another answer was verified here before" in page


def row(i, preset="noop", state=State.SUCCEEDED, requester="ada"):
    name = f"mac-bridge/{preset}-{1_795_000_000 + i}-{i:08x}"
    branch = RequestBranch(name, f"{i:040x}", f"{i:040x}", None, None, has_foreign_commits=False)
    return Row(replace(status_of(branch), state=state), branch, 1_795_000_000 + i, requester)


class TestListing:
    rows = tuple(row(i, "noop" if i % 2 else "probe", requester=f"r{i % 3}") for i in reversed(range(1000)))
    snapshot = Snapshot((row(2000, state=State.REQUESTED), *rows), at=1.0)

    def test_pages_hold_all_ended_requests_once_newest_first(self):
        pages = [self.snapshot.listing(Filter(), page) for page in range(1, 11)]

        assert tuple(one for page in pages for one in page.rows) == self.rows
        assert {page.pages for page in pages} == {10}
        assert self.snapshot.listing(Filter(), 99).page == 10
        assert self.snapshot.listing(Filter(), -5).page == 1

    @pytest.mark.parametrize(
        ("wanted", "count"),
        [(Filter("probe"), 500), (Filter("probe", requester="r0"), 167), (Filter(state="requested"), 1),
         (Filter("none"), 0), (Filter(requester="R0"), 0)],
    )  # fmt: skip
    def test_filters(self, wanted, count):
        found = self.snapshot.listing(wanted, 1, 10_000)

        assert found.total == len(found.rows) == count
        assert all(wanted.fits(one) for one in found.rows)

    def test_choices_have_their_counts(self):
        assert self.snapshot.choices["preset"] == [("noop", 501), ("probe", 500)]
        assert self.snapshot.choices["state"] == [("requested", 1), ("succeeded", 1000)]

    @pytest.mark.parametrize(
        "query",
        ["page=0", "page=-1", "page=999999999999999999999", "page=x", "page=\u0663", "page=1&page=2", "state=%00",
         "preset=%3Cscript%3E", "requester=" + "x" * 300, "unknown=1"],
    )  # fmt: skip
    def test_odd_parameters_are_no_fault(self, web, query):
        web.watch.snapshot = self.snapshot

        answer = web.ask(f"/?{query}")

        assert answer.status_code == 200
        assert "<script>" not in answer.text


def test_a_fault_while_looking_is_told_on_every_page(web, monkeypatch):
    """Otherwise the pages would show a bus on which nothing happens any more."""
    web.watch.refresh()
    monkeypatch.setattr("bridge.web.watch.with_jobs", lambda *_: 1 / 0)

    assert "this is a bug: ZeroDivisionError" in web.page()


@pytest.mark.bus
def test_the_list_of_a_sweep(web, clone):
    web.client.run("noop")
    group = start(Buses.of(clone).first, "count", Points(({"n": 1}, {"n": 2}), ("n",)), Ask())
    group.send(lambda *_: None, waits=False)

    assert web.page().count(f'href="/?group={group.id}"') == 2
    listed = text_of(web.page(f"/?group={group.id}"))
    assert "Requests 2" in listed
    branch = group.points[0].branch
    assert f"sweep {group.id}" in text_of(web.page(f"/run/{branch}"))
    hostile = web.page("/?group=%22%3E%3Cscript%3E")
    assert "<script>" not in hostile.partition("<main")[2]
