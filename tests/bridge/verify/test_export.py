"""Fetching: again and again, and into a folder that git does not see."""

from __future__ import annotations

import pytest

from bridge.bus import wire
from bridge.errors import UsageError

pytestmark = pytest.mark.bus


@pytest.fixture
def answered(client, keyed, clone, monkeypatch) -> str:
    run = client.run("noop")
    keyed.handle()
    monkeypatch.chdir(clone)
    return run.branch


def test_a_signed_answer_is_fetched_as_often_as_one_likes(client, answered):
    first = client.fetch(answered)
    before = {path: path.read_bytes() for path in first.files}

    again = client.fetch(answered)

    assert any(path.match(wire.EVIDENCE) for path in first.files)
    assert {path: path.read_bytes() for path in again.files} == before
    written = [path for path in again.folder.rglob("*") if path.is_file()]
    assert sorted(written) == sorted([*again.files, again.folder / ".git"])


def test_a_signed_answer_with_something_else_beside_it_is_left_alone(client, answered):
    folder = client.fetch(answered).folder
    (folder / ".mac-bridge" / "mine").touch()

    with pytest.raises(UsageError, match="holds something else"):
        client.fetch(answered)


def test_results_are_not_seen_by_git(client, answered, git, clone):
    client.fetch(answered)

    assert git(clone, "status", "--porcelain", "--untracked-files=all") == ""
    assert (clone / "kakeya-results" / ".gitignore").read_text() == "*\n"


def test_a_gitignore_that_is_there_stays(client, answered, clone):
    (clone / "kakeya-results").mkdir()
    (clone / "kakeya-results" / ".gitignore").write_text("!*\n")

    client.fetch(answered)

    assert (clone / "kakeya-results" / ".gitignore").read_text() == "!*\n"


def test_a_folder_of_ones_own_gets_no_gitignore(client, answered, tmp_path):
    fetched = client.fetch(answered, tmp_path / "out")

    assert not list(tmp_path.glob("**/.gitignore"))
    assert fetched.folder.stat().st_mode & 0o777 == 0o755
