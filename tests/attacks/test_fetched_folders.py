"""Files of an answer are written for readers: no folder of them is a repository to git, and no name means more."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from bridge.bus import wire
from bridge.errors import VerificationError
from bridge.presets import Preset
from runner.job.collect import collect

pytestmark = pytest.mark.bus

REFUSED = [
    ".git", ".git/config", ".gitattributes", ".gitmodules", ".hidden/x.json", "HEAD", "a/Head", "config",
    "CONFIG/x.json", "config.worktree", "objects/x.json", "a/refs/x.json", "Hooks/x.json", "packed-refs", "index",
    "commondir", "gitdir",
    "FETCH_HEAD", "reftable/x.json", "worktrees/x.json", "modules/x.json", "info/x.json", "shallow", "con", "Aux.json",
    "nul.x.json", "com1.json", "LPT9/x.json", "x.", "x./y.json", "x.json ", "a b.json", "-x.json", "~x.json", "GIT~1",
    "x:y.json", "x\\y.json", "x$y.json", "`x`.json", "x;y.json", "x*.json", "h\u00e9ad", "HEAD\u200d", "\uff28EAD", "",
    "/x.json", "a//x.json", "../x.json", "./x.json", "a/..", "x\n.json", "x\0.json",
    "x" * 256,
]  # fmt: skip
ALLOWED = [
    "x.json",
    "a/b/c.json",
    "x",
    "README.md",
    "head.json",
    "config.json",
    "index.html",
    "a-b_c.1.json",
    "_x",
    "confi",
    "x" * 250 + ".json",
]


def test_row_115_a_name_with_a_meaning_is_no_file_of_an_answer():
    for folder in (wire.REPORTS, wire.LOGS):
        assert [name for name in REFUSED if wire.is_answer_path(f"{folder}/{name}")] == []


def test_plain_names_are_files_of_an_answer():
    assert [name for name in ALLOWED if not wire.is_answer_path(f"{wire.REPORTS}/{name}")] == []


def test_a_file_elsewhere_is_no_file_of_an_answer():
    for path in (
        "x.json",
        "results/x.json",
        "results/research",
        "results/research/",
        "Results/research/x.json",
    ):
        assert not wire.is_answer_path(path), path


def repository(marker: Path) -> dict[str, bytes]:
    """Return the files of a repository whose settings name programs."""
    script = f"touch {marker}; false"
    config = (
        f'[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = "{script}"\n'
        f'\tpager = "{script}"\n\tsshCommand = "{script}"\n[alias]\n\tst = "!{script}"\n'
    )
    return {
        "HEAD": b"ref: refs/heads/main\n", "config": config.encode(), "objects/x.json": b"{}", "refs/x.json": b"{}",
    }  # fmt: skip


def try_git(folder: Path) -> list[int]:
    """Run what a prompt, an editor and a user run in a folder, and return how each ended."""
    calls = (
        ["status"],
        ["st"],
        ["-p", "log"],
        ["rev-parse", "--git-dir"],
        ["fetch", "ssh://example.invalid/x"],
    )
    return [
        subprocess.run(["git", *call], cwd=folder, capture_output=True, check=False).returncode
        for call in calls
    ]


@pytest.fixture
def marker(tmp_path):
    """The file that the programs in a hostile repository make."""
    return tmp_path / "it-ran"


def test_row_115_an_answer_that_is_a_repository_is_not_fetched(client, keyed, forger, tmp_path, marker):
    run = client.run("noop")
    keyed.handle(signed=False)
    files = {f"{wire.REPORTS}/{name}": data for name, data in repository(marker).items()}
    result = json.loads(forger.read(run.branch, wire.RESULT))
    result["files"] += [
        {"path": path, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        for path, data in files.items()
    ]
    forger.put(run.branch, {**files, wire.RESULT: json.dumps(result).encode()})

    with pytest.raises(VerificationError, match="is not a place for an answer's file"):
        run.fetch(tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_row_115_git_in_a_fetched_folder_finds_no_repository_around_it(client, keyed, tmp_path, marker):
    hostile = tmp_path / "hostile"
    for name, data in repository(marker).items():
        (hostile / ".git" / name).parent.mkdir(parents=True, exist_ok=True)
        (hostile / ".git" / name).write_bytes(data)
    try_git(hostile)
    assert marker.exists(), "the repository starts nothing, so this test shows nothing"
    marker.unlink()
    run = client.run("noop")
    keyed.handle()

    folder = run.fetch(hostile / "out").folder

    for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        assert all(try_git(place)), place
    assert not marker.exists()


def test_row_115_a_fetched_folder_can_still_be_added_to_a_repository_around_it(client, keyed, clone, git):
    run = client.run("noop")
    keyed.handle()
    folder = run.fetch(clone / "out").folder

    git(clone, "add", "out")

    added = git(clone, "diff", "--cached", "--name-only").splitlines()
    assert f"out/{wire.RESULT}" in added
    assert "out/.git" not in added
    assert run.fetch(folder).folder == folder


def test_row_115_such_reports_are_not_collected(tmp_path, marker):
    reports = tmp_path / wire.REPORTS
    for name, data in repository(marker).items():
        (reports / name).parent.mkdir(parents=True, exist_ok=True)
        (reports / name).write_bytes(data)
    preset = Preset(
        name="test", description="x", code="installed", steps=[{"argv": ["/bin/true"]}], timeout_s=1,
        collect=[f"{wire.REPORTS}/{name}" for name in repository(marker)],
    )  # fmt: skip

    collected = collect(preset, tmp_path)

    assert collected.files == {}
    assert len(collected.skipped) == len(repository(marker))
