"""Taking the reports: regular files below the reports folder, never anything that a link leads to."""

from __future__ import annotations

import os
import shutil
import threading
import time

import pytest

from bridge.presets import Preset
from runner.job.collect import collect

SECRET = b"-----BEGIN OPENSSH PRIVATE KEY-----"


@pytest.fixture
def tree(tmp_path):
    """A job's working directory."""
    path = tmp_path / "tree"
    (path / "results" / "research").mkdir(parents=True)
    return path


@pytest.fixture
def reports(tree):
    """The folder that reports are taken from."""
    return tree / "results" / "research"


@pytest.fixture
def secret(tmp_path):
    """A file outside that must never be read."""
    path = tmp_path / "id_ed25519"
    path.write_bytes(SECRET)
    return path


def preset(*patterns, **limits):
    patterns = patterns or ("results/research/*.json",)
    return Preset(
        name="test",
        description="x",
        code="installed",
        steps=[{"argv": ["/bin/true"]}],
        timeout_s=1,
        collect=list(patterns),
        limits=limits,
    )


def test_declared_reports_are_taken_and_nothing_else(tree, reports):
    (reports / "a.json").write_text("{}")
    (reports / "b.json").write_text("")
    (reports / "c.txt").write_text("no")
    (reports / "deep").mkdir()
    (reports / "deep" / "d.json").write_text("no")
    (tree / "e.json").write_text("no")

    found = collect(preset(), tree)

    assert found.files == {"results/research/a.json": b"{}", "results/research/b.json": b""}
    assert found.skipped == []


def test_a_pattern_reaches_as_deep_as_it_says(tree, reports):
    (reports / "deep").mkdir()
    (reports / "deep" / "d.json").write_text("{}")

    assert list(collect(preset("results/research/*/d*.json"), tree).files) == ["results/research/deep/d.json"]


def test_a_preset_that_declares_no_report_gets_none(tree, reports):
    (reports / "a.json").write_text("{}")
    nothing = preset().model_copy(update={"collect": []})

    assert collect(nothing, tree).files == {}


def _symlink(path, secret):
    path.symlink_to(secret)


def _hard_link(path, secret):
    os.link(secret, path)


def _fifo(path, secret):
    os.mkfifo(path)


def _folder(path, secret):
    path.mkdir()
    (path / "a.json").write_bytes(SECRET)


def _no_permission(path, secret):
    path.write_bytes(SECRET)
    path.chmod(0)


def _dangling(path, secret):
    path.symlink_to("nowhere")


def _device(path, secret):
    path.symlink_to("/dev/zero")


ODD = {
    "symbolic link": (_symlink, "a link, which is not followed"),
    "dangling link": (_dangling, "a link, which is not followed"),
    "link to a device": (_device, "a link, which is not followed"),
    "hard link": (_hard_link, "more than one name"),
    "FIFO": (_fifo, "not a regular file"),
}


@pytest.mark.parametrize("place", ["results", "results/research", "results/research/deep"])
def test_a_link_to_a_folder_is_named_and_not_followed(tree, tmp_path, place):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "research" / "deep").mkdir(parents=True)
    shutil.rmtree(tree / place, ignore_errors=True)
    (tree / place).symlink_to(elsewhere)

    found = collect(preset("results/research/*/x.json"), tree)

    shown = "results/research" if place == "results" else place
    assert found.skipped == [f"{shown}: a link to a folder, which is not followed"]
    assert found.unmatched == ["results/research/*/x.json"]


def test_links_to_folders_that_no_pattern_reaches_are_not_named(tree, reports, tmp_path):
    (reports / "latest").symlink_to(tmp_path)
    (reports / "a.json").write_text("{}")

    found = collect(preset("results/research/*.json", "results/research/deep/*.json"), tree)

    assert (found.skipped, found.unmatched) == ([], ["results/research/deep/*.json"])


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("make", "words"), ODD.values(), ids=ODD)
def test_what_is_no_plain_file_is_left_with_the_reason(tree, reports, secret, make, words):
    make(reports / "x.json", secret)
    (reports / "y.json").write_text("{}")

    found = collect(preset(), tree)

    assert list(found.files) == ["results/research/y.json"]
    assert found.skipped[0].startswith("results/research/x.json: ")
    assert words in found.skipped[0]


def test_a_folder_that_is_called_like_a_report_is_none(tree, reports, secret):
    _folder(reports / "x.json", secret)

    assert collect(preset(), tree).files == {}


def test_a_file_that_may_not_be_read_is_left_with_the_reason(tree, reports, secret, monkeypatch):
    _no_permission(reports / "x.json", secret)
    if os.geteuid() == 0:
        real = os.open

        def refuse(path, *args, **kwargs):
            if path == "x.json":
                raise PermissionError(13, "Permission denied")
            return real(path, *args, **kwargs)

        monkeypatch.setattr("runner.job.collect.os.open", refuse)

    found = collect(preset(), tree)

    assert found.files == {}
    assert "Permission denied" in found.skipped[0]


@pytest.mark.parametrize("link", ["research", "results"])
def test_a_folder_on_the_way_that_is_a_link_is_not_entered(tree, tmp_path, link):
    outside = tmp_path / "outside"
    (outside / "research").mkdir(parents=True)
    for place in (outside, outside / "research"):
        (place / "x.json").write_bytes(SECRET)
    (tree / "results" / "research").rmdir()
    if link == "results":
        (tree / "results").rmdir()
        (tree / "results").symlink_to(outside)
    else:
        (tree / "results" / "research").symlink_to(outside)

    assert collect(preset(), tree).files == {}


def test_a_sparse_giant_costs_no_more_than_its_bound(tree, reports):
    with (reports / "x.json").open("wb") as file:
        file.truncate(1 << 40)
    began = time.monotonic()

    found = collect(preset(report_mb=1), tree)

    assert found.skipped == ["results/research/x.json: larger than 1 MiB"]
    assert time.monotonic() - began < 60  # reading it would take many minutes


@pytest.mark.parametrize(("size", "taken"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_a_report_is_taken_up_to_its_bound(tree, reports, size, taken):
    (reports / "x.json").write_bytes(b"x" * size)

    assert bool(collect(preset(report_mb=1), tree).files) is taken


def test_no_more_reports_are_taken_than_declared_and_that_is_said(tree, reports):
    for i in range(5):
        (reports / f"{i}.json").write_text("{}")

    found = collect(preset(reports=3), tree)

    assert list(found.files) == [f"results/research/{i}.json" for i in range(3)]
    assert found.skipped == ["results/research/3.json: more than 3 reports"]


def test_a_flood_of_files_is_not_walked_to_its_end(tree, reports, monkeypatch):
    monkeypatch.setattr("runner.job.collect.MAX_SEEN", 50)
    for i in range(60):
        (reports / f"{i}").write_text("")

    found = collect(preset(), tree)

    assert "the rest was not looked at" in found.skipped[0]


NAMES = {"no text": "x\udcff.json", "a new line": "x\n.json", "hidden": ".x.json", "an option": "-x.json",
         "turned around": "x\u202e.json"}  # fmt: skip


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_name_that_is_not_plain_is_left_with_the_reason(tree, reports, name):
    (reports / name).write_text("{}")

    found = collect(preset(), tree)

    assert found.files == {}
    assert "not a plain name" in found.skipped[0]
    assert found.skipped[0].isascii()
    assert found.skipped[0].isprintable()


def test_a_report_in_a_folder_called_git_is_left_with_the_reason(tree, reports):
    (reports / ".git").mkdir()
    (reports / ".git" / "x.json").write_text("{}")

    found = collect(preset("results/research/*/*.json"), tree)

    assert found.files == {}
    assert "not a plain name" in found.skipped[0]


def test_a_link_swapped_in_while_reports_are_taken_leads_nowhere(tree, reports, secret):
    """A thread swaps files and folders for links to a secret, as fast as it can."""
    target, folder = reports / "x.json", reports / "d"
    outside = secret.parent / "outside"
    outside.mkdir()
    (outside / "x.json").write_bytes(SECRET)
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            for make in (lambda p: p.write_text("{}"), lambda p: p.symlink_to(secret)):
                target.unlink(missing_ok=True)
                make(target)
                time.sleep(0.0005)
            folder.mkdir()
            folder.rmdir()
            folder.symlink_to(outside)
            folder.unlink()

    swapper = threading.Thread(target=swap)
    swapper.start()
    taken = missed = 0
    wanted = preset("results/research/*.json", "results/research/d/*.json")
    try:
        began = time.monotonic()
        # Longer on a machine on which one of both has not won yet.
        while (passed := time.monotonic() - began) < 1.0 or (passed < 60.0 and not (taken and missed)):
            found = collect(wanted, tree)
            taken += len(found.files)
            missed += len(found.skipped)
            assert not any(SECRET in data for data in found.files.values())
    finally:
        stop.set()
        swapper.join()

    assert taken, "the race was never won by the file: the test shows nothing"
    assert missed, "the race was never won by the link: the test shows nothing"
