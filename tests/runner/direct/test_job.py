"""One manifest in, one answer folder out: by the rules of a request on a bus, and without what only a bus has."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from bridge.bus import wire
from bridge.bus.branch_names import new_nonce
from bridge.bus.history import RequestBranch
from bridge.common.strict_json import MAX_BYTES
from bridge.errors import InfrastructureError, UsageError, VerificationError
from bridge.manifest import parse_manifest
from bridge.presets import load_presets
from bridge.verify.folder import verify_folder
from bridge.verify.public_keys import Pin, read_public_keys
from bridge.without_bus import NO_FILES, NO_FILES_COMMIT
from runner.admit.admission import check_alone
from runner.admit.manifests import Candidate
from runner.direct.job import MOST_WAITING, WithdrawnError, check_place
from runner.job.sandbox import bubblewrap
from runner.policy import load_policy
from runner.refusal import Refusal
from runner.state.orders import Orders
from runner.state.turn import Turn
from tests.runner.conftest import utc
from tests.runner.direct.conftest import Printed, job

pytestmark = pytest.mark.rows(1)


def verified(alone, folder=None):
    """Return the report on an answer's folder, with the host's key pinned."""
    key = alone.policy.parent / "state-one" / "runner.pub"
    pin = Pin(read_public_keys(key.read_text(), str(key)), str(key))
    return verify_folder(folder or alone.out, load_presets(alone.presets), pin)[1]


def ran(tmp_path):
    return (tmp_path / "ran").exists()


def test_an_answer_is_a_folder_that_verifies(alone):
    answer = alone.answer()

    assert answer.report.conclusion.state == "succeeded"
    assert b"hello 42" in (alone.out / answer.result.logs[0].path).read_bytes()
    assert b"hello 42" in alone.printed.log
    report = verified(alone)
    assert report.holds
    assert report.conclusion.signer == "one"
    assert not (alone.policy.parent / "state-one" / "direct" / "bus.git").exists()
    assert [path.name for path in alone.out.parent.glob(".answer*")] == []


@pytest.mark.long
def test_a_job_that_fails_is_answered_too(alone):
    assert int(alone.answer("broken").report.conclusion.exit_code) == 1
    assert verified(alone).holds


def test_the_commit_without_files_is_the_one_that_manifests_name(user_git):
    made = user_git("hash-object", "-t", "commit", "--stdin", stdin=NO_FILES_COMMIT).text

    assert made == NO_FILES


OTHER = "1" * 40
# What a branch could carry, or another runner could do.
ALONE = {
    "a commit that it does not bring": ({"workload": OTHER}, "no_files"),
    "a comparison": ({"against": OTHER}, "no_files"),
    "the requester's code": ({"preset": "theirs", "code": "request"}, "no_files"),
    "files of the requester's tree": ({"preset": "fed"}, "no_files"),
    "a label": ({"labels": ["m9"]}, "no_label"),
    "a preset's label": ({"preset": "labelled"}, "no_label"),
    "nothing of that": ({}, None),
    "a preset that is not there": ({"preset": "no-such"}, None),
    "a preset that the policy does not allow": ({"preset": "hidden"}, None),
    "a label that the runner has": ({"labels": ["m1"]}, None),
}


@pytest.mark.parametrize("case", ALONE)
def test_what_a_manifest_alone_cannot_ask_for(alone, case):
    changes, code = ALONE[case]
    request = parse_manifest(alone.manifest(**changes))
    branch = RequestBranch(f"mac-bridge/{request.preset}-{request.nonce}", OTHER, OTHER, None, None)
    candidate = Candidate(branch, request)
    policy = load_policy(alone.policy).model_copy(update={"labels": ["m1"]})

    with pytest.raises(Refusal) if code else nullcontext() as caught:
        check_alone(candidate, load_presets(alone.presets), policy)

    if code:
        assert (caught.value.code, caught.value.request) == (code, candidate.request)


REFUSED = {
    "nothing but bytes": (bytes(range(256)), "bad_json"),
    "too much": (b" " * (MAX_BYTES + 1), "too_large"),
    "no object": (b"[]", "bad_manifest"),
    "another version": (b'{"schema_version": 9}', "unknown_schema_version"),
    "an unknown field": ({"shell": "id"}, "bad_manifest"),
    "no nonce": ({"nonce": "1"}, "bad_nonce"),
    "expired": (
        {"nonce": new_nonce(time.time() - 7200), "created_at": utc(-7200), "expires_at": utc(-3600)},
        "expired",
    ),
    "from the future": ({"nonce": new_nonce(time.time() + 86400)}, "not_yet_valid"),
    "a preset that is not there": ({"preset": "no-such"}, "unknown_preset"),
    "a preset that the policy does not allow": ({"preset": "hidden"}, "preset_not_allowed"),
    "an unknown parameter": ({"params": {"argv": "id"}}, "unknown_param"),
    "the requester's code": ({"preset": "theirs", "code": "request"}, "no_files"),
    "a label": ({"labels": ["m9"]}, "no_label"),
    "another kind of code": ({"code": "request"}, "code_mismatch"),
}


@pytest.mark.long
def test_what_is_refused_has_a_signed_answer(alone, tmp_path):
    for case, (change, code) in REFUSED.items():
        out = tmp_path / f"out-{code}-{len(case)}"

        answer = alone.answer(change if isinstance(change, bytes) else alone.manifest(**change), out)

        assert (answer.result.state, answer.result.reason.code) == ("refused", code), case
        assert int(answer.report.conclusion.exit_code) == 4
        assert not ran(tmp_path)
        assert verified(alone, out).holds


@pytest.mark.long
def test_an_older_manifest_needs_no_commit(alone):
    later = dict.fromkeys(("workload", "created_at", "expires_at", "code"))

    assert alone.answer(alone.manifest(schema_version=1, **later)).result.state == "succeeded"


@pytest.mark.long
def test_a_manifest_is_used_once(alone, tmp_path):
    manifest = alone.manifest()
    alone.answer(manifest)

    again = alone.answer(manifest, tmp_path / "again")

    assert again.result.reason.code == "replayed"
    assert "kakeya manifest" in again.result.reason.message
    assert (tmp_path / "ran").read_text() == "x"


@pytest.mark.parametrize("there", ["a file", "a link", "a file in it"])
def test_a_folder_that_holds_something_is_left_alone(alone, tmp_path, there):
    other = tmp_path / "other"
    if there == "a file":
        alone.out.write_text("mine")
    else:
        other.mkdir()
        alone.out.symlink_to(other) if there == "a link" else alone.out.mkdir()
        (alone.out / "mine").write_text("mine")
    before = sorted(tmp_path.rglob("mine"))

    with pytest.raises(UsageError, match="is not an empty folder"):
        alone.answer()

    assert not ran(tmp_path)
    assert sorted(tmp_path.rglob("mine")) == before


@pytest.mark.long
def test_an_empty_folder_is_filled(alone):
    alone.out.mkdir()

    assert alone.answer().folder == alone.out
    assert verified(alone).holds


@pytest.mark.long
def test_part_of_an_answer_does_not_verify(alone):
    alone.answer()
    log = next((alone.out / wire.LOGS).glob("*.log"))
    log.unlink()
    assert not verified(alone).holds

    # What names the others is written last.
    (alone.out / wire.RESULT).unlink()
    with pytest.raises(UsageError, match="holds no answer"):
        verified(alone)


def test_a_withdrawn_job_is_cancelled_and_answered(alone, wait_for):
    ends = threading.Thread(
        target=lambda: (wait_for(lambda: b"begun" in alone.printed.log), alone.withdrawal.withdraw("enough"))
    )
    ends.start()

    answer = alone.answer("slow")
    ends.join()

    assert answer.result.state == "cancelled"
    assert "enough" in answer.result.reason.message
    assert b"begun" in (alone.out / answer.result.logs[0].path).read_bytes()
    assert verified(alone).holds


def test_a_job_waits_for_its_turn(alone, tmp_path, wait_for):
    turns = alone.policy.parent / "state-one" / "turns"
    turns.mkdir()
    service = Turn(turns, "service")
    answers = []
    with service.hold() as is_held:
        assert is_held
        job = threading.Thread(target=lambda: answers.append(alone.answer()))
        job.start()
        wait_for(lambda: alone.told)
        assert not ran(tmp_path)
    job.join()
    assert answers[0].result.state == "succeeded"
    assert "waits for this machine, which runs another job" in alone.told[0]


def test_a_job_that_is_withdrawn_before_its_turn_leaves_nothing(alone, tmp_path):
    turns = alone.policy.parent / "state-one" / "turns"
    turns.mkdir()
    alone.withdrawal.withdraw("enough")

    with Turn(turns, "service").hold(), pytest.raises(WithdrawnError, match="enough"):
        alone.answer()

    assert not ran(tmp_path)
    assert not alone.out.exists()


def test_only_so_many_wait(alone):
    folder = alone.policy.parent / "state-one" / "direct"
    folder.mkdir()
    import fcntl  # noqa: PLC0415 - used here alone

    places = [os.open(folder / f"place-{i}.lock", os.O_RDWR | os.O_CREAT) for i in range(MOST_WAITING)]
    for place in places:
        fcntl.flock(place, fcntl.LOCK_EX)
    try:
        with pytest.raises(InfrastructureError, match="wait for this machine"):
            alone.answer()
    finally:
        for place in places:
            os.close(place)
    assert alone.answer().result.state == "succeeded"


@pytest.mark.long
def test_maintenance_counts_here_too(alone, tmp_path):
    Orders(alone.policy.parent / "state-one").maintain("new disk")

    with pytest.raises(InfrastructureError, match="new disk"):
        alone.answer()

    assert not ran(tmp_path)


@pytest.mark.long
def test_the_bus_s_token_is_kept_from_log_and_reports(alone, runners, tmp_path, presets):
    token = tmp_path / "token"
    token.write_text("a-secret-of-the-bus")
    token.chmod(0o600)
    argv = ["/bin/sh", "-c", "echo it is a-secret-of-the-bus"]
    runners.policy(
        preset_folder=str(presets(telling={"steps": [{"argv": argv}]})),
        bus={"url": "https://bus.example/x.git", "token_file": str(token)},
    )

    answer = alone.answer("telling")

    log = (alone.out / answer.result.logs[0].path).read_bytes()
    assert b"it is" in log
    assert b"a-secret" not in log + alone.printed.log


@pytest.mark.long
def test_what_a_killed_process_left_is_no_answer_of_the_next(alone, tmp_path):
    direct = alone.policy.parent / "state-one" / "direct"
    alone.answer()
    (direct / "bus.git").mkdir()
    (direct / "store.git" / "junk").mkdir(parents=True)
    (direct / "answer").mkdir()
    (direct / "answer" / "old").write_text("old")

    again = alone.answer(out=tmp_path / "again")

    assert again.result.state == "succeeded"
    assert not (direct / "answer").exists()


@pytest.mark.long
def test_a_foreign_report_in_the_folder_is_noticed(alone):
    alone.answer()
    (alone.out / wire.REPORTS).mkdir(parents=True)
    (alone.out / wire.REPORTS / "x.json").write_text(json.dumps({}))

    assert not verified(alone).holds
    with pytest.raises((VerificationError, UsageError)):
        verify_folder(alone.out / "none", {}, None)


@pytest.mark.long
def test_a_job_does_not_see_the_runner_s_key(alone, runners, presets):
    """The state folder of these jobs lies in the runner's own, of which a sandbox shows nothing."""
    state = alone.policy.parent / "state-one"
    looking = job(
        f"import os; print(sorted(os.listdir({str(state)!r})), os.path.exists({str(state / 'runner.key')!r}))"
    )
    runners.policy(preset_folder=str(presets(looking=looking)), sandbox="require")
    if not any(map(shutil.which, bubblewrap.PROGRAMS)) and sys.platform != "darwin":
        pytest.skip("needs a sandbox")

    answer = alone.answer("looking")

    log = (alone.out / answer.result.logs[0].path).read_text()
    assert "runner.key" not in log
    assert "True" not in log


@pytest.mark.long
def test_a_folder_that_is_filled_meanwhile_is_left_alone(alone):
    class Fills(Printed):
        def prints(self, data):
            super().prints(data)
            alone.out.mkdir(exist_ok=True)
            (alone.out / "mine").write_text("mine")

    alone.printed = Fills()
    with pytest.raises(UsageError, match="is not an empty folder"):
        alone.answer()

    assert [path.name for path in alone.out.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["/dev/null/x/y", "/proc/nowhere/x", "x" * 300])
def test_a_folder_that_cannot_be(name):
    with pytest.raises(UsageError, match="cannot write to"):
        check_place(Path(name))
