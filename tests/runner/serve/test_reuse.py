"""`run --reuse`: an earlier answer to the same question, if a pinned key signed it."""

from __future__ import annotations

import pytest

from bridge.cli import main
from bridge.client import Client
from tests.conftest import git

pytestmark = pytest.mark.bus


@pytest.fixture
def asking(clone, keyed, touching, monkeypatch):
    """A client with the runner's key, and an answer to `count` with n=3."""
    monkeypatch.setenv("KAKEYA_PRESETS", str(touching))
    monkeypatch.setenv("KAKEYA_PUBLIC_KEY", str(keyed.key()))
    client = Client(clone)
    client.run("count", {"n": 3})
    keyed.handle(preset_folder=str(touching))
    return client


def commit(clone, name="work.txt"):
    (clone / name).write_text("more\n")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "-m", "Work")


def test_the_same_question_has_its_answer(asking, clone):
    run, earlier = asking.find_answer("count", {"n": 3})
    assert run.existing
    assert run.status().answered
    assert "signed by" in earlier.text
    # Another commit with the same files asks the same.
    git(clone, "commit", "--quiet", "--allow-empty", "-m", "Nothing new")
    assert asking.find_answer("count", {"n": 3})[0].branch == run.branch


@pytest.mark.parametrize(
    "change",
    ["parameter", "files", "uncommitted", "definition", "key", "unsigned", "failed", "gone"],
)
def test_another_question_has_none(change, asking, clone, bus, keyed, presets, touching, forger, monkeypatch):
    params, snapshot = {"n": 3}, False
    branch = asking.sent.branches()[-1]
    if change == "parameter":
        params = {"n": 4}
    elif change == "files":
        commit(clone)
    elif change == "uncommitted":
        (clone / "readme.txt").write_text("changed\n")
        snapshot = True
    elif change == "definition":
        other = touching / "count.yaml"
        other.write_text(other.read_text().replace("timeout_s: 60", "timeout_s: 61"))
    elif change == "key":
        monkeypatch.setenv("KAKEYA_PUBLIC_KEY", str(keyed.key("two")))
    elif change == "unsigned":
        git(bus, "update-ref", "-d", f"refs/heads/{branch}")
        asking.run("count", params)
        keyed.handle("three", signed=False, preset_folder=str(touching))
    elif change == "failed":
        forger.rewrite(branch, seconds=0.5)
    else:
        git(bus, "update-ref", "-d", f"refs/heads/{branch}")
    assert Client(clone).find_answer("count", params, snapshot=snapshot) is None


def test_an_answer_of_a_host_that_serves_no_more_is_no_answer_of_the_one_that_does(
    asking, keyed, clone, touching, tmp_path, monkeypatch
):
    both = tmp_path / "both.pub"
    both.write_text(keyed.key("one").read_text() + keyed.key("two").read_text())
    monkeypatch.setenv("KAKEYA_PUBLIC_KEY", str(both))
    client = Client(clone)
    assert client.find_answer("count", {"n": 3}) is not None
    with keyed.context("two", preset_folder=str(touching)) as context:
        context.announcer.begin()
        context.announcer.announce_if_due()
        assert [runner.record.id for runner in client.runners()] == ["two"]
        assert client.find_answer("count", {"n": 3}) is None


@pytest.fixture
def say(asking, clone, monkeypatch, capsys):
    """Runs `kakeya run count --reuse` with a parameter and more words, and returns what it printed."""

    def run(n, *words):
        monkeypatch.chdir(clone)
        monkeypatch.setattr("sys.argv", ["kakeya", "run", "count", "-p", f"n={n}", "--reuse", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, None)
        return "".join(capsys.readouterr())

    return run


def test_the_command_says_how_old_it_is_and_sends_nothing(say, bus):
    before = git(bus, "for-each-ref")
    said = say(3, "--wait")
    assert "note: answered" in said
    assert "signed by" in said
    assert git(bus, "for-each-ref") == before


def test_the_command_says_that_there_is_none_and_sends_a_request(say, bus):
    before = git(bus, "for-each-ref")
    assert "no signed answer to the same question" in say(4)
    assert git(bus, "for-each-ref") != before
