"""Branches that cannot be fetched: the operator is told once of each, and no other request is kept waiting."""

from __future__ import annotations

import pytest

from bridge.bus import objects, wire
from bridge.bus.branch_names import new_nonce
from bridge.errors import ProcessError
from bridge.system.git import Git
from runner.bus import backoff, transfer
from runner.bus.commits import HOSTILE
from runner.bus.transfer import explain_failure
from runner.serve.compose import Composer
from tests.runner.conftest import run_check
from tests.trees import write_tree

pytestmark = pytest.mark.bus

STRANGER = objects.Identity("A Stranger", "stranger@example.invalid")


@pytest.fixture
def poison(requester):
    """Push a branch with a tree that no repository should hold, upon a commit; returns its name."""

    def push(branch: str | None = None, upon: str | None = None) -> str:
        tree = write_tree(requester.git, {".GIT": {"config": new_nonce()}})
        commit = objects.commit(requester.git, tree, [upon or requester.head], "x\n", None)
        branch = branch or f"mac-bridge/touch-{new_nonce()}"
        requester.push(commit, branch)
        return branch

    return push


@pytest.fixture
def rot(bus):
    """Damage the manifest of a request on the bus's disk; returns what mends it again."""

    def damage(branch: str):
        oid = Git.isolated(bus).text("rev-parse", f"{branch}:{wire.REQUEST}")
        file = bus / "objects" / oid[:2] / oid[2:]
        sound = file.read_bytes()
        file.chmod(0o644)
        file.write_bytes(sound[: len(sound) // 2])
        return lambda: file.write_bytes(sound)

    return damage


def told(host, branch):
    return [line for line in host.told if branch in line]


def test_a_branch_whose_objects_git_refuses_is_told_once_and_stops_no_other(host, requester, poison):
    bad = [poison(), poison()]
    first = requester.send(requester.manifest())
    with host.context() as context:
        poller = Composer(context).poller()
        assert poller.poll()
        later = requester.send(requester.manifest())
        while poller.poll():
            pass
    assert [host.result(branch).state for branch in (first, later)] == ["succeeded", "succeeded"]
    for branch in bad:
        assert host.result(branch) is None
        (line,) = told(host, branch)
        assert line.startswith(f"{branch} is left out: git refuses what the bus sent: ")
        assert "hasDotgit" in line


def test_among_many_branches_a_bad_one_is_found_in_ever_smaller_batches(
    host, requester, poison, bus, git, monkeypatch
):
    tree = requester.git.text("rev-parse", f"{requester.head}^{{tree}}")
    commits = [objects.commit(Git.isolated(bus), tree, [], f"{i}\n", STRANGER) for i in range(200)]
    updates = "".join(f"create refs/heads/mac-bridge/{i} {commit}\n" for i, commit in enumerate(commits))
    git(bus, "update-ref", "--stdin", stdin=updates)
    bad = poison()
    asked = []
    monkeypatch.setattr("bridge.common.limits.SEARCH_S", 60.0)
    start = transfer.start_fetch
    monkeypatch.setattr(transfer, "start_fetch", lambda *args, **at: (asked.append(1), start(*args, **at))[1])
    with host.context() as context:
        assert len(context.bus.fetch()) == 200
        assert set(context.bus.commits.reasons) == {bad}
    assert len(asked) < 30  # 29 if it stands at the worst of the 201 places


def test_a_flood_of_bad_branches_is_worked_off_while_others_are_served(host, requester, poison, monkeypatch):
    """Finding them takes a fetch or more for each, and is no reason to keep a good request waiting for all of it."""
    bad = {poison(f"mac-bridge/touch-{new_nonce()}-z{i}") for i in range(4)}
    good = requester.send(requester.manifest())
    monkeypatch.setattr("bridge.common.limits.SEARCH_S", 0.0)
    with host.context() as context:
        poller, left_out = Composer(context).poller(), []
        for _ in range(20):
            poller.poll()
            left_out.append(len(context.bus.commits.reasons))
            if left_out[-1] == len(bad):
                break
        poller.poll()
        assert host.result(good).state == "succeeded"
        assert set(context.bus.commits.reasons) == bad
    assert left_out[0] < len(bad)


@pytest.mark.long
def test_check_names_it_with_a_command_that_is_safe_to_paste(host, poison):
    bad = poison(f"mac-bridge/touch-{new_nonce()};$(touch${{IFS}}x)")
    _, report = run_check(host.policy("one", presets=["touch"]))

    (line,) = [line for line in report["checks"] if line["name"] == "branch"]

    assert line["message"] == f"{bad} is left out: no request can have this name"
    assert line["fix"].endswith(f" ':refs/heads/{bad}'")
    assert line["ok"] is None


def test_a_branch_that_is_gone_from_the_bus_is_forgotten(host, requester, poison):
    bad = poison()
    with host.context() as context:
        context.bus.fetch()
        requester.delete(bad)
        poison()
        context.bus.fetch()
        assert bad not in context.bus.commits.reasons


def test_what_is_pushed_upon_a_job_that_runs_ends_its_answer_and_no_more(
    host, requester, poison, monkeypatch
):
    """The answer could be published upon nothing but that, so it is dropped and not tried for ever."""
    monkeypatch.setattr(backoff, "LONGEST_S", 0.0)
    branch = requester.send(requester.manifest())
    tip = requester.git.text("rev-parse", f"refs/remotes/origin/{branch}")
    with host.context() as context:
        poller = Composer(context).poller()
        context.bus.fetch()
        context.ledger.begin(tip, branch=branch)
        said = wire.StateFile(
            schema_version=2, state="succeeded", branch=branch, request=tip, salt="0" * 16, token=1, sequence=2,
            lease_s=120.0, runner=context.identity, at="2026-01-01T00:00:00Z",
        )  # fmt: skip
        tree = objects.overlay(context.bus.git, f"{tip}^{{tree}}", {wire.STATE: said.to_bytes()})
        answer = objects.commit(context.bus.git, tree, [tip], "x\n", objects.Identity("a", "b"))
        context.bus.protect(answer)
        context.ledger.record_answer(branch=branch, state="succeeded", answer=answer, expect=tip)
        poison(branch, upon=tip)
        assert not poller.poll()  # sees what was pushed
        poller.poll()
        assert context.ledger.unsent_answers() == []
    assert any("this answer is dropped" in line for line in host.told)


def test_a_branch_that_the_bus_cannot_read_is_told_once_and_taken_when_it_is_mended(
    host, requester, rot, ran, monkeypatch
):
    monkeypatch.setattr(backoff, "LONGEST_S", 0.0)
    bad = requester.send(requester.manifest())
    mend = rot(bad)
    good = requester.send(requester.manifest())
    with host.context() as context:
        poller = Composer(context).poller()
        assert poller.poll()
        assert host.result(good).state == "succeeded"
        assert not poller.poll()
        (line,) = told(host, bad)
        assert "is left out: cannot fetch from the bus" in line

        mend()
        ran.unlink()
        assert poller.poll()
    assert host.result(bad).state == "succeeded"
    assert ran.exists()


@pytest.mark.long
def test_a_bus_that_can_send_nothing_is_no_list_of_bad_branches(host, requester, rot, monkeypatch):
    sent = [requester.send(requester.manifest()) for _ in range(25)]
    mends = [rot(branch) for branch in sent]
    monkeypatch.setattr("bridge.common.limits.SEARCH_S", 60.0)
    with host.context() as context, pytest.raises(Exception, match="cannot fetch from the bus"):
        context.bus.fetch()
    for mend in mends:
        mend()
    with host.context() as context:
        assert len(context.bus.fetch()) == 25


@pytest.fixture
def spoil(bus):
    """Put branches on the bus with commits that the bus itself cannot send; returns their names."""
    git = Git.isolated(bus)

    def write(kind: str, raw: bytes) -> str:
        return git.text("hash-object", "-t", kind, "-w", "--literally", "--stdin", stdin=raw)

    def spoil(count: int, *, within: bool = False) -> list[str]:
        names = []
        for i in range(count):
            blob = write("blob", f"{i} {new_nonce()}".encode())
            tree = write("tree", b"40000 folder\0" + bytes.fromhex(blob)) if within else blob
            who = "A <a@example.invalid> 1790000000 +0000"
            commit = write("commit", f"tree {tree}\nauthor {who}\ncommitter {who}\n\nx\n".encode())
            names.append(f"mac-bridge/touch-{new_nonce()}")
            path = bus / "refs" / "heads" / names[-1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{commit}\n")
        return names

    return spoil


@pytest.mark.long
@pytest.mark.parametrize("within", [False, True])
def test_row_107_no_number_of_branches_that_the_bus_cannot_send_stops_a_request(
    host, requester, spoil, wait_for, within
):
    bad = spoil(22, within=within)
    good = requester.send(requester.manifest())
    with host.context() as context:
        poller = Composer(context).poller()
        # On a busy machine the good one's fetch takes longer than a poll waits, and goes on beside the next polls.
        wait_for(poller.poll, 60.0)
        assert host.result(good).state == "succeeded"
        while context.bus.unfetched:
            poller.poll()
        assert set(context.bus.commits.reasons) == set(bad)


def test_row_107_a_request_is_not_asked_for_with_branches_that_could_not_be_sent_before(
    host, requester, spoil, monkeypatch
):
    bad = spoil(3)
    with host.context() as context:
        context.bus.fetch()
        assert set(context.bus.commits.reasons) == set(bad)
        good = requester.send(requester.manifest())
        monkeypatch.setattr(context.bus.commits, "holds", lambda _commit: False)
        asked = []
        start = transfer.start_fetch
        monkeypatch.setattr(
            transfer, "start_fetch", lambda *args, **at: (asked.append(args[2:]), start(*args, **at))[1]
        )
        assert good in context.bus.fetch()
        assert len(asked[0]) == 1


def test_row_107_a_flood_that_comes_while_all_is_well_is_no_failing_bus(host, requester, spoil):
    requester.send(requester.manifest())
    with host.context() as context:
        assert len(context.bus.fetch()) == 1
        spoil(25)
        for _ in range(3):
            assert len(context.bus.fetch()) == 1


@pytest.mark.parametrize(
    "said",
    [
        "error: object 24975bd16aeeba708f613bf6ecba6b19639163a1 is a blob, not a tree\nfatal: index-pack failed\n",
        "fatal: invalid tree\nfatal: fetch-pack: invalid index-pack output\n",
        "error: object 24975bd16aeeba708f613bf6ecba6b19639163a1 is a tree, not a blob\nfatal: index-pack failed\n",
        "fatal: invalid commit\nfatal: index-pack failed\n",
    ],
)
def test_an_object_of_the_wrong_kind_is_refused_and_no_failure_of_the_bus(said):
    error = explain_failure(ProcessError(("git", "fetch"), 128, stderr=said.encode()))
    assert error.code == HOSTILE


def test_what_the_bus_says_of_its_own_objects_is_a_failure_of_the_bus():
    said = b"remote: error: object 24975bd16aeeba708f613bf6ecba6b19639163a1 is a blob, not a tree\n"
    assert explain_failure(ProcessError(("git", "fetch"), 128, stderr=said)).code == "unreachable"
