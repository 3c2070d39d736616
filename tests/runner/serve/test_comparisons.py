"""Two trees in one job, from ``kakeya run --against`` to a verified answer; and what may not pass for a comparison."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bridge.bus import wire
from bridge.client import Client
from bridge.errors import UsageError
from tests.conftest import git

pytestmark = pytest.mark.bus

EXAMPLE = Path(__file__).parents[3] / "examples/two-commits"
ALLOW = {"code_request": "allow"}
NUMBER = {"measure": "printed", "pointer": "/ns", "unit": "ns", "better": "lower", "rounds": 6}


@pytest.fixture
def compared(presets):
    """A folder with a preset whose last step prints a number of its tree, after another step prepared it."""
    prepare = "[ ! -e .mac-bridge ] && [ ! -e prepared ] && cp number prepared && pwd > $HOME/place"
    measure = '[ "$(cat $HOME/place)" = "$PWD" ] && echo noise && echo "{\\"ns\\": $(cat prepared)}"'
    steps = [{"argv": ["/bin/sh", "-c", prepare]}, {"argv": ["/bin/sh", "-c", measure]}]
    return presets(number={"code": "request", "steps": steps, "compare": NUMBER})


def commit(clone, **files):
    """Commit files, and return the commit."""
    for name, content in files.items():
        (clone / name).write_text(content)
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "-m", "A change")
    return git(clone, "rev-parse", "HEAD")


@pytest.fixture
def client(clone, keyed, compared, monkeypatch):
    """A client with the preset and the runner's key, in a clone with two commits: the second prints less."""
    monkeypatch.setenv("KAKEYA_PRESETS", str(compared))
    monkeypatch.setenv("KAKEYA_PUBLIC_KEY", str(keyed.key()))
    commit(clone, number="200")
    commit(clone, number="100")
    return Client(clone)


def report_of(folder):
    return json.loads((folder / wire.COMPARISON_REPORT).read_text())


@pytest.mark.long
def test_two_commits_are_compared_in_one_job(clone, client, keyed, compared, tmp_path):
    run = client.run("number", against="HEAD~1")

    keyed.handle(preset_folder=str(compared), trust=ALLOW, sandbox="auto")

    checked = run.verify()
    assert checked.holds, checked.checks
    assert checked.conclusion.text == "succeeded, ACCEPTED_BY_REQUESTER, signed by one's key"
    fetched = run.fetch(tmp_path / "out")
    report = report_of(tmp_path / "out")
    assert [claim["name"] for claim in report["claims"]] == ["ratio", "ratio", "improvement"]
    assert report["claims"][2] | {"definition": ""} == {
        "name": "improvement", "value": 2.0, "arm": "candidate", "against": "baseline", "interval": [2.0, 2.0],
        "definition": "",
    }  # fmt: skip
    trees = [git(clone, "rev-parse", f"{name}^{{tree}}") for name in ("HEAD", "HEAD~1")]
    assert [report["config"][arm]["tree"] for arm in ("candidate", "baseline")] == trees
    # One log and one result for each step, as without a comparison.
    assert [len(command.argv) for command in fetched.result.commands] == [3, 3]
    assert run.logs().count("--- in the tree of the candidate, round") == 12
    assert {command.exit_code for command in fetched.result.commands} == {0}


@pytest.mark.long
def test_the_example_finds_a_slower_commit(clone, keyed, monkeypatch, tmp_path):
    monkeypatch.setenv("KAKEYA_PRESETS", str(EXAMPLE / "presets"))
    monkeypatch.setenv("KAKEYA_PUBLIC_KEY", str(keyed.key()))
    shutil.copy(EXAMPLE / "count_words.py", clone)
    commit(clone)
    slower = (clone / "count_words.py").read_text().replace("range(12)", "range(36)")
    commit(clone, **{"count_words.py": slower})

    run = Client(clone).run("count-words", against="HEAD~1")
    keyed.handle(preset_folder=str(EXAMPLE / "presets"), trust=ALLOW)

    assert run.verify().holds
    run.fetch(tmp_path / "out")
    assert report_of(tmp_path / "out")["claims"][2]["name"] == "regression"


def test_what_cannot_be_compared_is_not_sent(clone, client, presets):
    presets(plain={"code": "request", "steps": [{"argv": ["/bin/true"]}]})

    for preset, against, message in (
        ("number", "nowhere", "'nowhere' is not a commit in this repository"),
        ("number", "HEAD", "HEAD and HEAD have the same files"),
        ("plain", "HEAD~1", "the preset plain does not say what to measure in two trees"),
    ):
        with pytest.raises(UsageError, match=message):
            client.run(preset, against=against)
    assert client.list() == []


def test_uncommitted_changes_are_compared_with_a_commit(clone, client):
    with pytest.raises(UsageError, match="the working tree and HEAD have the same files"):
        client.run("number", snapshot=True, against="HEAD")
    (clone / "number").write_text("300")

    sent = client.run("number", snapshot=True, against="HEAD")

    request = json.loads(git(clone, "show", f"{sent.commit}:{wire.REQUEST}"))
    assert request["against"] == git(clone, "rev-parse", "HEAD")
    assert git(clone, "rev-parse", f"{sent.commit}^@").split() == [request["workload"], request["against"]]
