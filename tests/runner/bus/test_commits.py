"""One record a commit: what is known of it goes when no branch is at it any more."""

from __future__ import annotations

from bridge.errors import InfrastructureError
from runner.bus.commits import HOSTILE, Commits, Stage

REFUSED = InfrastructureError("git refuses it", code=HOSTILE)
MISSING = InfrastructureError("it did not come", code="unreachable")


def test_a_refused_commit_is_left_out_for_good_and_a_missing_one_for_a_while():
    commits = Commits()
    commits.see({"a": "1", "b": "1", "c": "2"})

    commits.leave_out("1", REFUSED)
    commits.leave_out("2", MISSING)

    assert commits.reasons == {
        "a": "git refuses it",
        "b": "git refuses it",
        "c": "it did not come; trying again",
    }
    assert (commits.hostile_count, commits.missing_count, commits.failures("2")) == (2, 1, 1)
    assert commits.holds("1")
    assert commits.holds("2")

    commits.release(["1", "2"])

    assert commits.reasons == {"a": "git refuses it", "b": "git refuses it"}
    assert commits.has_refused_objects("b")
    assert not commits.holds("2")


def test_what_is_known_of_a_commit_goes_with_the_last_branch_at_it():
    commits = Commits()
    commits.see({"a": "1", "b": "1", "c": "2"})
    commits.leave_out("1", REFUSED)
    commits.leave_out("2", MISSING)
    commits.set_stage(["2"], Stage.LONG)

    commits.see({"b": "1"})
    assert (commits.reasons, commits.at_stage(Stage.LONG), commits.failures("2")) == (
        {"b": "git refuses it"},
        [],
        0,
    )

    commits.see({})
    commits.see({"a": "1"})
    assert commits.reasons == {}


def test_failures_are_forgotten_once_a_commit_has_come():
    commits = Commits()
    commits.see({"a": "1"})
    commits.leave_out("1", MISSING)
    commits.release(["1"])
    assert commits.failures("1") == 1

    commits.see({"a": "1"})

    assert commits.failures("1") == 0


def test_commits_at_a_stage_keep_their_order():
    commits = Commits()

    commits.set_stage(["3", "1"], Stage.SUSPECT)
    commits.set_stage(["2", "3"], Stage.SUSPECT)
    commits.set_stage(["4"], None)

    assert commits.at_stage(Stage.SUSPECT) == ["3", "1", "2"]
    assert commits.at_stage(Stage.QUEUED, Stage.LONG) == []
