"""The keys published beside reports: they count for their folder alone, and only on the default branch."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from bridge.bus.folder import bus_folder
from bridge.cli import cli
from tests.bridge.gate import reports, runs

OURS, THEIRS = runs.Key(), runs.Key()
SIGNED = "ACCEPTED, signed by mac's key"


@pytest.fixture
def publish(clone, git):
    """Write a report that a key signed into a folder of the clone, with a key beside it; push it if asked to."""

    def write(folder, signer=OURS, key=OURS, branch=None):
        path = clone / folder
        path.mkdir(parents=True, exist_ok=True)
        files = runs.answer(signer, reports.in_run(reports.BUILDERS[reports.kinds.KV_QUANT]()))
        runs.write_pair(path, files)
        if key:
            (path / "runner.pub").write_text(key.public.text)
        if branch:
            git(clone, "add", "--all")
            git(clone, "commit", "--quiet", "-m", "Publish")
            git(clone, "push", "--quiet", "origin", f"HEAD:{branch}")
        return path

    return write


@pytest.fixture
def gate(clone):
    """Return the first words and the exit code of `kakeya gate`."""

    def judge(path, *args, folder=clone):
        bus_folder.forget()
        argv = ["-C", str(folder), "gate", str(path), *args]
        done = CliRunner().invoke(cli, argv, standalone_mode=False, catch_exceptions=False)
        return done.output.partition(":")[0], done.return_value

    return judge


def test_a_key_beside_reports_counts_if_the_default_branch_has_it(publish, gate, clone, git, tmp_path):
    path = publish("docs/results", branch="main")
    assert gate(path) == (SIGNED, 0)

    # A fork whose own runner has another key, pinned in either way.
    (clone / ".kakeya").mkdir()
    (clone / ".kakeya" / "runner.pub").write_text(THEIRS.public.text)
    publish("elsewhere", branch="main")
    assert gate(path) == (SIGNED, 0)
    (tmp_path / "mine.pub").write_text(THEIRS.public.text)
    git(clone, "config", "kakeya.publicKey", str(tmp_path / "mine.pub"))
    assert gate(path) == (SIGNED, 0)

    # What is named for this command counts alone.
    assert gate(path, "--key", str(tmp_path / "mine.pub"))[1] == 7


@pytest.mark.parametrize(
    "place", ["only written", "committed", "on another branch", "changed", "beside other reports"]
)
def test_a_key_that_comes_with_reports_does_not_count(place, publish, gate, clone, git, tmp_path):
    """A stranger sends a folder, or asks to merge a branch, with reports and the key that signed them."""
    path = clone / "results"
    if place == "changed":
        publish("results", branch="main")
        publish("results", signer=THEIRS, key=THEIRS)
    elif place == "beside other reports":
        publish("results", signer=THEIRS, key=THEIRS, branch="main")
        path = publish("results/new", signer=THEIRS, key=None)
    else:
        publish("results", branch="proposal" if place == "on another branch" else None)
        if place == "committed":
            git(clone, "add", "--all")
            git(clone, "commit", "--quiet", "-m", "Publish")

    assert gate(path)[1] == 7
    assert gate(path, folder=tmp_path)[1] == 7


def test_reports_outside_the_clone_use_no_key_of_its_folders(publish, gate, tmp_path):
    path = publish("results", branch="main")
    outside = tmp_path / "results"
    outside.mkdir()
    for file in path.iterdir():
        (outside / file.name).write_bytes(file.read_bytes())

    assert gate(outside)[1] == 7
    (path.parent / "link").symlink_to(outside)
    assert gate(path.parent / "link")[1] == 7


@pytest.mark.parametrize("content", [b"", b"no key", b"x" * 70_000, None])
def test_a_key_file_that_cannot_be_read_does_not_stop_the_gate(content, publish, gate, clone, git):
    path = publish("results", key=None)
    file = path / "runner.pub"
    file.symlink_to("report.json") if content is None else file.write_bytes(content)
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "-m", "Publish")
    git(clone, "push", "--quiet", "origin", "HEAD:main")

    assert gate(path)[1] == 7


def test_a_clone_that_is_behind_reads_what_it_fetched_last(publish, gate, clone, git, bus, tmp_path):
    path = publish("results", branch="main")
    other = tmp_path / "other"
    git(tmp_path, "clone", "--quiet", str(bus), str(other))
    git(other, "commit", "--quiet", "--allow-empty", "-m", "Go on")
    git(other, "push", "--quiet", "origin", "HEAD:main")

    assert gate(path) == (SIGNED, 0)
