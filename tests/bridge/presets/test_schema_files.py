"""A kind's schema as a file beside the preset: read with it, covered by its digest, and never from elsewhere."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from bridge.bus.folder import bus_folder
from bridge.common import limits
from bridge.errors import PolicyError
from bridge.presets import find_presets, load_presets
from bridge.presets.announced import pack, unpack
from bridge.presets.sources import SHARED
from bridge.system.git import Git
from runner.ownership import check_presets_owned

SCHEMA = {"type": "object", "required": ["kind"]}
CLAIM = {"name": "wall_s", "pointer": "/wall_s", "unit": "s", "better": "lower", "samples": "/samples"}


def preset(schema="mine.json", **changes):
    return {
        "name": "job", "description": "A job.", "code": "installed", "timeout_s": 60, "gate": "mine",
        "steps": [{"argv": ["/bin/true"]}], "collect": ["results/research/x.json"],
        "reports": {"mine": {"schema": schema, "claims": [CLAIM]}}, **changes,
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A folder with a preset that names a schema beside it."""
    folder = tmp_path / "presets"
    folder.mkdir()
    (folder / "job.yaml").write_text(yaml.safe_dump(preset()))
    (folder / "mine.json").write_text(json.dumps(SCHEMA, indent=2))
    return folder


def test_it_is_the_same_preset_as_with_the_schema_inside(folder, tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "job.yaml").write_text(yaml.safe_dump(preset(SCHEMA)))

    beside = load_presets(folder)["job"]

    assert beside == load_presets(inside)["job"]
    assert beside.reports["mine"].json_schema == SCHEMA
    assert unpack(pack([beside]), {"job": beside.digest}) == {"job": beside}


def test_the_digest_covers_the_file(folder):
    before = load_presets(folder)["job"].digest
    (folder / "mine.json").write_text(json.dumps(SCHEMA))
    assert load_presets(folder)["job"].digest == before, "spaces change nothing"

    (folder / "mine.json").write_text(json.dumps({"type": "object"}))

    assert load_presets(folder)["job"].digest != before


def test_a_file_beside_is_no_preset(folder):
    (folder / "noop.json").write_text("{")
    presets = load_presets(folder)
    assert (presets.broken, "mine" in presets, "noop" in presets) == ({}, False, True)


def put(text):
    return lambda folder: (folder / "mine.json").write_text(text)


def link(target):
    def make(folder):
        (folder / "mine.json").unlink()
        (folder / "mine.json").symlink_to(target)

    return make


def instead(make):
    return lambda folder: ((folder / "mine.json").unlink(), make(folder / "mine.json"))


def name(schema):
    return lambda folder: (folder / "job.yaml").write_text(yaml.safe_dump(preset(schema)))


WRONG = {
    "a misspelt name": (name("mien.json"), "there is no file mien.json beside the preset's (did you mean mine.json?)"),
    "a name without its ending": (name("mine"), "'mine' must be a JSON Schema, or the name of a file"),
    "a list": (name([]), "must be a JSON Schema, or the name of a .json file beside"),
    "no JSON": (put("{"), "reports.mine.schema: mine.json is not"),
    "no object": (put("[]"), "mine.json is not a JSON object"),
    "a key twice": (put('{"type": "object", "type": "array"}'), "reports.mine.schema: mine.json"),
    "an unknown keyword": (put('{"requird": []}'), "did you mean required?"),
    "a schema elsewhere": (put('{"$ref": "other.json"}'), "nothing is read from elsewhere"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_named(folder, change, words):
    change(folder)

    error = load_presets(folder).broken["job"]

    assert words in error.message
    assert "job.yaml: reports.mine" in error.message
    assert len(error.message) < 500


HOSTILE = {
    "a path upwards": (name("../mine.json"), "the name of a file beside"),
    "a path downwards": (name("below/mine.json"), "the name of a file beside"),
    "a whole path": (name("/etc/mine.json"), "the name of a file beside"),
    "a hidden file": (name(".mine.json"), "the name of a file beside"),
    "an escape": (name("\x1b[2J.json"), "the name of a file beside"),
    "a link that leads out": (link("../outside.json"), "a link that leads out of the folder"),
    "a link to itself": (link("mine.json"), "reports.mine.schema"),
    "a link to nothing": (link("nothing.json"), "cannot be read"),
    "a pipe": (instead(os.mkfifo), "cannot be read"),
    "a folder": (instead(Path.mkdir), "cannot be read"),
    "a large file": (put(" " * limits.BUS_FILE_BYTES + "{}"), "larger than 64 KiB"),
    "a deep file": (put("[" * 1000 + "]" * 1000), "reports.mine.schema: mine.json"),
    "many values": (put(json.dumps({"enum": [0] * 30_000})), "reports.mine.schema"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), HOSTILE.values(), ids=HOSTILE)
def test_row_151_a_schema_is_a_small_file_beside_the_preset_alone(folder, change, words):
    (folder.parent / "outside.json").write_text(json.dumps(SCHEMA))
    change(folder)

    presets = load_presets(folder)

    assert words in presets.broken["job"].message
    assert "\x1b" not in presets.broken["job"].message
    assert "noop" in presets


def test_a_link_within_the_folder_is_followed(folder):
    (folder / "real.json").write_text(json.dumps(SCHEMA))
    link("real.json")(folder)

    assert load_presets(folder)["job"].reports["mine"].json_schema == SCHEMA


def test_row_151_a_schema_that_others_may_change_is_refused_as_a_preset_is(folder):
    (folder / "unnamed.json").write_text("{}")
    (folder / "unnamed.json").chmod(0o666)
    check_presets_owned(folder)

    (folder / "mine.json").chmod(0o666)

    with pytest.raises(PolicyError, match=r"mine\.json"):
        check_presets_owned(folder)


@pytest.mark.bus
def test_it_travels_on_the_default_branch_behind_the_presets(folder, clone, git):
    there = clone / SHARED
    there.parent.mkdir()
    folder.rename(there)
    for i in range(limits.BUS_FILES):
        (there / f"a{i:03}.json").write_text("{}")
    here = load_presets(there)["job"]
    git(clone, "add", ".kakeya")
    git(clone, "commit", "--quiet", "--message", "Share a preset")
    git(clone, "push", "--quiet", "origin", "HEAD:main")
    bus_folder.forget()
    assert "no file mine.json" in find_presets(Git.of_user(clone), "origin").broken["job"].message

    git(clone, "rm", "--quiet", ".kakeya/presets/a*.json")
    git(clone, "commit", "--quiet", "--message", "Remove files that are no schemas")
    git(clone, "push", "--quiet", "origin", "HEAD:main")
    git(clone, "rm", "--quiet", "-r", ".kakeya")
    bus_folder.forget()
    presets = find_presets(Git.of_user(clone), "origin")

    assert presets.sources["job"] == f"{SHARED} on origin/main"
    assert presets["job"] == here

    # A version before left the schema out of what it stored of the same commit.
    (stored,) = (clone / ".git").glob("kakeya-bus-*.json")
    copy = json.loads(stored.read_text())
    del copy["files"]["presets/mine.json"], copy["has_schemas"]
    stored.write_text(json.dumps(copy))
    bus_folder.forget()
    assert "job" in find_presets(Git.of_user(clone), "origin", ask=False).broken
    assert find_presets(Git.of_user(clone), "origin")["job"] == here
    bus_folder.forget()
