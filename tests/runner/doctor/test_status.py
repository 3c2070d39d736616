"""`kakeya-runner status`: what an operator sees of a runner that serves, was stopped, was killed, or cannot work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict

import pytest

from bridge.bus.wire import State
from runner.doctor.status import checks, overview
from runner.policy import load_policy
from runner.state import signing_key
from runner.state.activity import NAME, Facts, StatusFile, read_facts

SHELL = "/bin/sh"


@pytest.fixture
def jobs(presets, tmp_path):
    """A job that runs until the file `go` is there, one for a host with a label, and one that needs approval."""
    go = tmp_path / "go"
    wait = {"steps": [{"argv": [SHELL, "-c", 'while [ ! -e "$0" ]; do sleep 0.05; done', str(go)]}]}
    true = {"steps": [{"argv": ["/bin/true"]}]}
    return presets(
        wait=wait, gpu={**true, "labels": ["gpu"]}, theirs={**true, "code": "request"}, quick=true
    ), go


def status(runner, *args):
    argv = [
        sys.executable,
        "-P",
        "-m",
        "runner",
        "--policy",
        str(runner.policy),
        "status",
        "--no-blas",
        *args,
    ]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def seen(runner):
    return json.loads(status(runner, "--json").stdout)


@pytest.mark.long
@pytest.mark.bus
def test_the_operator_sees_the_job_the_queue_and_the_answers_while_it_serves(
    runners, client, requester, jobs, wait_for
):
    folder, go = jobs
    rules = {"preset_folder": str(folder), "trust": {"code_request": "signed", "unapproved": "hold"}}
    gpu = requester.send(requester.manifest("gpu"))
    theirs = requester.send(requester.manifest("theirs", code="request"))
    runner = runners.start(**rules)
    wait_for(lambda: len(seen(runner)["runner"]["queue"]) == 2)
    running = requester.send(requester.manifest("wait", requested_by="a stranger"))
    wait_for(lambda: seen(runner)["runner"]["job"])

    found = seen(runner)
    assert found["serving"]
    assert found["runner"]["job"]["branch"] == running
    why = {one["branch"]: one["why"] for one in found["runner"]["queue"]}
    assert why[gpu] == "asks for labels that this runner lacks"
    assert why[theirs].startswith("waits for approval: kakeya-runner approve ")
    done = status(runner)
    assert done.returncode == 0
    assert f"{running}: running since" in done.stdout
    assert "\x1b" not in done.stdout

    go.touch()
    assert client.wait(running, timeout=120).state is State.SUCCEEDED
    wait_for(lambda: seen(runner)["runner"]["answers"])
    (answer,) = seen(runner)["runner"]["answers"]
    assert (answer["branch"], answer["state"], answer["published"]) == (running, "succeeded", True)
    assert seen(runner)["runner"]["job"] is None

    assert runner.stop() == 0
    done = status(runner)
    assert done.returncode == 1
    assert "stopped; it last wrote at" in done.stdout


@pytest.mark.long
@pytest.mark.bus
def test_a_runner_that_was_killed_or_cannot_reach_its_bus_is_not_called_fine(runners, jobs, bus, wait_for):
    folder, _ = jobs
    runner = runners.start(preset_folder=str(folder))
    wait_for(lambda: seen(runner)["runner"]["last_poll_at"])
    bus.rename(bus.with_name("away.git"))
    wait_for(lambda: seen(runner)["runner"]["trouble"])
    done = status(runner)
    assert done.returncode == 1
    assert "cannot fetch from the bus" in done.stdout

    runner.process.send_signal(signal.SIGKILL)
    runner.process.wait()
    assert "ended without a final message" in status(runner).stdout


@pytest.mark.long
@pytest.mark.bus
def test_one_line_for_each_event_says_who_asked_for_what_and_how_long_it_took(
    runners, client, requester, jobs, wait_for
):
    folder, _ = jobs
    runner = runners.start(preset_folder=str(folder))
    branch = requester.send(requester.manifest("quick", requested_by="eve x"))
    client.wait(branch, timeout=120)
    wait_for(lambda: "succeeded" in runner.said())

    lines = [line for line in runner.said().splitlines() if branch in line]
    assert len(lines) == 2
    assert all(line.isprintable() and line[:4].isdecimal() and line[4] == "-" for line in lines), lines
    assert "claimed; quick, asked by eve" in lines[0]
    assert "succeeded (every step ended with 0) after " in lines[1]
    assert lines[1].rstrip().endswith("x")


@pytest.mark.bus
def test_an_answer_that_was_dropped_is_not_called_succeeded(host, requester, presets, bus):
    """The job takes its own branch away, so nothing can be published."""
    gone = "git --git-dir \"$0\" for-each-ref --format='delete %(refname)' refs/heads/mac-bridge"
    script = f'{gone} | git --git-dir "$0" update-ref --stdin'
    folder = presets(gone={"steps": [{"argv": [SHELL, "-c", script, str(bus)]}]})
    branch = requester.send(requester.manifest("gone"))

    host.handle(preset_folder=str(folder))

    about = [line for line in host.told if line.startswith(branch)]
    assert about[-2].endswith("this answer is dropped")
    assert f"{branch}: nothing is published" in about[-1]
    assert not any(word in line for line in about for word in ("succeeded", "cancelled ("))


class TestStanding:
    def test_answers_outlive_the_process(self, tmp_path):
        for i in range(12):
            StatusFile(tmp_path).record_answer(f"b{i}", "x", "failed", "why\n\x1b[31m", 1.04, published=False)

        answers = read_facts(tmp_path).answers
        assert [one["branch"] for one in answers] == [f"b{i}" for i in range(11, 1, -1)]
        assert answers[0]["reason"].isprintable()
        assert [file.name for file in tmp_path.iterdir()] == [NAME]

    def test_a_queue_is_bounded_and_counted(self, tmp_path):
        StatusFile(tmp_path).record_poll({f"b{i}": "waits" for i in range(1000)})

        found = read_facts(tmp_path)
        assert (found.waiting, len(found.queue)) == (1000, 50)

    def test_trouble_keeps_its_beginning_and_goes_with_the_next_poll(self, tmp_path):
        status_file = StatusFile(tmp_path)
        status_file.record_failure("first")
        status_file.facts.trouble["since"] = "2026-01-01T00:00:00Z"
        status_file.record_failure("second")
        assert read_facts(tmp_path).trouble == {"since": "2026-01-01T00:00:00Z", "message": "second"}

        status_file.record_poll({})
        assert read_facts(tmp_path).trouble is None

    def test_a_folder_that_cannot_be_written_stops_nothing(self, tmp_path):
        StatusFile(tmp_path / "missing").record_poll({})

    @pytest.mark.parametrize("content", ["", "[]", "{}", '{"pid": 1}', "nonsense"])
    def test_a_file_that_is_none_of_ours_is_nothing(self, tmp_path, content):
        (tmp_path / NAME).write_text(content)
        assert read_facts(tmp_path) is None


class TestOverview:
    @pytest.fixture
    def policy(self, runners):
        return load_policy(runners.policy())

    def lines(self, found):
        return {check.name: check for check in checks(found)}

    def test_without_a_state_folder(self, policy):
        found = self.lines(overview(policy, blas=False))
        assert "no runner has used" in found["runner"].message
        assert found["disk"].message.endswith("does not exist yet")
        assert found["key"].ok is None
        assert found["sandbox"].message.startswith("the policy says off")

    def test_what_a_poll_and_an_answer_leave(self, policy):
        policy.state.mkdir()
        signing_key.make_key(policy.state)
        status_file = StatusFile(policy.state)
        status_file.set_serving(serving=True, sandbox={"kind": "off", "why": "the policy says so"})
        status_file.record_job_start("b", "noop, asked by x")
        status_file.record_step(1)
        status_file.record_poll({f"b{i}": "waits for its turn" for i in range(12)})
        status_file.record_answer("a", "noop", "failed", "why", 2.0, published=False)
        found = self.lines(overview(policy, blas=False))
        assert f"process {os.getpid()}" in found["runner"].message
        assert ", step 1; noop, asked by x" in found["job"].message
        assert found[""].message == "and 2 more"
        assert "kept here, because it could not be published" in found["answer"].message
        assert "NOT confined" in found["sandbox"].message
        assert "signed with" in found["key"].message

    def test_a_disk_without_room_is_a_fault(self, policy):
        policy.state.mkdir()
        found = overview(policy, blas=False)
        found["disk"]["keep_free_bytes"] = found["disk"]["free_bytes"] + 1
        assert self.lines(found)["disk"].ok is False

    @pytest.mark.long
    def test_the_engine_is_asked_in_a_process_of_its_own(self, policy):
        found = overview(policy)["blas"]
        assert found.keys() == {"name", "library", "gflops"}
        assert "GFLOP/s" in self.lines(overview(policy))["blas"].message

    def test_an_engine_that_does_not_answer_is_said_to(self, policy):
        found = overview(policy.model_copy(update={"interpreter": "/bin/false"}))
        assert self.lines(found)["blas"].message.startswith("unknown: `/bin/false -m engine probe`")

    @pytest.mark.parametrize(
        ("facts", "serves"),
        [
            (Facts(pid=os.getpid(), serving=True), True),
            (Facts(pid=os.getpid(), serving=False), False),
            (Facts(pid=1, serving=True), True),
            (Facts(pid=2**22 - 1, serving=True), False),
            # Written before the process with this id began.
            (Facts(pid=os.getpid(), serving=True, written_at="2026-01-01T00:00:00Z"), False),
        ],
    )
    def test_only_a_live_process_serves(self, policy, facts, serves):
        policy.state.mkdir()
        (policy.state / NAME).write_text(json.dumps(asdict(facts)))
        assert overview(policy, blas=False)["serving"] is serves


@pytest.mark.bus
def test_row_126_a_request_whose_branch_was_deleted_under_its_job_runs_once(
    host, requester, presets, bus, tmp_path
):
    gone = "git --git-dir \"$0\" for-each-ref --format='delete %(refname)' refs/heads/mac-bridge"
    script = f'echo x >> "$1"; {gone} | git --git-dir "$0" update-ref --stdin'
    ran = tmp_path / "ran-here"
    folder = presets(gone={"steps": [{"argv": [SHELL, "-c", script, str(bus), str(ran)]}]})
    branch = requester.send(requester.manifest("gone"))
    commit = requester.git.text("rev-parse", f"refs/remotes/origin/{branch}")
    host.handle(preset_folder=str(folder))

    requester.push(commit, branch)
    host.handle(preset_folder=str(folder))

    assert host.result(branch).reason.code == "replayed"
    assert ran.read_text() == "x\n"
