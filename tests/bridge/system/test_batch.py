"""Processes of git are kept from one question to the next, and never beyond what makes their answers old."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from bridge.bus import objects
from bridge.errors import InfrastructureError, ProcessError
from bridge.system import batch
from bridge.system.git import Git


@pytest.fixture
def git(clone):
    # Of earlier tests.
    batch.invalidate_all()
    yield Git.of_user(clone)
    batch.invalidate_all()


@pytest.fixture
def started(monkeypatch):
    """Count the processes of git that are started to be asked."""
    seen: list[tuple[str, ...]] = []
    start = Git.start

    def counted(self, *args, **options):
        seen.append(args)
        return start(self, *args, **options)

    monkeypatch.setattr(Git, "start", counted)
    return seen


def head(git: Git) -> str:
    found = objects.resolve(git, "HEAD")
    assert found
    return found


def test_one_process_answers_many_questions(git, started):
    commit = head(git)
    for _ in range(20):
        assert objects.is_commit(git, commit)
        assert objects.parents_of(git, commit) == []
    assert started == [("cat-file", "--batch-check"), ("cat-file", "--batch")]


def test_what_was_written_later_is_found_by_the_same_process(git, started):
    head(git)
    oid = objects.write_blob(git, b"new")
    assert objects.read_many(git, [oid], max_bytes=10) == [b"new"]
    assert started.count(("cat-file", "--batch-check")) == 1


@pytest.mark.parametrize("argv", [("fetch", "--quiet", "origin"), ("gc", "--quiet"), ("prune",)])
def test_a_process_does_not_outlive_a_change_of_what_there_is(git, started, argv):
    head(git)
    git(*argv)
    head(git)
    assert started.count(("cat-file", "--batch-check")) == 2


def test_a_process_that_was_killed_is_replaced(git):
    commit = head(git)
    kept = git.acquire("cat-file", "--batch-check")
    batch.release(kept)
    os.kill(kept.child.pid, signal.SIGKILL)
    while kept.child.is_running:
        time.sleep(0.01)
    assert head(git) == commit


def test_a_process_that_dies_in_an_answer_is_an_error_and_not_kept(git):
    def ask_a_dead_process():
        with batch.releasing(git.acquire("cat-file", "--batch-check")) as process:
            os.kill(process.child.pid, signal.SIGKILL)
            process.child.line()

    with pytest.raises(ProcessError):
        ask_a_dead_process()
    assert head(git)


def test_an_answer_that_was_not_read_to_its_end_is_not_mistaken_for_the_next(git):
    one, two = (objects.write_blob(git, data) for data in (b"a" * 300_000, b"two"))
    for oid, _ in objects.each_content(git, [one, two]):
        assert oid == one
        break
    for _, pieces in objects.each_in_pieces(git, [one], 10):
        assert len(next(pieces)) == 10
        break
    assert objects.read_many(git, [two], max_bytes=10) == [b"two"]


def test_a_missing_object_leaves_no_process_in_doubt(git):
    with pytest.raises(InfrastructureError):
        list(objects.each_content(git, ["0" * 40]))
    assert objects.read_many(git, [objects.write_blob(git, b"x")], max_bytes=10) == [b"x"]


def test_an_old_process_and_one_that_was_asked_a_lot_are_replaced(git, started, monkeypatch):
    monkeypatch.setattr(batch, "MAX_QUERIES", 3)
    for _ in range(4):
        head(git)
    assert started.count(("cat-file", "--batch-check")) == 2
    monkeypatch.setattr(batch, "MAX_AGE_S", 0.0)
    head(git)
    head(git)
    assert started.count(("cat-file", "--batch-check")) == 4


def test_few_are_kept_and_all_end(clone, tmp_path):
    gits = [Git.of_user(clone).with_env(NUMBER=str(i)) for i in range(9)]
    children = []
    for git in gits:
        process = git.acquire("cat-file", "--batch-check")
        children.append(process.child)
        batch.release(process)
    assert sum(child.is_running for child in children) <= batch.MAX_IDLE
    batch.invalidate_all()
    assert not any(child.is_running for child in children)


def test_threads_do_not_meet_at_one_process(git):
    blobs = {objects.write_blob(git, str(i).encode()): str(i).encode() for i in range(30)}
    wrong = []

    def read() -> None:
        for oid, data in blobs.items():
            if objects.read_many(git, [oid], max_bytes=10) != [data]:
                wrong.append(oid)

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
