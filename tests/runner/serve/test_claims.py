"""One request, many runners, any interruption: it runs once, and it gets one answer."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from contextlib import suppress

import psutil
import pytest

from bridge.bus import history, wire
from bridge.bus.wire import State
from bridge.client import Client
from bridge.errors import ExitCode, GitError
from runner.bus.bus import Bus, Pushed
from runner.job.command import Ready
from runner.serve.compose import Composer
from runner.serve.lease import Lease
from tests import programs

pytestmark = pytest.mark.bus


@pytest.fixture
def count(tmp_path):
    """One line for each execution: the request's branch is not known to a job, so each preset writes a mark."""
    path = tmp_path / "count"
    path.touch()
    return path


@pytest.fixture
def folder(presets, count):
    """Presets that count their executions; `wait` lasts until `go` exists, `again` is quick the second time."""
    note = f'echo ran >> {count}; '  # fmt: skip
    wait = f"while [ ! -e {count}.go ]; do sleep 0.05; done"
    lie = 'mkdir -p results/research; echo \'{"kind": "kakeya.unknown"}\' > results/research/x.json'

    def shell(script):
        return {"argv": ["/bin/sh", "-c", note + script]}

    return presets(
        quick={"steps": [shell("true")]},
        wait={"steps": [shell(wait)]},
        again={"steps": [shell(f"[ $(wc -l < {count}) -gt 1 ] || sleep 300")]},
        stuck={"timeout_s": 1, "steps": [shell("trap '' TERM; sleep 300")]},
        liar={"collect": ["results/research/*.json"], "gate": "reports", "steps": [shell(lie)]},
        forgetful={"collect": ["results/research/*.json"], "gate": "reports", "steps": [shell("true")]},
        broken={"steps": [shell("exit 7"), shell("true")]},
    )


@pytest.fixture
def start(runners, folder):
    """Start a runner with these presets and a short lease."""

    def start(name="one", lease_s=600.0, **policy):
        how = {"preset_folder": str(folder), "limits": {"grace_s": 0.3}, "bus": {"lease_s": lease_s}}
        return runners.start(name, **how | policy)

    return start


@pytest.fixture
def ask(requester):
    """Send a request for a preset and return its branch."""
    return lambda preset: requester.send(requester.manifest(preset))


def runs(count):
    return len(count.read_text().splitlines())


def states(git, bus, branch):
    """Return the states on a branch that commits of runners brought, oldest first."""
    commits = git(bus, "rev-list", "--reverse", "--first-parent", branch).split()
    found = []
    for commit in commits:
        if wire.STATE in git(bus, "ls-tree", "-r", "--name-only", commit).splitlines():
            state = json.loads(git(bus, "show", f"{commit}:{wire.STATE}"))
            if not found or state["salt"] != found[-1]["salt"]:
                found.append(state)
    return found


def finals(git, bus, branch):
    return [state for state in states(git, bus, branch) if State(state["state"]).is_final]


class TestRace:
    """Whoever claims first runs it; nobody else does."""

    @pytest.mark.long
    def test_eight_runners_run_each_of_many_requests_once(self, start, ask, client, git, bus, count):
        branches = [ask("quick") for _ in range(12)]
        started = []
        threads = [
            threading.Thread(target=lambda i=i: started.append(start(f"r{i}", lease_s=120.0)))
            for i in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        for branch in branches:
            assert client.wait(branch, timeout=120).state is State.SUCCEEDED

        assert len(started) == 8
        assert runs(count) == len(branches)
        for branch in branches:
            assert len(finals(git, bus, branch)) == 1
            assert Counter(s["token"] for s in states(git, bus, branch)).keys() == {1}
            assert client.verify(branch).holds

    def test_of_two_claims_on_one_tip_exactly_one_is_pushed(self, host, requester):
        branch = requester.send(requester.manifest())
        with host.context("one") as one, host.context("two") as two:
            claims = []
            for context in (one, two):
                tip = context.bus.fetch()[branch]
                lease = Lease(context.author, history.read_branch(context.bus.git, branch, tip))
                claims.append((context.bus, lease.commit(State.CLAIMED, {}, tip), tip))
            barrier = threading.Barrier(2)
            ends = []

            def push(bus, commit, tip):
                barrier.wait()
                ends.append(bus.push(branch, commit, expect=tip))

            threads = [threading.Thread(target=push, args=claim) for claim in claims]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        assert sorted(end.value for end in ends) == ["done", "stale"]

    @pytest.mark.parametrize("claimed", [Pushed.DONE, Pushed.STALE])
    def test_no_job_begins_before_its_claim_is_on_the_bus(self, host, requester, monkeypatch, claimed):
        events, made = [], []
        push = Bus.push

        def pushing(self, branch, commit, *, expect):
            assert made
            events.append("a push begins")
            pushed = push(self, branch, commit, expect=expect) if claimed is Pushed.DONE else claimed
            events.append(pushed)
            return pushed

        class Watched(Ready):
            def __init__(self, kept=()):
                super().__init__(kept)
                made.append(self)

            def take(self, job):
                events.append("the job begins")
                return super().take(job)

        monkeypatch.setattr(Bus, "push", pushing)
        monkeypatch.setattr("runner.serve.execute.Ready", Watched)
        requester.send(requester.manifest())
        with host.context("one") as context:
            Composer(context).poller().poll()

        answered = ["the job begins", "a push begins", Pushed.DONE] if claimed is Pushed.DONE else []
        assert events == ["a push begins", claimed, *answered]
        assert not any(psutil.pid_exists(ready.pid) for ready in made)

    def test_two_claims_of_one_view_are_never_the_same_commit(self, host, requester):
        """Not even by one runner in one second: a second push of the same id would be told that all is well."""
        name = requester.send(requester.manifest())
        with host.context() as context:
            branch = history.read_branch(context.bus.git, name, context.bus.fetch()[name])
            made = {Lease(context.author, branch).commit(State.CLAIMED, {}, branch.tip) for _ in range(5)}

        assert len(made) == 5

    def test_a_state_of_another_runner_fences_a_claim_that_has_the_same_token(self, host, requester):
        name = requester.send(requester.manifest())
        with host.context("one") as one, host.context("two") as two:
            ours = Lease(one.author, history.read_branch(one.bus.git, name, one.bus.fetch()[name]))
            assert ours.advance(State.CLAIMED) is Pushed.DONE
            theirs = Lease(two.author, history.read_branch(two.bus.git, name, two.bus.fetch()[name]))
            theirs.token = ours.token
            assert theirs.advance(State.CLAIMED) is Pushed.DONE

            moved = ours.fetch_changes()

            assert moved is not None
            assert ours.is_fenced(moved)

    def test_a_claim_with_a_lost_reply_is_known_as_its_own(self, host, requester, monkeypatch):
        name = requester.send(requester.manifest())
        with host.context() as context:
            lease = Lease(
                context.author, history.read_branch(context.bus.git, name, context.bus.fetch()[name])
            )
            real = context.bus.push
            with monkeypatch.context() as patch:
                patch.setattr(
                    context.bus, "push", lambda *args, **more: real(*args, **more) and Pushed.FAILED
                )
                assert lease.advance(State.CLAIMED) is Pushed.FAILED

            assert lease.fetch_changes() is None
            assert lease.advance(State.RUNNING) is Pushed.DONE

    def test_a_claim_upon_an_older_tip_is_stale(self, host, requester):
        name = requester.send(requester.manifest())
        with host.context() as context:
            branch = history.read_branch(context.bus.git, name, context.bus.fetch()[name])
            first, second = Lease(context.author, branch), Lease(context.author, branch)

            assert first.advance(State.CLAIMED) is Pushed.DONE
            assert second.advance(State.CLAIMED) is Pushed.STALE


class TestTakeover:
    """A runner that is gone or asleep loses its lease, and nothing else is lost."""

    @pytest.mark.long
    def test_a_killed_runner_s_request_is_taken_over_after_the_lease(
        self, start, ask, client, git, bus, count, wait_for
    ):
        first = start("one", lease_s=2.0)
        branch = ask("again")
        wait_for(lambda: runs(count) == 1)
        first.process.kill()
        first.process.wait()
        start("two", lease_s=2.0)

        assert client.wait(branch, timeout=120).state is State.SUCCEEDED
        assert runs(count) == 2
        assert [state["token"] for state in finals(git, bus, branch)] == [2]
        assert client.result(branch).runner.id == "two"
        assert client.verify(branch).holds

    @pytest.mark.long
    def test_a_runner_that_comes_back_resumes_its_own_at_once(self, start, ask, client, count, wait_for):
        first = start("one")
        branch = ask("again")
        wait_for(lambda: runs(count) == 1)
        first.process.kill()
        first.process.wait()
        start("one")

        assert client.wait(branch, timeout=120).state is State.SUCCEEDED
        assert client.result(branch).token == 2

    @pytest.mark.long
    def test_a_request_whose_runners_all_died_is_lost(self, start, ask, client, count, wait_for):
        limits = {"attempts": 2}
        branch = ask("wait")
        for n in (1, 2):
            runner = start("one", limits=limits)
            wait_for(lambda n=n: runs(count) == n)
            runner.process.kill()
            runner.process.wait()
        start("one", limits=limits)

        status = client.wait(branch, timeout=120)

        assert status.state is State.LOST
        assert status.exit_code == ExitCode.INFRASTRUCTURE
        assert runs(count) == 2

    @pytest.mark.long
    def test_a_runner_that_slept_past_its_lease_publishes_nothing(
        self, start, ask, client, git, bus, count, wait_for
    ):
        sleeper = start("sleeper", lease_s=2.0)
        branch = ask("wait")
        wait_for(lambda: runs(count) == 1)
        sleeper.process.send_signal(signal.SIGSTOP)
        start("other", lease_s=2.0)
        wait_for(lambda: runs(count) == 2)
        count.with_name("count.go").touch()
        assert client.wait(branch, timeout=120).state is State.SUCCEEDED
        tip = git(bus, "rev-parse", branch)

        sleeper.process.send_signal(signal.SIGCONT)
        wait_for(lambda: "taken it over" in sleeper.said() or "dropped" in sleeper.said())

        assert sleeper.stop() == 0
        assert git(bus, "rev-parse", branch) == tip
        assert client.result(branch).runner.id == "other"
        assert len(finals(git, bus, branch)) == 1
        assert client.verify(branch).holds

    @pytest.mark.long
    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "interrupt"])
    def test_a_runner_that_is_stopped_hands_its_job_back(
        self, start, ask, client, git, bus, count, wait_for, signum
    ):
        first = start("one")
        branch = ask("again")
        wait_for(lambda: runs(count) == 1)
        assert first.stop(signum) == 0
        assert states(git, bus, branch)[-1]["state"] == "requested"
        start("two")

        assert client.wait(branch, timeout=120).state is State.SUCCEEDED
        assert client.result(branch).runner.id == "two"

    @pytest.mark.long
    def test_a_runner_that_is_to_finish_finishes_its_job_before_it_stops(
        self, start, ask, client, count, wait_for
    ):
        runner = start("one", on_stop="finish")
        branch = ask("wait")
        wait_for(lambda: runs(count) == 1)
        runner.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "stopping" in runner.said())
        count.with_name("count.go").touch()

        assert runner.process.wait(120) == 0
        assert client.wait(branch, timeout=60).state is State.SUCCEEDED

    def test_an_idle_runner_stops_promptly(self, start):
        runner = start("one")

        assert runner.stop() == 0
        assert "stopped after 0 requests" in runner.said()

    @pytest.mark.long
    def test_a_second_runner_on_one_state_directory_is_refused(self, start):
        runner = start("one")

        done = programs.run("--policy", runner.policy, "serve")

        assert done.returncode == ExitCode.INFRASTRUCTURE
        assert "another runner is using" in done.stderr
        assert runner.process.poll() is None


class TestRequester:
    """What the requester does to the branch meanwhile."""

    def test_a_cancel_before_the_run_is_answered_and_nothing_runs(self, start, ask, client, count):
        branch = ask("quick")
        client.cancel(branch, "changed my mind")
        start()

        status = client.wait(branch, timeout=120)

        assert (status.state, status.exit_code) == (State.CANCELLED, ExitCode.CANCELLED)
        assert runs(count) == 0
        assert client.verify(branch).holds

    @pytest.mark.parametrize("session", [None, "claude/session"])
    def test_a_cancel_while_it_runs_ends_the_job_promptly(
        self, start, keyed, clone, folder, git, bus, count, wait_for, monkeypatch, session
    ):
        """Also one on a session's branch, whose answer holds too, although the cancellation is not on its branch."""
        monkeypatch.setenv("KAKEYA_PRESETS", str(folder))
        git(clone, "push", "--quiet", "origin", "HEAD:claude/session")
        client = Client(clone, public_key=str(keyed.key()))
        start(bus={"forward": ["claude/*"]})
        run = client.run("wait", on_branch=session)
        wait_for(lambda: runs(count) == 1)
        run.cancel("enough")

        status = run.wait(timeout=120)  # the job waits for ever

        assert (status.state, status.exit_code) == (State.CANCELLED, ExitCode.CANCELLED)
        assert status.detail == "the requester cancelled it: enough"
        assert runs(count) == 1
        assert len(finals(git, bus, run.branch)) == 1
        assert run.verify().signed

    @pytest.mark.long
    def test_a_push_in_the_middle_supersedes_the_run(self, start, ask, client, requester, count, wait_for):
        start()
        branch = ask("wait")
        wait_for(lambda: runs(count) == 1)
        for _ in range(50):
            requester.git("fetch", "--quiet", "origin", f"+refs/heads/{branch}:refs/heads/mine")
            tip = requester.git.text("rev-parse", "mine")
            commit = requester.commit({"more.txt": b"x"}, tip, base=tip)
            with suppress(GitError):  # a heartbeat was faster
                requester.push(commit, branch)
                break

        status = client.wait(branch, timeout=120)

        assert status.state is State.CANCELLED
        assert client.result(branch).reason.code == "superseded"
        assert runs(count) == 1

    @pytest.mark.long
    def test_a_branch_that_is_deleted_in_the_middle_ends_the_job_and_is_not_made_again(
        self, start, ask, client, git, bus, count, wait_for
    ):
        runner = start()
        branch = ask("wait")
        wait_for(lambda: runs(count) == 1)
        git(bus, "update-ref", "-d", f"refs/heads/{branch}")
        wait_for(lambda: "superseded" in runner.said() or "pushed to again" in runner.said())
        following = ask("quick")

        assert client.wait(following, timeout=120).state is State.SUCCEEDED
        assert git(bus, "for-each-ref", f"refs/heads/{branch}") == ""

    @pytest.mark.long
    def test_a_branch_that_is_rewritten_in_the_middle_ends_the_job(
        self, start, ask, client, requester, count, wait_for
    ):
        runner = start()
        branch = ask("wait")
        wait_for(lambda: runs(count) == 1)
        requester.push(requester.commit({"x": b"y"}), branch, force=True)

        status = client.wait(branch, timeout=120)

        assert status.state in (State.REFUSED, State.CANCELLED)
        assert runs(count) == 1
        assert runner.stop() == 0


class TestEnds:
    """How a job ends is what the client says."""

    @pytest.mark.rows(1)
    @pytest.mark.parametrize(
        ("preset", "state", "exit_code", "reason", "executed"),
        [
            pytest.param("quick", State.SUCCEEDED, 0, "ok", 1, id="succeeded"),
            pytest.param("broken", State.FAILED, 1, "exit_code", 1, id="step failed"),
            pytest.param("stuck", State.TIMED_OUT, 124, "timeout", 1, id="timed out"),
            pytest.param("liar", State.GATE_REJECTED, 5, "rejected", 1, id="gate rejected"),
            pytest.param("forgetful", State.GATE_INCOMPLETE, 7, "incomplete", 1, id="report missing"),
        ],
    )
    def test_an_end_has_its_state_its_code_and_its_reason(
        self, start, ask, client, count, preset, state, exit_code, reason, executed
    ):
        start()
        branch = ask(preset)

        status = client.wait(branch, timeout=120)

        assert (status.state, status.exit_code) == (state, exit_code)
        assert client.result(branch).reason.code == reason
        assert runs(count) == executed
        assert client.verify(branch).holds


class TestOnce:
    """`once` handles the branch that it is given, and says by its exit code how that ended."""

    @pytest.fixture
    def once(self, runners, folder):
        def once(branch, *more):
            policy = runners.policy("one", preset_folder=str(folder))
            return programs.run("--policy", policy, "once", "--branch", branch, *more)

        return once

    @pytest.mark.rows(1)
    @pytest.mark.parametrize(("preset", "code"), [("quick", 0), ("forgetful", 7), ("no-such", 4)])
    def test_its_exit_code_is_the_answer_s(self, once, ask, preset, code):
        assert once(ask(preset)).returncode == code

    @pytest.mark.long
    def test_an_answered_branch_is_left_alone(self, once, ask, git, bus, count):
        branch = ask("broken")
        once(branch)
        tip = git(bus, "rev-parse", branch)

        assert once(branch).returncode == 1
        assert git(bus, "rev-parse", branch) == tip
        assert runs(count) == 1

    @pytest.mark.long
    def test_the_commit_must_be_the_request(self, once, ask, git, bus, count):
        branch = ask("quick")

        moved = once(branch, "--commit", "0" * 40)

        assert moved.returncode == ExitCode.REFUSED
        assert "no longer at" in moved.stderr
        assert runs(count) == 0
        assert once(branch, "--commit", git(bus, "rev-parse", branch)).returncode == 0

    @pytest.mark.rows(1)
    @pytest.mark.parametrize(
        "branch", ["main", "other/quick-1700000000-abcdef", "--upload-pack=x", "mac-bridge/\u202e"]
    )
    def test_a_name_that_is_not_served_is_refused(self, once, branch):
        done = once(branch)

        assert done.returncode in (ExitCode.REFUSED, ExitCode.USAGE)
        assert "Traceback" not in done.stderr

    def test_a_branch_that_is_not_there_is_refused(self, once):
        done = once("mac-bridge/quick-1700000000-abcdef")

        assert done.returncode == ExitCode.REFUSED
        assert "there is no branch" in done.stderr
