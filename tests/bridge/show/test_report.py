"""Reports for people: real runs from the bus to the page, and what is said where something is wrong."""

from __future__ import annotations

import json
import re
import shlex
from html.parser import HTMLParser

import pytest

from bridge.bus import wire
from bridge.cli.remote import why_no_figures
from bridge.client import Client
from bridge.show.build import view_of
from bridge.show.forms.markdown import markdown
from bridge.show.forms.templates import page
from bridge.show.source import from_branch
from tests.runner.conftest import run_kakeya

pytestmark = pytest.mark.bus

VOID = {"meta", "br"}
REPORT = "results/research/kv_codec_rd.json"


class Page(HTMLParser):
    """A page taken apart. Fails where an element is not closed, or closed in another's place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.open, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    def check_it_stands_alone(self):
        assert {"script", "img", "iframe", "object", "base", "form", "link"}.isdisjoint(self.tags)
        assert [a for a in self.attributes if a[1].startswith("on") or a[1] in ("src", "style")] == []
        assert [a[2] for a in self.attributes if a[1] == "href" and not a[2].startswith("#")] == []
        (policy,) = [a[2] for a in self.attributes if a[1] == "content" and "default-src" in a[2]]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")


@pytest.fixture
def kakeya(clone, monkeypatch, capsys):
    """Run the command line in this process; return its exit code and what it printed."""

    def run(*args, where=clone):
        return run_kakeya(where, monkeypatch, capsys, *args)

    return run


@pytest.fixture
def answered(client, keyed):
    """The branch of a request with a signed answer."""
    run = client.run("noop")
    keyed.handle()
    return run.branch


@pytest.mark.long
def test_two_real_runs_from_the_bus_to_every_form(kakeya, client, keyed, git, clone, tmp_path):
    key = keyed.key()
    runs = [client.run("kv-codec-rd", {"n_vectors": 64, "dim": "64", "seed": seed}) for seed in (1, 2)]
    keyed.handle()
    one, two = (run.branch for run in runs)
    git(clone, "config", "kakeya.publicKey", str(key))

    code, _, told = kakeya("report", one, "--out", tmp_path / "one.html")
    shown = Page((tmp_path / "one.html").read_text())
    assert code == 0, told
    shown.check_it_stands_alone()
    assert shown.tags.count("figure") == 4
    asked = "kakeya run kv-codec-rd -p dim=64 -p n_vectors=64 -p seed=1 --ref"
    for said in ("gate: ACCEPTED", "signed with a pinned key", "dim=64 n_vectors=64 seed=1", "tester@example.invalid",
                 "E8 Voronoi", runs[0].commit, asked):  # fmt: skip
        assert said in shown.text
    result = client.result(one)
    assert all(file.sha256 in shown.text for file in result.files)

    kakeya("report", one, two, "--out", tmp_path / "two.html")
    both = Page((tmp_path / "two.html").read_text())
    both.check_it_stands_alone()
    assert both.text.startswith("2 runs compared")
    assert "dim=64 n_vectors=64 seed=2" in both.text

    code, text, _ = kakeya("report", one, "--markdown")
    assert code == 0
    assert "| stored bits | code | gaussian | t4 | outliers | limit 2^-2R |" in text

    code, text, _ = kakeya("report", one, "--json")
    (run,) = json.loads(text)["runs"]
    assert (run["evidence"]["status"], run["gate"]["verdict"]) == ("signed", "ACCEPTED")
    (report,) = run["reports"]
    assert (report["kind"], report["problem"]) == ("kakeya.codec-rd", "")

    code, text, _ = kakeya("report", one)
    assert code == 0
    assert "E8 Voronoi" in text

    kakeya("fetch", one, "--out", tmp_path / "fetched")
    code, text, _ = kakeya("report", "--from", tmp_path / "fetched", "--json", "--key", key, where=tmp_path)
    assert code == 0
    assert json.loads(text)["runs"][0]["evidence"]["status"] == "signed"

    code, text, _ = kakeya("list", "--claims", "rel_*", "--json")
    lines = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    rows = json.loads((tmp_path / "fetched" / REPORT).read_text())["rows"]
    assert len(lines) == 2 * len(rows)
    assert {line["branch"] for line in lines} == {one, two}
    assert all(line["counts"] for line in lines)
    # Such a report claims nothing.
    _, text, told = kakeya("list", "--claims")
    assert text == ""
    (command,) = re.findall(r"kakeya (list --claims .*)", told)
    assert kakeya(*shlex.split(command))[1]
    code, text, _ = kakeya("list", "--claims", "rel_*")
    assert any(bar in text for bar in "▁█")


def test_a_folder_that_was_changed_does_not_hold(kakeya, answered, keyed, tmp_path):
    kakeya("fetch", answered, "--out", tmp_path / "fetched")
    log = tmp_path / "fetched" / ".mac-bridge" / "logs" / "noop-0.log"
    log.write_text(log.read_text() + "and more\n")

    code, text, told = kakeya("report", "--from", tmp_path / "fetched", "--key", keyed.key(), "--json")

    assert code == 1
    assert "failed verification" in told
    evidence = json.loads(text)["runs"][0]["evidence"]
    assert evidence["status"] == "broken"
    assert "noop-0.log was changed" in evidence["message"]
    assert "signature" in evidence["message"]


def test_an_answer_that_does_not_hold_is_shown_and_says_so(kakeya, answered, forger, tmp_path):
    forger.put(answered, {".mac-bridge/logs/noop-0.log": b"all is well\n"})

    code, _, told = kakeya("report", answered, "--out", tmp_path / "page.html")

    assert code == 1
    assert f"failed verification: {answered}" in told
    shown = Page((tmp_path / "page.html").read_text())
    assert "This answer does not hold" in shown.text
    grades = [value for _, name, value in shown.attributes if name == "class" and value.startswith("badge ")]
    assert grades == ["badge ", "badge bad"]


def test_a_report_that_cannot_be_read_says_why(client, answered, forger):
    forger.put(answered, {REPORT: b'{"kind": NaN}'})
    result = json.loads(forger.read(answered, wire.RESULT))
    result["files"].append({"path": REPORT, "sha256": "0" * 64, "size": 13})
    forger.put(answered, {wire.RESULT: json.dumps(result).encode()})

    view = view_of([from_branch(client, answered)])

    assert "holds NaN" in Page(page(view)).text
    assert "holds NaN" in markdown(view)


def test_a_path_that_would_mislead_git_is_missing_and_nothing_else(client, answered, forger):
    result = json.loads(forger.read(answered, wire.RESULT))
    result["files"].append({"path": "results/research/a\nb.json", "sha256": "0" * 64, "size": 1})
    forger.put(answered, {wire.RESULT: json.dumps(result).encode()})

    source = from_branch(client, answered)

    assert not source.holds
    assert "a\\nb.json" in Page(page(view_of([source]))).text


def test_a_rejected_run_shows_what_was_wrong(client, keyed, presets, clone, tmp_path):
    report = tmp_path / "report.json"
    report.write_text('{"kind": "kakeya.mine", "schema_version": 3, "rows": [{"a": 1}, {"a": 2}]}')
    step = {"argv": ["/bin/cp", str(report), "results/research/mine.json"]}
    made = {"steps": [{"argv": ["/bin/mkdir", "-p", "results/research"]}, step], "gate": "reports"}
    folder = presets(mine=made | {"collect": ["results/research/mine.json"]})
    run = Client(clone, presets=folder).run("mine")
    keyed.handle(preset_folder=str(folder))

    view = view_of([from_branch(Client(clone, presets=folder), run.branch)])

    text = Page(page(view)).text
    assert "gate: REJECTED" in text
    assert "UNKNOWN_KIND" in text
    assert "UNKNOWN\\_KIND" in markdown(view)
    assert view.runs[0].reports[0].tables[0].rows == ((1,), (2,))


@pytest.mark.parametrize("args", [(), ("--markdown",), ("--json",), ("--out", "page.html")], ids=str)
def test_a_request_without_an_answer_ends_with_3(kakeya, client, clone, args):
    branch = client.run("noop").branch
    code, text, told = kakeya("report", branch, *args)
    assert code == 3
    assert "no answer yet" in told
    assert f"kakeya wait {branch}" in told
    assert text == "" or json.loads(text)["code"] == "no_answer_yet"
    assert not (clone / "page.html").exists()


def test_what_cannot_be_shown_ends_with_2(kakeya, answered, tmp_path):
    (tmp_path / "file").write_text("")
    for args, said in (
        (("nothing-like-it",), "no request fits"),
        (("mac-bridge/noop-1700000000-aaaaaa",), "there is no request"),
        (("--from", str(tmp_path)), "holds no answer"),
        ((answered, "--markdown", "--json"), "both go to standard output"),
        ((answered, "--out", str(tmp_path / "file" / "page.html")), "cannot write"),
        ((answered, "--key", "nowhere"), "cannot read the key"),
    ):
        code, text, told = kakeya("report", *args)
        assert (code, said in told) == (2, True), told
        assert text == "" or "--json" in args


def test_a_folder_whose_result_cannot_be_read_ends_with_1(kakeya, answered, tmp_path):
    kakeya("fetch", answered, "--out", tmp_path / "fetched")
    (tmp_path / "fetched" / wire.RESULT).write_text("{}")
    code, _, told = kakeya("report", "--from", tmp_path / "fetched")
    assert code == 1
    assert "is not valid" in told


def test_a_list_of_claims_needs_the_key_that_was_named(kakeya, answered):
    assert kakeya("list", "--claims", "--key", "nowhere")[0] == 2


def test_without_figures_the_list_of_claims_says_so(kakeya, answered):
    code, text, told = kakeya("list", "--claims")
    assert (code, text) == (0, "")
    assert told.startswith("no report with figures among the newest 20 requests.")
    assert "`kakeya report` shows the last answer" in told


def test_a_name_from_a_report_cannot_end_the_command_that_is_shown():
    command = why_no_figures(20, ["a branch"], ["x'; touch y; '"], None).rpartition("kakeya ")[2]
    assert shlex.split(command) == ["list", "--claims", "x'; touch y; '"]


def test_without_an_answer_the_list_of_claims_says_so(kakeya, clone):
    assert kakeya("list", "--claims")[2] == (
        "there is no answer among the newest 20 requests. --limit looks further back.\n"
    )
