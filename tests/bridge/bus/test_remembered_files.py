"""The small files of a clone in which commands remember things: whatever lies in their place, the commands work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.bus.known.skipped_commits import SkippedCommits
from bridge.requests.liveness import BranchAges
from bridge.system import local_files
from bridge.system.git import Git
from bridge.verify.check import KnownAnswers

FILES = ("kakeya-skipped", "kakeya-seen", "kakeya-answers")
OID, OTHER = "1" * 40, "2" * 40

PLACES = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a sparse file of 4 GB": lambda path: (path.touch(), os.truncate(path, 4 << 30)),
    "deep lists": lambda path: path.write_text("[" * 100_000),
    "deep objects": lambda path: path.write_text('{"a":' * 20_000),
    "a number of 400 digits": lambda path: path.write_text('{"a": ["b", ' + "9" * 400 + ", 1]}"),
    "no number": lambda path: path.write_text('{"a": ["b", NaN, 1e999]}'),
    "half a character": lambda path: path.write_text('{"\\ud800": ["\\ud800", 1, 1]}'),
    "other bytes": lambda path: path.write_bytes(b"\xff\xfe{}"),
    "another shape": lambda path: path.write_text('{"version": 9, "branches": [1, 2]}'),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_row_89_whatever_is_in_their_place_is_passed_over_and_leaves_nothing(clone, place):
    git, folder = Git.of_user(clone), clone / ".git"
    for name in FILES:
        place(folder / name)
    skipped, seen, answers = SkippedCommits(git), BranchAges(git), KnownAnswers(git)

    skipped.add_slow({"a": OID})
    skipped.add_large([OTHER])

    assert skipped.without({"a": OID, "b": OTHER}) in ({}, {"a": OID, "b": OTHER})
    assert seen.unchanged_s("a", OID) == 0.0
    answers.note("a", OID)
    assert answers.of("a") in (None, OID)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".kakeya")] == []


def test_row_89_a_link_is_replaced_and_what_it_leads_to_stays(clone, tmp_path):
    git, target = Git.of_user(clone), tmp_path / "precious"
    target.write_text("mine")
    for name in FILES:
        (clone / ".git" / name).symlink_to(target)

    SkippedCommits(git).add_slow({"a": OID})
    SkippedCommits(git).add_large([OTHER])
    BranchAges(git).unchanged_s("a", OID)
    KnownAnswers(git).note("a", OID)

    assert target.read_text() == "mine"
    assert SkippedCommits(git).without({"a": OID, "b": OTHER}) == {}


def test_a_file_that_cannot_be_replaced_leaves_no_other(tmp_path):
    (tmp_path / "file").mkdir()

    with pytest.raises(OSError, match="file"):
        local_files.replace(tmp_path / "file", "text")

    assert [path.name for path in tmp_path.iterdir()] == ["file"]
