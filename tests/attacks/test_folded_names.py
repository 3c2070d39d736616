"""Names that differ in case alone: on a file system that ignores case, one would take the other's place."""

from __future__ import annotations

import hashlib
import json

import pytest

from bridge.bus import wire
from bridge.bus.remote import Remote
from bridge.bus.trees import CaseInsensitivePaths
from bridge.client import Client
from bridge.errors import VerificationError
from bridge.presets import Preset
from bridge.system.git import Git
from runner.job.collect import collect

pytestmark = pytest.mark.bus

ALIKE = [
    ("a/b.json", "a/B.json"),
    ("a/b.json", "a/b.json"),
    ("a/b.json", "A/c.json"),
    ("a/b.json", "a/B.JSON/c"),
    ("a/b.json/c", "a/B.json"),
]


@pytest.mark.parametrize("pair", ALIKE, ids="-".join)
def test_row_104_paths_that_are_alike_are_not_both_taken(pair):
    places = CaseInsensitivePaths()
    assert [places.add(path) for path in pair] == [True, False]
    assert places.add("a/other.json")


@pytest.mark.parametrize("pair", ALIKE, ids="-".join)
def test_row_104_an_answer_with_such_files_does_not_hold(pair, client, keyed, forger, tmp_path):
    run = client.run("noop")
    keyed.handle(signed=False)
    assert run.verify().holds
    paths = [f"{wire.REPORTS}/{path}" for path in pair]
    files = json.loads(forger.read(run.branch, wire.RESULT))["files"]
    files += [{"path": path, "sha256": hashlib.sha256(b"x").hexdigest(), "size": 1} for path in paths]
    result = json.loads(forger.read(run.branch, wire.RESULT)) | {"files": files}

    forger.put(run.branch, {**dict.fromkeys(paths, b"x"), wire.RESULT: json.dumps(result).encode()})

    with pytest.raises(VerificationError, match="are the same where case is ignored"):
        run.fetch(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_row_104_of_such_reports_the_first_is_collected(tmp_path):
    folder = tmp_path / "results" / "research"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text("1")
    if (folder / "A.json").exists():
        pytest.skip("this file system ignores case")
    (folder / "A.json").write_text("2")
    steps = [{"argv": ["/bin/true"]}]
    preset = Preset(
        name="test", description="x", code="installed", steps=steps, timeout_s=1,
        collect=["results/research/*.json"],
    )  # fmt: skip

    found = collect(preset, tmp_path)

    assert found.files == {"results/research/A.json": b"2"}
    assert found.skipped == [
        "results/research/a.json: another report has the same name on file systems that ignore case"
    ]


def test_row_104_where_case_is_ignored_one_of_such_branches_is_listed(clone, git):
    names = ("mac-bridge/team/noop-1790000000-abc123", "mac-bridge/Team/noop-1790000000-abc123")
    for name in names:
        git(clone, "push", "--quiet", "origin", f"HEAD:refs/heads/{name}")
    assert set(Client(clone).remote.list_branches("mac-bridge/*")) == set(names)

    git(clone, "config", "core.ignoreCase", "true")

    assert set(Remote.of(Git.of_user(clone), "origin").list_branches("mac-bridge/*")) == {names[0]}
