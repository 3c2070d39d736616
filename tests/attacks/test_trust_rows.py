"""Attacks on trust: rows 14, 19 to 22, 24 to 26 and 53 to 58 of the tables in docs/security.md.

Each test shows that the attack is refused or noticed, and that nothing else ran.
"""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from bridge.bus import objects, wire
from bridge.bus.history import read_branch
from bridge.cli import cli
from bridge.client import Client
from bridge.errors import VerificationError
from bridge.requests.binding import Binding
from bridge.system import git_output
from runner.admit.admission import admit
from runner.admit.approvals import Approvals
from runner.admit.manifests import read_candidate
from runner.bus.bus import Bus, Pushed
from runner.refusal import Refusal
from runner.serve.compose import Composer
from runner.serve.lease import Lease
from runner.state import signing_key
from tests.trees import list_tree

pytestmark = pytest.mark.bus

FORGERY = b'"forged"'


@pytest.fixture
def answered(client, keyed):
    """A request with a signed answer."""
    run = client.run("noop")
    keyed.handle()
    return run


@pytest.fixture
def reader(clone, keyed):
    """A client that pins the runner's key."""
    return Client(clone, public_key=keyed.key())


def said(report, name="signature"):
    """Return what a failed check says."""
    return "".join(check.message for check in report.checks if check.name == name and check.ok is False)


def reasons(report):
    """Return the names of the checks that failed."""
    return {check.name for check in report.checks if check.ok is False}


# Row 14: the job overwrites evidence, or signs.


def test_row_14_a_job_that_writes_evidence_of_its_own_changes_nothing(trusting, presets, clone, tmp_path):
    script = (
        "import pathlib\n"
        "for name in ('result.json', 'evidence.dsse.json', 'state.json', 'logs/forging-0.log'):\n"
        "    path = pathlib.Path('.mac-bridge') / name\n"
        "    path.parent.mkdir(parents=True, exist_ok=True)\n"
        f"    path.write_bytes({FORGERY!r})\n"
    )
    program = tmp_path / "presets" / "forging.py"
    program.write_text(script)
    presets(forging={"steps": [{"argv": [sys.executable, str(program)]}]})
    run = Client(clone, presets=trusting.folder).run("forging")

    result = trusting.answer(run)

    assert result.state is wire.State.SUCCEEDED
    for path in (wire.RESULT, wire.EVIDENCE, wire.STATE, f"{wire.LOGS}/forging-0.log"):
        assert FORGERY not in trusting.forger.read(run.branch, path)
    reader = Client(clone, presets=trusting.folder, public_key=trusting.keyed.key())
    assert reader.verify(run.branch).signed


def test_row_14_the_signing_key_is_in_no_file_and_no_variable_of_a_job(trusting, presets, clone):
    script = "import os, sys; print(sorted(os.environ)); print([p for _, _, fs in os.walk('..') for p in fs])"
    presets(looking={"steps": [{"argv": [sys.executable, "-c", script]}]})
    run = Client(clone, presets=trusting.folder).run("looking")

    trusting.answer(run)

    seen = trusting.forger.read(run.branch, f"{wire.LOGS}/looking-0.log").decode()
    assert signing_key.PRIVATE not in seen
    private = (trusting.keyed.key().parent / signing_key.PRIVATE).read_text()
    everything = b"".join(
        trusting.forger.read(run.branch, entry.path)
        for entry in list_tree(trusting.forger.git, f"refs/heads/{run.branch}", recursive=True)
    )
    assert private.splitlines()[1].encode() not in everything


@pytest.mark.usefixtures("confined")
def test_row_14_a_confined_job_cannot_read_the_signing_key(attacked, runners):
    state = runners.folder / "state-attacked"
    signing_key.make_key(state)
    script = f"""
        import pathlib
        for path in ({str(state / signing_key.PRIVATE)!r}, {str(state)!r}):
            try:
                print("READ", pathlib.Path(path).read_text()[:5])
            except OSError as error:
                print("no:", type(error).__name__)
        print(list(pathlib.Path({str(state)!r}).parent.glob("*/runner.key")))
    """

    answer = attacked.by(script)

    assert answer.result.state is wire.State.SUCCEEDED
    assert "READ" not in answer.log
    assert answer.log.endswith("[]\n")
    assert (state / signing_key.PRIVATE).read_bytes().splitlines()[1] not in answer.everything()


# Row 19: replay.


def test_row_19_a_signed_request_on_another_branch_of_the_same_nonce_is_refused(trusting, git, clone):
    """Before the request itself was ever seen, so that no ledger knows its nonce."""
    run = trusting.ask("alice")
    copy = run.branch.replace("mac-bridge/", "claude/mac-bridge-")
    git(clone, "push", "--quiet", "origin", f"{run.commit}:refs/heads/{copy}", f":refs/heads/{run.branch}")

    trusting.keyed.handle(**trusting.policy())

    result = json.loads(trusting.forger.read(copy, wire.RESULT))
    assert result["reason"]["code"] == "untrusted_code"
    assert "signed for another branch" in result["reason"]["message"]
    assert not trusting.ran.exists()


# Row 20: a signature used in another context.


def signed_anew(trusting, run, *, name="alice", namespace="git", change=lambda raw: raw, armor=None):
    """Replace a request's commit by one like it, signed by hand with ssh-keygen; return the new commit."""
    git = trusting.client.git
    raw = git("cat-file", "commit", run.commit).stdout
    header, _, message = raw.partition(b"\n\n")
    plain = header[: header.index(b"\ngpgsig")] if b"\ngpgsig" in header else header
    payload = change(plain + b"\n\n" + message)
    argv = ["ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", str(trusting.signers.key(name))]
    signature = armor or subprocess.run(argv, input=payload, capture_output=True, check=True).stdout
    head, _, message = payload.partition(b"\n\n")
    field = b"\ngpgsig " + signature.rstrip(b"\n").replace(b"\n", b"\n ")
    stored = git("hash-object", "-t", "commit", "-w", "--stdin", stdin=head + field + b"\n\n" + message).text
    git("push", "--quiet", "--force", "origin", f"{stored}:refs/heads/{run.branch}")
    return stored


def test_row_20_the_forging_helper_makes_signatures_that_count(trusting):
    """Otherwise the refusals below would show nothing."""
    run = trusting.ask("alice")
    signed_anew(trusting, run)

    assert trusting.answer(run).trusted_by == "signature of alice@example.invalid"


def test_row_20_a_signature_of_another_namespace_is_refused(trusting):
    trusting.signers.allow("alice", options="")
    run = trusting.ask("alice")
    signed_anew(trusting, run, namespace="file")

    assert "made for another purpose" in trusting.refused(run)


def test_row_20_a_signature_for_another_repository_is_refused(trusting, git, tmp_path):
    """What Alice asked of one runner is pushed to the bus of another, which trusts her too."""
    elsewhere = tmp_path / "elsewhere.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(trusting.forger.bus), str(elsewhere))
    git(trusting.client.git.directory, "remote", "add", "elsewhere", str(elsewhere))
    trusting.client.git("config", "user.signingkey", f"{trusting.signers.key('alice')}.pub")
    run = Client(trusting.client.git.directory, "elsewhere", presets=trusting.folder).run("here", sign=True)
    git(trusting.client.git.directory, "push", "--quiet", "origin", f"{run.commit}:refs/heads/{run.branch}")

    assert "signed for another repository" in trusting.refused(run)


def test_row_20_a_signature_for_another_definition_of_the_preset_is_refused(trusting, presets):
    run = trusting.ask("alice")
    presets(
        here={"code": "request", "steps": [{"argv": ["/usr/bin/touch", str(trusting.ran), "--no-create"]}]}
    )

    assert "another definition of the preset" in trusting.refused(run)


def test_row_20_a_signature_in_another_format_is_refused(trusting):
    pgp = b"-----BEGIN PGP SIGNATURE-----\n\niQEz\n-----END PGP SIGNATURE-----\n"
    run = trusting.ask("alice")
    signed_anew(trusting, run, armor=pgp)

    assert "not an SSH signature" in trusting.refused(run)


def test_row_20_two_signatures_are_refused(trusting):
    run = trusting.ask("alice")
    signed_anew(trusting, run, change=lambda raw: raw.replace(b"\n\n", b"\ngpgsig-sha256 x\n\n", 1))

    assert "more than one signature" in trusting.refused(run)


def test_row_20_the_signature_of_another_commit_is_refused(trusting):
    trusted = trusting.ask("alice")
    raw = trusting.client.git("cat-file", "commit", trusted.commit).stdout
    field = raw.partition(b"\n\n")[0].partition(b"\ngpgsig ")[2].replace(b"\n ", b"\n") + b"\n"
    trusting.client.git("push", "--quiet", "origin", f":refs/heads/{trusted.branch}")
    run = trusting.ask()
    signed_anew(trusting, run, armor=field)

    assert "does not fit the commit" in trusting.refused(run)


def test_row_20_a_signature_that_says_nothing_of_its_purpose_is_refused(trusting):
    """A signed commit out of a project's history is no request, whatever was put around it."""
    run = trusting.ask("alice")
    signed_anew(trusting, run, change=lambda raw: raw.partition(b"\n\n")[0] + b"\n\nA commit\n")

    assert "does not say what it is for" in trusting.refused(run)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "Branch: a\n",
        "x\n\nBranch: a\nRepository: b\n",
        "x\n\nBranch: a\nBranch: b\nRepository: c\nPreset: d\n",
    ],
)
def test_row_20_trailers_that_are_missing_or_stand_twice_bind_nothing(message):
    assert Binding.parse(message) is None


# Row 21: a key is rotated or revoked, and the commit stays the same.


def test_row_21_a_commit_that_was_trusted_is_refused_after_its_key_was_taken_off_the_list(trusting):
    run = trusting.ask("alice")
    with trusting.keyed.context(**trusting.policy()) as context:
        tip = context.bus.tip(run.branch)
        branch = read_branch(context.bus.git, run.branch, tip)
        arguments = (
            context.bus.git,
            read_candidate(context.bus.git, branch),
            context.presets,
            context.policy,
            context.ledger,
        )
        assert admit(*arguments).trusted_by == "signature of alice@example.invalid"

        trusting.signers.allow("bob")

        with pytest.raises(Refusal, match="not on this host's list"):
            admit(*arguments)
        assert Composer(context).poller().poll()

    assert trusting.result(run).reason.code == "untrusted_code"
    assert not trusting.ran.exists()


def test_row_21_a_key_that_is_taken_off_while_its_request_is_claimed_runs_nothing(trusting, monkeypatch):
    run = trusting.ask("alice")
    advance = Lease.advance

    def rotate_then_advance(lease, state, **more):
        if state is wire.State.CLAIMED:
            trusting.signers.allow("bob")
        return advance(lease, state, **more)

    monkeypatch.setattr(Lease, "advance", rotate_then_advance)

    assert "not on this host's list" in trusting.refused(run)


# Row 25: the history is rewritten after the result.


def test_row_25_a_branch_that_was_rewritten_to_another_request_is_noticed(client, answered, forger, keyed):
    """Also without a key: who sent a request knows its commit."""
    other = client.run("noop", requested_by="forger")
    keyed.handle()
    files = {}
    for path in (wire.RESULT, wire.STATE):
        content = json.loads(forger.read(other.branch, path)) | {"branch": answered.branch}
        files[path] = json.dumps(content).encode()
    commit = forger.put(other.branch, files, other.commit)
    forger.git("update-ref", f"refs/heads/{answered.branch}", commit)
    client.view(answered.branch)

    report = client.verify(answered.branch)

    assert f"{answered.commit[:12]} was sent from here" in said(report, "sent")
    with pytest.raises(VerificationError, match="nothing was written"):
        client.fetch(answered.branch)


def test_row_25_a_file_that_was_changed_in_a_new_commit_is_noticed(reader, answered, forger):
    forger.put(answered.branch, {wire.SUMMARY: FORGERY})
    reader.view(answered.branch)

    report = reader.verify(answered.branch)

    assert {"files", "signature"} <= reasons(report)
    assert "summary.json' was changed" in said(report)


def with_second(git, tree, path, blob, *, first):
    """Return a tree in which a file's name stands twice: the other entry, before or after it, is a forged one."""
    name, _, rest = path.partition("/")
    raw = git("cat-file", "tree", tree).stdout
    (entry,) = [raw[a:b] for a, b, _, entry in git_output.tree_lines(raw) if entry == name.encode()]
    head, oid = entry[:-20], entry[-20:].hex()
    other = head + bytes.fromhex(with_second(git, oid, rest, blob, first=first) if rest else blob)
    new = other if rest else other + entry if first else entry + other
    return git.text(
        "hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=raw.replace(entry, new)
    )


def test_row_25_a_second_file_of_the_same_name_is_noticed(reader, answered, forger):
    """Readers differ in which of both they take: one would check the runner's file, and another show the forged one."""
    tip = forger.tip(answered.branch)
    for path in (wire.RESULT, f"{wire.LOGS}/noop-0.log", wire.STATE):
        for first in (True, False):
            forger.git("update-ref", f"refs/heads/{answered.branch}", tip)
            notice_second(reader, answered, forger, path, first=first)


def notice_second(reader, answered, forger, path, *, first):
    git, tip = forger.git, forger.tip(answered.branch)
    forged = forger.read(answered.branch, path).replace(
        b"every step ended with 0", b"all steps were forged!!"
    )
    if path.endswith(".log"):
        forged = forged.replace(b"nothing", b"no-more")
    blob = objects.write_blob(git, forged + b"\n")
    root = git.text("rev-parse", f"{tip}^{{tree}}")
    tree = with_second(git, root, path, blob, first=first)
    who = objects.Identity("A Forger", "forger@example.invalid")
    commit = objects.commit(git, tree, objects.parents_of(git, tip), "an answer\n", who)
    git("update-ref", f"refs/heads/{answered.branch}", commit)
    assert reader.view(answered.branch).tip == commit

    report = reader.verify(answered.branch)

    assert reasons(report) & {"answer", "files"}
    assert not report.holds
    with pytest.raises(VerificationError, match="nothing was written"):
        reader.fetch(answered.branch)


def test_a_state_about_a_request_that_is_nowhere_keeps_nothing_from_being_shown(
    client, forger, clone, tmp_path
):
    run = client.run("noop")
    claim = {
        "schema_version": 2, "state": "running", "branch": run.branch, "request": "0" * 40, "salt": "0", "token": 1,
        "sequence": 1, "lease_s": 60.0, "at": "now", "runner": {"id": "x", "instance": "0" * 16, "version": "0"},
    }  # fmt: skip
    forger.put(run.branch, {wire.STATE: json.dumps(claim).encode()}, run.commit)

    status = client.status(run.branch)
    exported = CliRunner().invoke(cli, ["-C", str(clone), "web", "--export", str(tmp_path / "pages")])

    assert (status.state, status.last_line) == (wire.State.RUNNING, "")
    assert exported.exit_code == 0, exported.output


# Row 26: evidence that is not what it seems.


def test_row_26_the_answer_of_another_machine_is_rejected(reader, client, keyed):
    run = client.run("noop")
    keyed.handle("two")

    assert "signed with another key" in said(reader.verify(run.branch))


def test_row_26_evidence_of_another_answer_of_the_same_machine_is_rejected(
    reader, client, keyed, forger, answered
):
    run = client.run("noop")
    keyed.handle()
    forger.put(run.branch, {wire.EVIDENCE: forger.read(answered.branch, wire.EVIDENCE)})
    reader.view(run.branch)

    message = said(reader.verify(run.branch))

    assert f"branch was changed: signed as '{answered.branch}', here '{run.branch}'" in message
    assert "'request' was changed" in message


def test_row_26_a_run_that_took_no_time_is_rejected(client, answered, forger):
    commands = json.loads(forger.read(answered.branch, wire.RESULT))["commands"]
    forger.rewrite(answered.branch, commands=[{**commands[0], "seconds": 0.0}])
    client.view(answered.branch)

    assert "after no time at all" in said(client.verify(answered.branch), "times")


def test_row_26_times_that_contradict_each_other_are_rejected(client, answered, forger):
    forger.rewrite(answered.branch, seconds=4000.0)
    client.view(answered.branch)

    assert "4000 s by its own count" in said(client.verify(answered.branch), "times")


def test_row_26_steps_that_took_longer_than_the_run_are_told(client, answered, forger):
    """And no more than that: a clock that was set back during an honest job looks the same."""
    commands = json.loads(forger.read(answered.branch, wire.RESULT))["commands"]
    forger.rewrite(answered.branch, commands=[{**commands[0], "seconds": 30.0}])
    client.view(answered.branch)

    (times,) = [check for check in client.verify(answered.branch).checks if check.name == "times"]
    assert times.ok is None
    assert "was the clock set back" in times.message


def test_row_26_a_log_of_another_run_is_rejected(client, answered, forger):
    """Also without a key, as long as the history is there: the log was streamed while the job ran."""
    log = f"{wire.LOGS}/noop-0.log"
    reused = forger.read(answered.branch, log).replace(b"nothing", b"no-more")
    forger.rewrite(answered.branch, {log: reused})
    client.view(answered.branch)

    assert "not what was streamed" in said(client.verify(answered.branch), "logs")


def test_row_26_a_signature_over_something_else_is_rejected(reader, answered, forger, keyed):
    """The runner's own key, used for what is no answer at all."""
    from bridge.verify import attestation  # noqa: PLC0415 - used here alone

    forged = attestation.sign({"_type": "something else"}, signing_key.load_signer(keyed.key().parent))
    assert base64.b64decode(json.loads(forged)["payload"])
    forger.put(answered.branch, {wire.EVIDENCE: forged})
    reader.view(answered.branch)

    assert "not a statement on a test result" in said(reader.verify(answered.branch))


# Row 53: a copy of an approved request.


def test_row_53_a_copy_of_an_approved_commit_neither_runs_nor_uses_up_the_approval(trusting):
    run = trusting.ask()
    Approvals(trusting.keyed.runners.folder / "state-one").approve(run.branch, run.commit, "operator")
    copy = run.branch.replace("mac-bridge/", "AgentMemory/mac-bridge-", 1)
    trusting.forger.git("update-ref", f"refs/heads/{copy}", run.commit)

    result = trusting.answer(run)

    assert result.state is wire.State.SUCCEEDED
    assert result.trusted_by == "approval by operator"
    assert wire.parse_result(trusting.forger.read(copy, wire.RESULT)).reason.code == "untrusted_code"


# Rows 54 to 58: states that no listed key signed.


@pytest.fixture
def fleet(keyed):
    """The policy of a runner that lists its fleet's keys."""
    return {"trust": {"runners": [str(keyed.key())]}}


def forge(forger, run, more=None, **said):
    """Put a state upon the branch of a request as anyone who may push can write it. Returns the commit."""
    whole = {
        "schema_version": 2, "state": "claimed", "branch": run.branch, "request": run.commit,
        "salt": secrets.token_hex(8), "token": 1, "sequence": 1, "lease_s": 120.0,
        "runner": {"id": "x", "instance": "x", "version": "0"}, "at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return forger.put(
        run.branch, {wire.STATE: json.dumps(whole | said).encode(), **(more or {})}, forger.tip(run.branch)
    )


def stands(forger, run):
    """Return the state that a branch shows, and the claim's token."""
    state = wire.parse_state(forger.read(run.branch, wire.STATE))
    return state.state, state.token


def held_by(job, runners, fleet, presets, tmp_path):
    """Start a runner on a request whose job waits; what is returned lets it go on."""
    go, began = tmp_path / "go", tmp_path / "began"
    script = f"touch {began}; while [ ! -e {go} ]; do sleep 0.05; done"
    folder = presets(**{job: {"steps": [{"argv": ["/bin/sh", "-c", script]}]}})
    runners.start("one", preset_folder=str(folder), **fleet)
    return folder, began, go


def test_row_54_a_forged_claim_with_a_long_lease_stalls_nothing(client, keyed, forger, fleet):
    run = client.run("noop")
    forge(forger, run, state="claimed", lease_s=86_400.0)

    keyed.handle(**fleet)

    assert stands(forger, run) == (wire.State.SUCCEEDED, 1)


def test_row_54_without_listed_keys_the_same_claim_is_waited_for(client, keyed, forger):
    run = client.run("noop")
    forge(forger, run, state="claimed", lease_s=86_400.0)

    keyed.handle()

    assert stands(forger, run) == (wire.State.CLAIMED, 1)


def test_row_55_forged_heartbeats_fence_no_runner(
    clone, runners, forger, fleet, presets, tmp_path, keyed, wait_for
):
    folder, began, go = held_by("slow", runners, fleet, presets, tmp_path)
    run = Client(clone, presets=folder).run("slow")
    wait_for(began.exists)
    for token in (1, 7):
        forge(forger, run, {wire.STREAM: b"forged\n"}, state="running", token=token, sequence=99)
        time.sleep(0.5)
    go.touch()

    assert run.wait(60).state is wire.State.SUCCEEDED
    report = Client(clone, presets=folder, public_key=keyed.key()).verify(run.branch)
    assert report.signed
    assert report.holds
    assert stands(forger, run) == (wire.State.SUCCEEDED, 1)


def test_row_55_a_forged_heartbeat_does_not_keep_the_claim_of_a_dead_runner_alive(
    client, keyed, forger, fleet
):
    keyed.key()
    run = client.run("noop")
    short = {"bus": {"lease_s": 1.0}}
    other = {"trust": {"runners": [str(keyed.key()), str(keyed.key("two"))]}}
    with keyed.context(**short, **fleet) as context:
        branch = context.keys.reader.read_branch(context.bus.git, run.branch, context.bus.fetch()[run.branch])
        assert Lease(context.author, branch).advance(wire.State.CLAIMED) is Pushed.DONE
    with keyed.context("two", **short, **other) as context:
        poller = Composer(context).poller()
        until = time.monotonic() + 120
        while stands(forger, run)[0] is not wire.State.SUCCEEDED and time.monotonic() < until:
            forge(forger, run, state="running", token=1)
            poller.poll()
            time.sleep(0.3)

    assert stands(forger, run) == (wire.State.SUCCEEDED, 2)


@pytest.mark.parametrize("token", [3, 10**12])
def test_row_56_a_forged_high_token_changes_nothing(client, keyed, forger, fleet, token):
    run = client.run("noop")
    forge(forger, run, state="running", token=token, lease_s=0.001)

    keyed.handle(**fleet)

    assert stands(forger, run) == (wire.State.SUCCEEDED, 1)


@pytest.mark.parametrize("state", ["succeeded", "lost", "cancelled"])
def test_row_57_a_forged_final_state_does_not_end_a_request(client, keyed, forger, fleet, state):
    run = client.run("noop")
    forge(forger, run, state=state)

    keyed.handle(**fleet)

    assert stands(forger, run) == (wire.State.SUCCEEDED, 1)


def test_row_57_a_forged_final_state_does_not_keep_an_answer_from_being_published(
    client, reader, keyed, forger, fleet, monkeypatch
):
    run = client.run("noop")
    push, forged = Bus.push, []

    def forge_first(bus, name, commit, *, expect):
        state = wire.parse_state(objects.read_blob(bus.git, commit, wire.STATE, max_bytes=wire.MAX_STATE))
        if state.state.is_final and not forged:
            forged.append(forge(forger, run, state="failed", token=5))
        return push(bus, name, commit, expect=expect)

    monkeypatch.setattr(Bus, "push", forge_first)

    keyed.handle(**fleet)

    assert stands(forger, run) == (wire.State.SUCCEEDED, 1)
    assert objects.parents_of(forger.git, forger.tip(run.branch))[0] == forged[0]
    with keyed.context(**fleet) as context:
        branch = context.keys.reader.read_branch(context.bus.git, run.branch, context.bus.fetch()[run.branch])
    assert (branch.state_commit, branch.unsigned) == (forger.tip(run.branch), None)
    assert reader.verify(run.branch).signed
    assert reader.verify(run.branch).holds


def test_row_57_an_answer_stays_the_answer_below_a_forged_state(client, keyed, forger, fleet):
    run = client.run("noop")
    keyed.handle(**fleet)
    forged = forge(forger, run, state="requested")

    keyed.handle(**fleet)

    assert forger.tip(run.branch) == forged


def moved(forger, run, commit, **said):
    """Put a copy of a signed state, message and all, on top of the branch of a request."""
    state = json.loads(objects.read_blob(forger.git, commit, wire.STATE, max_bytes=wire.MAX_STATE))
    tip = forger.tip(run.branch)
    tree = objects.overlay(
        forger.git, f"{tip}^{{tree}}", {wire.STATE: json.dumps(state | said, indent=2).encode()}
    )
    message = forger.git.text("log", "-1", "--format=%B", commit) + "\n"
    copy = objects.commit(forger.git, tree, [tip], message, objects.Identity("A Forger", "f@example.invalid"))
    forger.git("update-ref", f"refs/heads/{run.branch}", copy)


def test_row_58_a_signature_moved_to_another_branch_is_none(client, keyed, forger, fleet):
    answered = client.run("noop")
    keyed.handle(**fleet)
    run = client.run("noop")
    moved(forger, run, forger.tip(answered.branch), branch=run.branch, request=run.commit)

    keyed.handle(**fleet)

    assert stands(forger, run) == (wire.State.SUCCEEDED, 1)
    result = wire.parse_result(forger.read(run.branch, wire.RESULT))
    assert result.branch == run.branch


def test_row_58_a_signature_moved_to_a_later_place_in_its_branch_is_none(client, keyed, forger, fleet):
    run = client.run("noop")
    with keyed.context(**fleet) as context:
        branch = context.keys.reader.read_branch(context.bus.git, run.branch, context.bus.fetch()[run.branch])
        lease = Lease(context.author, branch)
        assert lease.advance(wire.State.CLAIMED) is Pushed.DONE
        claim = lease.tip
        assert lease.advance(wire.State.REQUESTED) is Pushed.DONE
    moved(forger, run, claim)
    assert stands(forger, run)[0] is wire.State.CLAIMED

    keyed.handle("two", trust={"runners": [str(keyed.key()), str(keyed.key("two"))]})

    assert stands(forger, run) == (wire.State.SUCCEEDED, 2)
