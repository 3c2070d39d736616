"""What a requester learns while nothing happens: who lives, who served last, what waits, and what a job printed."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from bridge.bus import objects, wire
from bridge.bus.objects import Identity
from bridge.bus.wire import Runner, State, StateFile
from bridge.client import Client
from bridge.errors import WaitTimeout
from bridge.manifest import format_time
from bridge.requests import follow, liveness
from bridge.requests.liveness import BranchAges, Liveness, Queue, last_line, shown, span
from bridge.requests.waiting import Code

RUNNER = Identity("a runner", "runner@example.invalid")


def ago(seconds):
    return format_time(datetime.now(UTC) - timedelta(seconds=seconds))


@pytest.fixture
def write(client, git, clone):
    """Write a state upon a request, as a runner does."""
    repo = client.git

    def put(branch, state=State.RUNNING, *, at=None, log=b"", labels=(), lease_s=60.0, detail="", name="mac"):
        read = client.view(branch)
        said = StateFile(
            schema_version=2, state=state, branch=branch, request=read.request, salt=f"{time.time_ns():016x}",
            token=1, sequence=read.sequence + 1, lease_s=lease_s, at=at or ago(0), detail=detail, left_out=0,
            runner=Runner(id=name, instance="i", version="0.1.0"), labels=None if labels is None else list(labels),
        )  # fmt: skip
        files = {wire.STATE: said.to_bytes(), wire.STREAM: log or None}
        tree = objects.overlay(repo, f"{read.tip}^{{tree}}", files)
        commit = objects.commit(repo, tree, [read.tip], "a state\n", RUNNER)
        repo("push", "--quiet", "origin", f"{commit}:refs/heads/{branch}")
        return commit

    return put


class TestTheLastSignOfLife:
    def test_a_runner_that_writes_is_shown_with_its_age_by_its_own_clock(self, client, write):
        run = client.run("noop")
        write(run.branch, at=ago(12))

        status = run.status()

        assert status.waits_for == "job"
        assert not status.life.lapsed
        assert status.outlook.startswith("last sign of life of mac 1")
        assert status.outlook.endswith("s ago by its clock; its lease is 60 s")

    def test_a_lease_has_run_out_once_this_clone_has_seen_it(self, client, write, monkeypatch):
        run = client.run("noop")
        write(run.branch)
        assert not run.status().life.lapsed
        real, up = time.time, time.monotonic
        monkeypatch.setattr(liveness.time, "time", lambda: real() + 95)
        monkeypatch.setattr(liveness.time, "monotonic", lambda: up() + 95)

        life = Client(client.git.directory).status(run.branch).life  # another command, later

        assert life.lapsed
        assert life.unchanged_s >= 95
        assert life.text().startswith("last sign of life of mac at least ")
        assert "its lease of 60 s has run out" in life.text()
        write(run.branch)
        assert not client.status(run.branch).life.lapsed

    def test_dates_alone_prove_nothing(self, client, write):
        """The runner's clock may be an hour slow."""
        run = client.run("noop")
        write(run.branch, at=ago(3600))

        life = run.status().life

        assert not life.lapsed
        assert life.text().endswith("its lease is 60 s, which has run out if the clocks agree")

    def test_a_clock_that_is_ahead_or_no_time_at_all_is_shown_as_it_is(self):
        ahead = Liveness("mac", ago(-3600), 60, 0)
        assert f"at {ahead.at} by its clock" in ahead.text()
        assert Liveness("mac", "yesterday", 60, 0).age_s is None
        assert "at yesterday by its clock" in Liveness("mac", "yesterday", 60, 0).text()

    def test_it_is_data_with_json(self, client, write):
        run = client.run("noop")
        write(run.branch)
        told = json.loads(json.dumps(run.status().as_dict()))
        assert told["life"].keys() == {"runner", "at", "lease_s", "unchanged_s", "age_s", "lapsed"}
        assert told["queue"] is None


OID = "12" * 20


class TestSightings:
    def test_the_clock_that_says_less_counts(self, client, monkeypatch):
        seen = BranchAges(client.git)
        now = {"wall": 1000.0, "up": 50.0}
        monkeypatch.setattr(liveness.time, "time", lambda: now["wall"])
        monkeypatch.setattr(liveness.time, "monotonic", lambda: now["up"])
        assert seen.unchanged_s("b", OID) == 0
        now |= {"wall": 5000.0, "up": 80.0}  # the wall clock was set
        assert seen.unchanged_s("b", OID) == 30
        now |= {"wall": 1100.0, "up": 5.0}  # the machine was started anew
        assert seen.unchanged_s("b", OID) == 100
        now |= {"wall": 900.0, "up": 200.0}  # the wall clock was set back: begin anew
        assert seen.unchanged_s("b", OID) == 0
        now |= {"wall": 910.0, "up": 210.0}
        assert seen.unchanged_s("b", OID[::-1]) == 0

    def test_it_stays_small_and_garbage_is_nothing(self, client, git, clone):
        seen = BranchAges(client.git)
        for i in range(210):
            seen.see(f"b{i}", OID)
        file = clone / ".git" / "kakeya-seen"
        known = file.read_text().split("\n")[:-1]
        assert known[0].endswith(" b10")
        assert len(known) == 200
        for garbage in ("", "[]", f"{OID} b209", f"{OID} nan inf b209"):
            file.write_text(garbage)
            assert BranchAges(client.git).unchanged_s("b209", OID) == 0
        assert git(clone, "status", "--porcelain") == ""

    def test_a_repository_that_cannot_be_written_to_is_still_read(self, client, clone):
        (clone / ".git" / "kakeya-seen").mkdir()
        assert BranchAges(client.git).unchanged_s("b", OID) == 0


class TestTheQueue:
    def test_on_a_bus_that_nobody_serves(self, client):
        first, second = client.run("noop"), client.run("noop")
        waiting = {run.branch: run.status().queue for run in (first, second)}
        assert sorted((queue.before, queue.waiting) for queue in waiting.values()) == [(0, 2), (1, 2)]
        assert first.status().waits_for == "runner"
        texts = sorted(queue.text() for queue in waiting.values())
        assert texts[0].startswith("1 of 2 waiting requests came before it (requesters take turns); ")
        assert texts[1] == "no older request is waiting; no runner has written to this bus yet"

    def test_who_served_last_and_who_is_busy(self, client, write):
        old, busy, mine = (client.run("noop") for _ in range(3))
        write(old.branch, State.FAILED, at="2026-01-01T00:00:00Z", name="old-mac")
        assert (
            mine.status()
            .queue.text()
            .endswith("; nobody has served this bus since 2026-01-01T00:00:00Z (by the clock of old-mac)")
        )
        write(busy.branch)
        assert mine.status().queue.busy_with == busy.branch
        assert mine.status().queue.text().endswith(f"; mac runs {busy.branch}")

    def test_a_request_that_is_held_waits_for_approval_and_for_nobody_to_take_it(self, client, write):
        run = client.run("noop")
        write(run.branch, State.REQUESTED, detail=f"{wire.WAITS_FOR_APPROVAL}: it is not signed")
        status = run.status()
        assert (status.waits_for, status.queue, status.reason.code) == ("approval", None, Code.APPROVAL)
        assert status.outlook == f"On the machine of mac: kakeya-runner approve {run.commit}"

    def test_one_that_was_handed_back_waits_for_a_runner(self, client, write):
        run = client.run("noop")
        write(run.branch, State.REQUESTED, detail="handed back: the runner was stopped")
        assert run.status().waits_for == "runner"

    def test_a_cancelled_one_has_no_place(self, client):
        run = client.run("noop")
        run.cancel()
        assert run.status().queue is None

    def test_it_is_data_with_json(self):
        told = json.loads(json.dumps(Queue(2, 1).as_dict()))
        assert told == {"waiting": 2, "before": 1, "runner": None, "at": None, "busy_with": None}


class TestTheLastLine:
    def test_it_is_the_last_one_that_says_something(self, client, write):
        run = client.run("noop")
        write(run.branch, log=b"progress 1/20 prompts, 4 s\nprogress 2/20 prompts, 8 s\n\n")
        for _ in range(3):
            write(run.branch)
        assert run.status().last_line == "progress 2/20 prompts, 8 s"

    def test_there_is_none_before_a_job_prints(self, client, write):
        run = client.run("noop")
        write(run.branch)
        assert last_line(client.git, client.view(run.branch)) == ""

    def test_it_is_short_and_steers_nothing(self):
        assert shown("\x1b[2J" + "x" * 1000) == "[2J" + "x" * 196


class TestFollowing:
    @staticmethod
    def followed(run, timeout):
        """Follow a request that nobody answers, and return what was told and when.

        On a busy machine it is followed for longer, until there is a note.
        """
        for seconds in (timeout, 10 * timeout, 25 * timeout):
            seen = []
            with suppress(WaitTimeout):
                seen.extend((time.monotonic(), event) for event in run.follow(seconds))
            if any(event.note for _, event in seen):
                break
        return seen

    def test_silence_is_told_of(self, client, monkeypatch):
        monkeypatch.setattr(follow, "FIRST_NOTE_S", 0.2)
        seen = self.followed(client.run("noop"), 1.5)
        assert [bool(event.note) for _, event in seen] == [False, True], "once in a minute is enough"
        assert seen[1][1].note == "no older request is waiting; no runner has written to this bus yet"

    @pytest.mark.long
    def test_a_silent_job_is_left_alone_for_its_lease(self, client, write):
        run = client.run("noop")
        write(run.branch, lease_s=1.0)
        seen = self.followed(run, 2.5)
        (note,) = [(at, event.note) for at, event in seen if event.note]
        assert note[0] - seen[0][0] >= 0.9
        assert "its lease of 1 s has run out" in note[1]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (95, "95 s"), (119.4, "119 s"), (120, "2 min"), (7200, "2 h"), (1e5, "28 h")],
)
def test_time_spans_are_said_as_people_say_them(seconds, text):
    assert span(seconds) == text


def test_presets_that_cannot_be_read_hide_the_reason_and_not_the_state(client, tmp_path):
    run = client.run("noop")
    status = Client(client.git.directory, presets=tmp_path / "missing").status(run.branch)
    assert (status.state, status.queue.waiting, status.reason) == (State.REQUESTED, 1, None)
