"""An agent that may push to one branch only: its requests go on that branch, and a runner forwards them."""

from __future__ import annotations

import random
import time
from datetime import timedelta

import pytest

from bridge.bus import branch_names, history, objects, wire
from bridge.bus.wire import State
from bridge.buses import Buses
from bridge.client import Client
from bridge.common import limits
from bridge.errors import KakeyaError, RefusedError, UsageError
from bridge.groups import Ask, start
from bridge.presets.points import Points
from bridge.requests.on_branch import carrier
from bridge.requests.on_branch.carrier import CarriedRequest
from bridge.system.git import Git
from runner.bus.bus import Pushed
from runner.doctor.readiness import examine
from runner.serve.compose import Composer
from runner.serve.lease import Lease
from tests.conftest import git

pytestmark = pytest.mark.bus

SESSION = "claude/session-1"
FORWARD = {"bus": {"forward": ["claude/*"]}}
HOOK = """#!/bin/sh
[ -n "$AGENT$REMOTE_USER$SSH_CONNECTION" ] || exit 0
[ "$1" = "refs/heads/claude/session-1" ] && exit 0
echo "this session may push to claude/session-1 only" >&2
exit 1
"""


def confine(bus, clone, monkeypatch):
    """Let the agent in the clone push to its session's branch alone."""
    git(clone, "checkout", "--quiet", "-b", SESSION)
    git(clone, "push", "--quiet", "--set-upstream", "origin", SESSION)
    (bus / "hooks").mkdir(exist_ok=True)
    (bus / "hooks" / "update").write_text(HOOK)
    (bus / "hooks" / "update").chmod(0o755)
    monkeypatch.setenv("AGENT", "yes")


@pytest.fixture
def agent(bus, clone, touching, monkeypatch):
    """A client that may push to its session's branch alone, and knows the host's presets."""
    confine(bus, clone, monkeypatch)
    monkeypatch.setenv("KAKEYA_PRESETS", str(touching))
    return Client(clone)


@pytest.fixture
def handle(host, monkeypatch):
    """Let a runner handle what there is, with its own right to push."""

    def run(name="one", **policy):
        with monkeypatch.context() as patch:
            patch.delenv("AGENT", raising=False)
            host.handle(name, **{**FORWARD, **policy})

    return run


def refs(bus):
    """Return the branches of the bus."""
    return git(bus, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").splitlines()


def carried(session=SESSION, branch=None, manifest=b"{}", commit=b""):
    branch = branch or f"mac-bridge/touch-{branch_names.new_nonce()}"
    return CarriedRequest(session, branch, manifest, commit)


def put(clone, message, upon=SESSION, branch=SESSION):
    """Push an empty commit with a message of one's own upon a branch, and return it."""
    repo = Git.of_user(clone)
    tip = repo.text("rev-parse", upon)
    who = objects.Identity("A Stranger", "stranger@example.invalid")
    commit = objects.commit(repo, repo.text("rev-parse", f"{tip}^{{tree}}"), [tip], message, who)
    git(clone, "push", "--quiet", "--force", "origin", f"{commit}:refs/heads/{branch}")
    return commit


class TestTheAgent:
    def test_a_refused_branch_makes_the_request_go_on_the_session_s_own(self, agent, clone, handle, ran):
        head, files = git(clone, "rev-parse", "HEAD"), git(clone, "status", "--porcelain")
        run = agent.run("touch")
        assert run.session == SESSION
        assert git(clone, "rev-parse", "HEAD^") == head
        assert git(clone, "diff", "HEAD", head) == ""
        assert git(clone, "status", "--porcelain") == files
        assert git(clone, "rev-parse", "@{upstream}") == git(clone, "rev-parse", "HEAD")

        status = run.status()
        assert (status.state, status.reason.code) == (State.REQUESTED, "forward")
        assert SESSION in status.reason.message

        handle()
        assert run.status().state is State.SUCCEEDED
        assert ran.exists()
        assert run.verify().holds
        assert run.logs() is not None

    def test_commits_that_were_not_pushed_are_not_pushed_unasked(self, agent, clone, bus):
        git(clone, "commit", "--quiet", "--allow-empty", "-m", "Not for others yet")
        before = git(bus, "rev-parse", SESSION)
        with pytest.raises(RefusedError, match="does not let you push") as error:
            agent.run("touch")
        assert "push your commits" in error.value.fix
        assert git(bus, "rev-parse", SESSION) == before
        agent.run("touch", on_branch="")
        assert git(bus, "rev-parse", f"{SESSION}~2") == before

    @pytest.mark.usefixtures("agent")
    def test_a_sweep_goes_on_the_session_s_branch_and_is_continued_there(self, clone, handle):
        def begin():
            return start(
                Buses.of(clone).first, "count", Points(({"n": 1}, {"n": 2}, {"n": 3}), ("n",)), Ask()
            )

        def interrupt(_point, session):
            assert session == SESSION
            raise KeyboardInterrupt

        first = begin()
        with pytest.raises(KeyboardInterrupt):
            first.send(interrupt, waits=True)
        group = begin()
        assert (group.id, len(group.unsent)) == (first.id, 2)
        group.send(lambda *_: None, waits=True)
        assert [status.state for _, status in group.statuses()] == [State.REQUESTED] * 3
        handle()
        assert [status.state for _, status in group.statuses()] == [State.SUCCEEDED] * 3

    def test_the_refusal_is_remembered(self, agent, clone, http_bus):
        git(clone, "remote", "set-url", "origin", http_bus.url)

        def pushes():
            agent.run("touch")
            count = sum(path.endswith("/git-receive-pack") for _, path, _ in http_bus.requests)
            http_bus.requests.clear()
            return count

        assert (pushes(), pushes()) == (2, 1)

    def test_one_key_sends_one_request(self, agent, clone, handle):
        first, again = (agent.run("touch", idempotency_key="task") for _ in range(2))
        assert (first.branch, first.commit, again.existing) == (again.branch, again.commit, True)
        assert git(clone, "rev-list", "--count", "main..") == "1"
        handle()
        assert agent.run("touch", idempotency_key="task").status().state is State.SUCCEEDED
        with pytest.raises(UsageError, match="another request"):
            agent.run("count", {"n": 2}, idempotency_key="task")

    def test_the_mcp_tool_falls_back_by_itself(self, agent, bus, handle, ran):
        pytest.importorskip("mcp", reason="needs the extra [mcp]")
        from bridge.mcp import calls, models  # noqa: PLC0415

        door = calls.BusClient(str(agent.git.directory))
        sent = calls.run(door, models.Ask(preset="touch", idempotency_key="once"))
        assert refs(bus) == [SESSION, "main"]
        assert calls.status(door, models.About()).waits_for == "forward"
        assert calls.recent(door, models.Recent()).requests[0].waits_for == "forward"
        again = calls.run(door, models.Ask(preset="touch", idempotency_key="once"))
        assert (again.branch, again.existing) == (sent.branch, True)
        handle()
        assert calls.status(door, models.About(request=sent.branch)).state == "succeeded"
        assert ran.exists()

    @pytest.mark.long
    def test_cancelled_by_the_mcp_tool(self, agent, handle, ran):
        pytest.importorskip("mcp", reason="needs the extra [mcp]")
        from bridge.mcp import calls, models  # noqa: PLC0415

        door = calls.BusClient(str(agent.git.directory))
        early, late = (calls.run(door, models.Ask(preset="elsewhere", labels=["nowhere"])) for _ in range(2))
        assert calls.cancel(door, models.Cancel(request=early.branch)).state == "cancelled"
        handle()
        calls.cancel(door, models.Cancel(request=late.branch))
        handle()
        for sent in (early, late):
            assert calls.status(door, models.About(request=sent.branch)).state == "cancelled"
        assert not ran.exists()

    def test_a_list_has_what_waits_to_be_forwarded(self, agent, bus, handle, kakeya):
        run = agent.run("touch")
        code, said = kakeya("list")
        assert (code, "waiting to be forwarded" in said, f"from {SESSION} yet" in said) == (0, True, True)
        (row,) = agent.list()
        assert (row.branch, row.state, row.reason.code) == (run.branch, State.REQUESTED, "forward")
        assert len(agent.list(1)) == 1
        handle()
        (row,) = agent.list()
        assert (row.branch, row.state) == (run.branch, State.SUCCEEDED)
        git(bus, "update-ref", "-d", f"refs/heads/{run.branch}")
        assert agent.list() == []

    @pytest.mark.long
    def test_a_list_knows_of_a_cancellation_before_the_forward(self, agent, handle):
        run = agent.run("touch")
        run.cancel("a mistake")
        (row,) = agent.list()
        assert (row.state, row.reason, run.status().state) == (State.CANCELLED, None, State.CANCELLED)
        handle()
        assert run.status().state is State.CANCELLED

    @pytest.mark.long
    def test_what_expired_before_the_forward_is_named_so(self, agent):
        agent.run("touch", lifetime=timedelta(seconds=1))
        time.sleep(2.1)
        assert [row.reason.code for row in agent.list()] == ["expired"]

    @pytest.mark.long
    def test_the_session_s_branch_is_read_once_a_request(self, agent, clone, http_bus):
        git(clone, "remote", "set-url", "origin", http_bus.url)
        agent.run("touch")
        http_bus.requests.clear()
        agent.run("touch")
        listings = [
            path for _, path, _ in http_bus.requests if path.endswith("/info/refs?service=git-upload-pack")
        ]
        # One for the default branch's name, and one for the session's branch.
        assert len(listings) == 2

    @pytest.mark.long
    def test_ten_requests_with_own_commits_between(self, agent, bus, clone, handle):
        runs = []
        for number in range(10):
            runs.append(agent.run("count", {"n": number + 1}))
            if number % 3 == 0:
                (clone / "work.txt").write_text(str(number))
                git(clone, "add", "--all")
                git(clone, "commit", "--quiet", "-m", "Work")
                git(clone, "push", "--quiet")
        handle()
        assert [run.status().state for run in runs] == [State.SUCCEEDED] * 10
        assert sum("/mac-bridge-count-" in name for name in refs(bus)) == 10
        assert git(clone, "log", "--format=", "--name-only", "main..").split() == ["work.txt"] * 4

    @pytest.mark.long
    def test_a_named_branch_need_not_be_checked_out(self, agent, clone, handle):
        git(clone, "checkout", "--quiet", "--detach", "main")
        run = agent.run("touch", on_branch=SESSION)
        handle()
        assert run.status().state is State.SUCCEEDED

    @pytest.mark.long
    def test_a_signed_request_stays_signed(self, agent, clone, handle, signers):
        trust = {"trust": {"code_request": "signed", "allowed_signers": str(signers.allow("ann"))}}
        git(clone, "config", "user.signingkey", str(signers.key("ann")))
        git(clone, "config", "user.email", "ann@example.invalid")
        unsigned, signed = (agent.run("where", {"path": "tests"}, sign=sign) for sign in (False, True))
        handle(**trust)
        assert unsigned.status().state is State.REFUSED
        assert signed.status().state is State.SUCCEEDED

    def test_cancelled_before_it_is_forwarded(self, agent, handle, ran):
        run = agent.run("touch")
        assert run.cancel("a mistake").state is State.CANCELLED
        handle()
        assert run.status().state is State.CANCELLED
        assert not ran.exists()

    @pytest.mark.long
    def test_cancelled_while_it_waits(self, agent, handle):
        run = agent.run("elsewhere", labels=["nowhere"])
        handle()
        run.cancel()
        handle()
        assert run.status().state is State.CANCELLED

    @pytest.mark.parametrize(
        ("how", "says"),
        [
            ({"on_branch": "main"}, "default branch"),
            ({"on_branch": "claude/nothing"}, "no branch claude/nothing"),
            ({"on_branch": "", "snapshot": True}, "is not on"),
        ],
    )
    def test_what_cannot_be_sent_on_a_branch(self, agent, clone, bus, how, says):
        (clone / "readme.txt").write_text("changed\n")
        before = git(bus, "rev-parse", SESSION)
        with pytest.raises(UsageError, match=says):
            agent.run("touch", **how)
        assert git(bus, "rev-parse", SESSION) == before
        assert agent.sent.branches() == []

    def test_diverged_branches_are_left_alone(self, agent, clone):
        put(clone, "Somebody else's\n", upon="main")
        git(clone, "commit", "--quiet", "--allow-empty", "-m", "Mine")
        with pytest.raises(UsageError, match="have diverged"):
            agent.run("touch", on_branch="")

    def test_work_of_others_on_the_branch_is_kept(self, agent, clone, bus, handle):
        theirs = put(clone, "Somebody else's\n")
        run = agent.run("touch", on_branch="")
        assert git(bus, "rev-parse", f"{SESSION}^") == theirs
        assert git(clone, "rev-parse", "HEAD") == git(clone, "rev-parse", f"{theirs}^")
        handle()
        assert run.status().state is State.SUCCEEDED


class TestTheRunner:
    def test_forwards_nothing_unless_its_policy_says_so(self, agent, bus, handle):
        agent.run("touch")
        handle(bus={})
        assert sorted(refs(bus)) == [SESSION, "main"]

    def test_forwards_once(self, agent, bus, handle, ran):
        """Also after a restart, for another runner, and once the answered branch is gone."""
        run = agent.run("touch")
        handle()
        ran.unlink()
        handle()
        handle("two")
        git(bus, "update-ref", "-d", f"refs/heads/{run.branch}")
        handle()
        handle("two")
        assert not ran.exists()
        assert run.branch not in refs(bus)

    def test_a_runner_that_forwarded_nothing_itself_hears_the_cancellation(self, agent, host, monkeypatch):
        """Also if it sees the request's branch only after another runner has added a state to it."""
        run = agent.run("touch")
        with monkeypatch.context() as patch:
            patch.delenv("AGENT")
            with host.context("one", **FORWARD) as one:
                one.bus.fetch()
                one.forwarder.see(one.bus.sessions, {})
                lease = Lease(one.author, history.read_branch(one.bus.git, run.branch, run.commit))
                assert lease.advance(State.REQUESTED) is Pushed.DONE
            with host.context("two", **FORWARD) as two:
                tips = two.bus.fetch()
                two.forwarder.see(two.bus.sessions, tips)
                patch.setenv("AGENT", "yes")
                run.cancel("enough")
                patch.delenv("AGENT")
                assert two.forwarder.cancellation(run.branch, run.commit).reason == "enough"

    @pytest.mark.long
    def test_cancelled_after_its_forwarder_died(self, agent, handle):
        run = agent.run("elsewhere", labels=["nowhere"])
        handle("one")
        run.cancel("enough")
        handle("two")
        assert run.status().state is State.CANCELLED

    @pytest.mark.parametrize("runner", ["one", "two"])
    @pytest.mark.parametrize("keeps", [True, pytest.param(False, marks=pytest.mark.long)])
    def test_cancelled_after_a_force_push(self, agent, clone, handle, keeps, runner):
        """Also for a runner that did not forward the request, and if its very workload is gone from the branch."""
        git(clone, "commit", "--quiet", "--allow-empty", "-m", "Work")
        git(clone, "push", "--quiet")
        work = git(clone, "rev-parse", "HEAD")
        run = agent.run("elsewhere", labels=["nowhere"])
        handle("one")
        git(clone, "reset", "--quiet", "--hard", work if keeps else "main")
        git(clone, "commit", "--quiet", "--allow-empty", "-m", "Another history")
        git(clone, "push", "--quiet", "--force")
        run.cancel("enough")
        handle(runner)
        assert run.status().state is State.CANCELLED
        assert git(clone, "rev-parse", "HEAD") == git(clone, "rev-parse", "@{upstream}")

    @pytest.mark.long
    @pytest.mark.parametrize("runner", ["one", "two"])
    @pytest.mark.parametrize("is_here", [True, False])
    def test_cancelled_after_its_session_s_branch_was_deleted(
        self, agent, bus, clone, handle, runner, is_here
    ):
        run = agent.run("elsewhere", labels=["nowhere"])
        handle("one")
        git(bus, "update-ref", "-d", f"refs/heads/{SESSION}")
        if not is_here:
            git(clone, "checkout", "--quiet", "--detach", "main")
            git(clone, "branch", "--quiet", "-D", SESSION)
        run.cancel("enough")
        handle(runner)
        assert run.status().state is State.CANCELLED

    def test_row_144_what_another_session_makes_up_keeps_no_cancellation_away(
        self, agent, clone, handle, monkeypatch
    ):
        monkeypatch.setattr(random, "sample", lambda names, _: sorted(names))
        run = agent.run("elsewhere", labels=["nowhere"])
        handle("one")
        monkeypatch.delenv("AGENT")
        first = "claude/a-stranger"
        put(
            clone, carrier.request_message(carried(first, run.branch, commit=b"tree x\n"), "x"), "main", first
        )
        monkeypatch.setenv("AGENT", "yes")
        run.cancel("enough")
        handle("two")
        assert run.status().state is State.CANCELLED

    @pytest.mark.long
    def test_row_144_a_copy_of_a_carrier_upon_other_commits_carries_nothing_new(
        self, agent, bus, clone, handle
    ):
        """What is carried must be the very commit of the request branch, or made of commits of the session's."""
        run = agent.run("touch", labels=["nowhere"])
        raw = Git.of_user(clone).text("cat-file", "commit", run.commit).encode() + b"\n"
        other = carried(branch=run.branch, commit=raw.replace(b"Request touch", b"Request other"))
        put(clone, carrier.request_message(other, "touch"), upon="main")
        handle("two")
        assert run.branch not in refs(bus)

    def test_check_counts_a_session_s_branch_as_no_request(self, agent, host, monkeypatch):
        agent.run("touch")
        monkeypatch.delenv("AGENT")
        said = [check.message for check in examine(host.policy("one", presets=["touch"], **FORWARD))]
        assert "requests are forwarded from claude/*: 1 branches now" in said
        assert any(message.endswith("reached, 0 request branches") for message in said)
        assert not any("not fetched yet" in message for message in said)

    def test_two_that_race_make_one_request_branch(self, agent, host, bus, monkeypatch):
        run = agent.run("touch")
        monkeypatch.delenv("AGENT")
        with host.context("one", **FORWARD) as one, host.context("two", **FORWARD) as two:
            for context in (one, two):
                context.bus.fetch()
            assert one.forwarder.see(one.bus.sessions, {})
            two.forwarder.see(two.bus.sessions, {})
            assert git(bus, "rev-parse", run.branch) == run.commit
            for context in (one, two):
                Composer(context).poller().poll()
        assert run.status().state is State.SUCCEEDED
        assert int(git(bus, "rev-list", "--count", "--grep=claimed", run.branch)) == 1

    def test_a_force_push_withdraws_only_what_was_not_forwarded(self, agent, bus, clone, handle):
        first = agent.run("touch")
        handle()
        second = agent.run("touch")
        git(clone, "reset", "--quiet", "--hard", "main")
        git(clone, "push", "--quiet", "--force", "origin", SESSION)
        handle()
        assert first.status().state is State.SUCCEEDED
        assert second.branch not in refs(bus)
        assert second.status().state is State.REQUESTED

    def test_another_session_s_branch_made_from_it_is_no_second_request(self, agent, bus, handle):
        agent.run("touch")
        git(bus, "update-ref", "refs/heads/claude/session-2", f"refs/heads/{SESSION}")
        git(bus, "update-ref", "-d", f"refs/heads/{SESSION}")
        handle()
        assert sorted(refs(bus)) == ["claude/session-2", "main"]

    @pytest.mark.long
    def test_row_144_another_session_cannot_cancel(self, agent, bus, handle):
        run = agent.run("elsewhere", labels=["nowhere"])
        handle()
        note = wire.CancelFile(
            schema_version=2, branch=run.branch, request=run.commit, by="x", at="2026-01-31T12:00:00Z"
        )
        for session in ("claude/session-2", SESSION):
            message = carrier.cancel_message(carrier.CarriedCancel(session, note))
            git(bus, "update-ref", "refs/heads/claude/session-2", "refs/heads/main")
            tree = git(bus, "rev-parse", "main^{tree}")
            commit = objects.commit(Git.isolated(bus), tree, ["main"], message, objects.Identity("x", "x@x"))
            git(bus, "update-ref", "refs/heads/claude/session-2", commit)
            handle()
            assert run.status().state is State.REQUESTED

    def test_row_144_what_carries_nothing_changes_nothing(self, agent, bus, clone, host, monkeypatch):
        now, named = time.time(), "mac-bridge/touch-{}".format
        wrong = (
            {}, {"commit": b"tree x\nparent y\n\n"}, {"branch": "main"}, {"branch": "refs/heads/main"},
            {"branch": f"elsewhere/touch-{branch_names.new_nonce()}"},
            {"branch": named(branch_names.new_nonce(now - 40 * 86_400))},
            {"branch": named(branch_names.new_nonce(now + 86_400))},
        )  # fmt: skip
        tip = SESSION
        with host.context("one", **FORWARD) as context, monkeypatch.context() as patch:
            patch.delenv("AGENT")
            poller = Composer(context).poller()
            for message in (
                "Kakeya-Request: {", "Kakeya-Request: []", "Kakeya-Request: " + "[" * 5000, "Kakeya-Cancel: {}",
                "Kakeya-Request: " + "x" * (carrier.MAX_BYTES + 10),
                *(carrier.request_message(carried(**each), "touch") for each in wrong),
            ):  # fmt: skip
                tip = put(clone, f"Hello\n\n{message}\n", upon=tip)
                poller.poll()
                assert sorted(refs(bus)) == [SESSION, "main"], message
            patch.undo()
            git(clone, "fetch", "--quiet")
            git(clone, "reset", "--quiet", "--hard", f"origin/{SESSION}")
            run = agent.run("touch")
            patch.delenv("AGENT")
            poller.poll()
            assert run.status().state is State.SUCCEEDED

    def test_row_157_a_request_upon_commits_of_another_branch_is_not_forwarded(
        self, agent, bus, clone, handle
    ):
        """Somebody who may read only their own branch does not get others' files run by naming their commits."""
        git(clone, "checkout", "--quiet", "-b", "private", "main")
        git(clone, "commit", "--quiet", "--allow-empty", "-m", "Private")
        git(bus, "fetch", "--quiet", str(clone), "private:refs/heads/claude/private")
        git(clone, "checkout", "--quiet", SESSION)
        repo = agent.git
        tip = repo.text("rev-parse", "private")
        manifest = b"{}"
        tree = objects.overlay(repo, f"{tip}^{{tree}}", {wire.REQUEST: manifest})
        commit = objects.commit(repo, tree, [tip], "x", objects.Identity("x", "x@x"))
        (raw,) = objects.read_many(repo, [commit], max_bytes=limits.COMMIT_BYTES, kind="commit")
        put(clone, carrier.request_message(carried(manifest=manifest, commit=raw), "touch"))
        handle()
        assert sorted(refs(bus)) == ["claude/private", SESSION, "main"]

    def test_row_157_a_commit_that_is_not_its_manifest_s_is_not_forwarded(self, agent, bus, clone, handle):
        repo = agent.git
        tip = repo.text("rev-parse", "HEAD")
        tree = objects.overlay(repo, f"{tip}^{{tree}}", {wire.REQUEST: b"{}", "evil": b"x"})
        commit = objects.commit(repo, tree, [tip], "x", objects.Identity("x", "x@x"))
        (raw,) = objects.read_many(repo, [commit], max_bytes=limits.COMMIT_BYTES, kind="commit")
        put(clone, carrier.request_message(carried(manifest=b"{}", commit=raw), "touch"))
        handle()
        assert sorted(refs(bus)) == [SESSION, "main"]

    def test_an_invalid_manifest_gets_its_answer(self, agent, clone, handle):
        repo = agent.git
        tip = repo.text("rev-parse", "HEAD")
        tree = objects.overlay(repo, f"{tip}^{{tree}}", {wire.FOLDER: None, wire.REQUEST: b"{}"})
        commit = objects.commit(repo, tree, [tip], "x", objects.Identity("x", "x@x"))
        (raw,) = objects.read_many(repo, [commit], max_bytes=limits.COMMIT_BYTES, kind="commit")
        request = carried(manifest=b"{}", commit=raw)
        put(clone, carrier.request_message(request, "touch"))
        handle()
        assert agent.status(request.branch).state is State.REFUSED

    @pytest.mark.long
    def test_more_than_a_poll_forwards_come_in_the_next_one(self, agent, handle, monkeypatch):
        monkeypatch.setattr(limits, "FORWARDED_A_POLL", 2)
        runs = [agent.run("touch") for _ in range(5)]
        for _ in range(3):
            handle()
        assert [run.status().state for run in runs] == [State.SUCCEEDED] * 5


@pytest.mark.long
class TestARealRunner:
    """A process that serves, with the right to push; the agent's pushes have none but to its session's branch."""

    @pytest.fixture
    def far(self, agent, clone, http_bus, runners, presets, monkeypatch):
        """The agent over HTTP, and a runner on the bus itself."""
        folder = presets(long={"steps": [{"argv": ["/bin/sh", "-c", "echo begun; sleep 60"]}]})
        monkeypatch.delenv("AGENT")
        runners.start(bus={"forward": ["claude/*"]}, preset_folder=str(folder))
        git(clone, "remote", "set-url", "origin", http_bus.url)
        return agent

    def test_over_http(self, far):
        run = far.run("touch")
        assert run.wait(timeout=120).state is State.SUCCEEDED
        assert run.fetch() is not None
        assert run.verify().holds

    def test_a_running_job_is_cancelled_from_the_branch(self, far):
        run = far.run("long")
        log = next(event.log for event in run.follow(timeout=120) if "begun" in event.log)
        assert "begun" in log
        run.cancel("enough")
        status = run.wait(timeout=120)
        assert status.state is State.CANCELLED
        assert "enough" in status.detail or "enough" in run.client.result(run.branch).reason.message

    @pytest.mark.parametrize("lags", [(1.5,), (0, 1.5)])
    def test_behind_readers_that_lag(self, far, http_bus, lags):
        with http_bus.lagging(*lags):
            run = far.run("touch")
            assert run.wait(timeout=180).state is State.SUCCEEDED
            again = far.run("touch")
            assert again.wait(timeout=180).state is State.SUCCEEDED


@pytest.mark.parametrize("pattern", ["*", "main", "claude", "../x/*", "claude/**", "-x"])
def test_a_policy_s_pattern_is_a_prefix(runners, pattern):
    from runner.policy import load_policy  # noqa: PLC0415

    with pytest.raises(KakeyaError):
        load_policy(runners.policy(bus={"forward": [pattern]}))
