"""Whose code runs here: by signature, by approval, by the policy's leave, and otherwise nobody's."""

from __future__ import annotations

import resource
import shutil
import subprocess
from datetime import datetime, timedelta

import pytest
from click.testing import CliRunner

from bridge.bus import wire
from bridge.client import Client
from bridge.errors import RefusedError, UsageError
from bridge.system.git import Git
from runner.admit.approvals import Approvals
from runner.admit.signature import read_signed, signer_of
from runner.cli import cli
from runner.serve.compose import Composer
from runner.serve.lease import Lease

pytestmark = pytest.mark.bus


class Later(datetime):
    """A clock that is two hours ahead."""

    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) + timedelta(hours=2)


def approve(trusting, *args, trust=None):
    policy = trusting.keyed.runners.policy("one", **trusting.policy(**(trust or {})))
    return CliRunner().invoke(cli, ["--policy", str(policy), "approve", *args])


def copied(run, i):
    """Return a branch of another namespace for the same preset and nonce."""
    return run.branch.replace("mac-bridge/", f"mac-bridge/x{i}/", 1)


@pytest.mark.long
def test_code_signed_by_a_listed_key_runs_and_the_answer_says_whose_it_was(trusting):
    run = trusting.ask(signed_by="alice")

    result = trusting.answer(run)

    assert result.state is wire.State.SUCCEEDED
    assert trusting.ran.exists()
    assert result.trusted_by == "signature of alice@example.invalid"


def test_installed_code_runs_for_everyone(trusting):
    result = trusting.answer(trusting.ask(preset="installed"))

    assert result.state is wire.State.SUCCEEDED
    assert result.trusted_by is None


def test_the_policy_can_give_leave_to_everyone_who_can_push(trusting):
    result = trusting.answer(trusting.ask(), code_request="allow")

    assert result.trusted_by == "the policy allows it to everyone who can push"


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("signed_by", "trust", "said"),
    [
        (None, {}, "it is not signed"),
        ("mallory", {}, "not on this host's list"),
        ("alice", {"allowed_signers": None}, "this host has no list of signers"),
        ("alice", {"allowed_signers": "/nonexistent/list"}, "this host's list of signers cannot be used"),
        ("alice", {"code_request": "deny"}, "does not allow"),
    ],
)
def test_code_that_nobody_vouches_for_is_refused(trusting, signed_by, trust, said):
    assert said in trusting.refused(trusting.ask(signed_by), **trust)


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("options", "principal", "said"),
    [
        ('namespaces="file"', None, "another purpose"),
        ('namespaces="git",valid-before="20200101"', None, "key"),
        ('namespaces="git",valid-after="20990101"', None, "key"),
        ('namespaces="git"', "*@example.invalid", "not on this host's list"),
        ('namespaces="git"', "*", "not on this host's list"),
    ],
)
def test_a_line_of_the_list_says_for_what_when_and_for_whom_a_key_counts(trusting, options, principal, said):
    trusting.signers.allow("alice", options=options, principal=principal)

    assert said in trusting.refused(trusting.ask("alice"))


def test_a_list_that_others_may_write_to_lists_nobody(trusting):
    trusting.signers.file.chmod(0o666)

    assert "cannot be used" in trusting.refused(trusting.ask("alice"))


def test_what_git_itself_signed_is_read_as_git_reads_it(clone, git, signers):
    git(clone, "config", "user.signingkey", f"{signers.key('alice')}.pub")
    git(clone, "-c", "gpg.format=ssh", "commit", "--quiet", "--allow-empty", "-S", "-m", "One\n\nand more\n")
    commit = git(clone, "rev-parse", "HEAD")

    assert signer_of(read_signed(Git.of_user(clone), commit), signers.file) == "alice@example.invalid"
    git(clone, "-c", f"gpg.ssh.allowedSignersFile={signers.file}", "verify-commit", commit)


def picked(trusting, git, commit, *, author="A Stranger <stranger@example.invalid>"):
    """Let Alice cherry-pick an unsigned commit of that author, as maintainers do, and return her signed commit."""
    clone = trusting.client.git.directory
    raw = trusting.client.git("cat-file", "commit", commit).stdout
    header, _, message = raw.partition(b"\n\n")
    lines = [line for line in header.split(b"\n") if line.startswith((b"tree ", b"parent ", b"committer "))]
    lines.insert(2, f"author {author} 1700000000 +0000".encode())
    theirs = trusting.client.git(
        "hash-object", "-t", "commit", "-w", "--stdin", stdin=b"\n".join(lines) + b"\n\n" + message
    ).text
    key = f"user.signingkey={trusting.signers.key('alice')}.pub"
    git(clone, "-c", "gpg.format=ssh", "-c", key, "cherry-pick", "-S", theirs)
    return git(clone, "rev-parse", "HEAD")


@pytest.mark.parametrize(
    "author",
    ["A Stranger <stranger@example.invalid>", "A Tester <tester@example.invalid>"],
    ids=["own", "forged"],
)
def test_row_122_a_cherry_picked_commit_is_no_signed_request(trusting, git, author):
    """A stranger's commit has the form of a request, perhaps under the maintainer's name. Its copy is signed."""
    run = trusting.ask("alice")
    commit = picked(trusting, git, run.commit, author=author)
    assert git(trusting.client.git.directory, "log", "-1", "--format=%cn", commit) == "A Tester"
    git(
        trusting.client.git.directory,
        "push",
        "--quiet",
        "--force",
        "origin",
        f"{commit}:refs/heads/{run.branch}",
    )

    assert "its author and its committer differ" in trusting.refused(run)


@pytest.mark.long
@pytest.mark.parametrize("change", ["subject", "body", "trailer"])
def test_row_122_an_ordinary_commit_with_the_trailers_of_a_request_is_none(trusting, git, change):
    run = trusting.ask("alice")
    clone = trusting.client.git.directory
    message = git(clone, "log", "-1", "--format=%B", run.commit)
    subject, _, trailers = message.partition("\n\n")
    ordinary = {
        "subject": f"Fix a typo\n\n{trailers}",
        "body": f"{subject}\n\nAs discussed.\n\n{trailers}",
        "trailer": f"{message}\nSigned-off-by: A Tester <tester@example.invalid>",
    }[change]
    git(clone, "checkout", "--quiet", run.commit)
    git(clone, "checkout", "--quiet", "--detach", "main")
    git(clone, "checkout", run.commit, "--", ".mac-bridge")
    git(clone, "-c", "gpg.format=ssh", "commit", "--quiet", "-S", "-m", ordinary)
    git(clone, "push", "--quiet", "--force", "origin", f"HEAD:refs/heads/{run.branch}")

    assert "the signed commit is not a request: its message holds more" in trusting.refused(run)


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ((), True),
        (("-O", "clear"), True),
        (("-O", "force-command=/bin/true"), False),
        (("-O", "source-address=192.0.2.1"), False),
        (("-O", "critical:of-ours@example.invalid=x"), False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_row_123_a_certificate_with_conditions_that_nobody_checks_signs_nothing(trusting, options, counts):
    authority, key = trusting.signers.key("authority"), trusting.signers.key("carol")
    trusting.signers.allow(
        "authority", options='cert-authority,namespaces="git"', principal="carol@example.invalid"
    )
    name = ["-I", "carol", "-n", "carol@example.invalid"]
    subprocess.run(["ssh-keygen", "-q", "-s", authority, *name, *options, f"{key}.pub"], check=True)
    trusting.client.git("config", "user.signingkey", f"{key}-cert.pub")
    run = trusting.client.run("here", sign=True)

    if counts:
        assert trusting.answer(run).trusted_by == "signature of carol@example.invalid"
    else:
        assert "a certificate with conditions" in trusting.refused(run)


def test_a_relative_address_of_the_bus_is_signed_as_git_reads_it(trusting, clone, git):
    git(clone, "config", "user.signingkey", f"{trusting.signers.key('alice')}.pub")
    git(clone, "remote", "set-url", "origin", "../bus.git")
    run = Client(clone / "tests", presets=trusting.folder).run("here", sign=True)
    assert trusting.answer(run).trusted_by == "signature of alice@example.invalid"


def test_signing_without_a_key_sends_nothing_and_says_what_to_do(client, git, bus):
    with pytest.raises(UsageError, match="no SSH key of yours") as error:
        client.run("noop", sign=True)

    assert "user.signingkey" in error.value.fix
    assert git(bus, "for-each-ref", "--format=%(refname)") == "refs/heads/main"


def test_signing_with_a_key_that_is_not_there_sends_nothing(client, git, bus, clone):
    git(clone, "config", "user.signingkey", "/nonexistent/id.pub")

    with pytest.raises(UsageError, match="could not be signed"):
        client.run("noop", sign=True)
    assert git(bus, "for-each-ref", "--format=%(refname)") == "refs/heads/main"


@pytest.mark.parametrize("named", ["branch", "commit"])
def test_a_request_that_was_refused_is_not_approved_any_more(trusting, named):
    run = trusting.ask()
    assert trusting.answer(run).state is wire.State.REFUSED

    late = approve(trusting, getattr(run, named)).exception

    assert isinstance(late, RefusedError)
    assert "has already ended: refused" in late.message
    assert "anew" in late.fix


def test_an_approved_commit_runs_and_no_other(trusting):
    approved, other = trusting.ask(), trusting.ask()
    assert approve(trusting, approved.commit).exit_code == 0

    result = trusting.answer(approved)

    assert result.state is wire.State.SUCCEEDED
    assert result.trusted_by.startswith("approval by ")
    assert trusting.result(other).state is wire.State.REFUSED


def test_approving_a_branch_shows_what_is_asked_for_and_approves_its_commit(trusting):
    run = trusting.ask()

    done = approve(trusting, run.branch)

    assert done.exit_code == 0, done.output
    assert '"preset": "here"' in done.output
    assert run.commit in done.output
    assert trusting.answer(run).state is wire.State.SUCCEEDED


def test_an_approval_can_be_withdrawn(trusting):
    run = trusting.ask()
    approve(trusting, run.commit)
    assert approve(trusting, run.commit, "--withdraw").exit_code == 0

    assert "not signed" in trusting.refused(run)
    assert isinstance(approve(trusting, run.commit, "--withdraw").exception, UsageError)


def test_an_approval_outlives_the_ledger_and_is_used_up_by_the_answer(trusting, bus, git):
    """No bus knows it, so the ledger that is made anew could not. It is for one answer all the same."""
    run = trusting.ask()
    assert approve(trusting, run.commit).exit_code == 0
    ledger = trusting.keyed.runners.folder / "state-one" / "ledger.sqlite"
    for _ in range(2):
        ledger.parent.mkdir(exist_ok=True)
        ledger.write_bytes(b"nonsense" * 1000)
        with trusting.keyed.context(**trusting.policy()):
            pass
    assert trusting.answer(run).trusted_by.startswith("approval by ")
    trusting.ran.unlink()

    # Everything that remembers the answer is lost, and the request is pushed again.
    git(bus, "update-ref", f"refs/heads/{run.branch}", run.commit)
    shutil.rmtree(ledger.parent / "store.git")
    for file in ledger.parent.glob("ledger.sqlite*"):
        file.unlink()
    assert "it is not signed" in trusting.refused(run)


@pytest.mark.parametrize("torn", [b'{"request": "', b"\xff\n", b"[]\n", b'{"request": "x", "by": "me"}\n'])
def test_nothing_above_a_line_that_cannot_be_read_counts(tmp_path, torn):
    """It may have been a withdrawal."""
    approvals = Approvals(tmp_path)
    approvals.approve("x", "a" * 40, "me")
    with (tmp_path / "approvals.jsonl").open("ab") as file:
        file.write(torn)
    assert approvals.of("x", "a" * 40) is None
    approvals.approve("x", "b" * 40, "me")
    assert approvals.of("x", "b" * 40) == "me"
    assert approvals.of("x", "a" * 40) is None
    assert (tmp_path / "approvals.jsonl").stat().st_mode & 0o077 == 0


def test_an_approval_that_a_full_disk_cuts_off_is_an_error_and_leaves_the_others(tmp_path):
    approvals = Approvals(tmp_path)
    approvals.approve("x", "a" * 40, "me")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "approvals.jsonl").stat().st_size + 9, limit[1]))
    try:
        with pytest.raises(OSError, match="No space left"):
            approvals.approve("x", "b" * 40, "me")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert approvals.all() == {("x", "a" * 40): "me"}


@pytest.mark.long
def test_a_commit_that_is_the_request_of_several_branches_is_approved_by_branch(trusting, forger):
    run = trusting.ask()
    for i in range(7):
        forger.git("update-ref", f"refs/heads/{copied(run, i)}", run.commit)

    refused = approve(trusting, run.commit).exception

    assert isinstance(refused, RefusedError)
    assert refused.message.startswith("8 branches have this commit as their request: ")
    assert refused.message.endswith(" and 3 more")
    assert approve(trusting, run.branch).exit_code == 0
    assert trusting.answer(run).state is wire.State.SUCCEEDED


def test_a_commit_that_no_branch_has_as_its_request_cannot_be_approved(trusting):
    trusting.ask()

    refused = approve(trusting, "f" * 40).exception

    assert isinstance(refused, RefusedError)
    assert refused.message == f"no request branch on the bus is at {'f' * 40}"


def test_an_approval_that_is_withdrawn_by_branch_counts_no_longer(trusting):
    run = trusting.ask()
    approve(trusting, run.branch)

    assert approve(trusting, run.branch, "--withdraw").exit_code == 0

    assert "not signed" in trusting.refused(run)


def test_where_code_is_denied_there_is_nothing_to_approve(trusting):
    done = approve(trusting, trusting.ask().commit, trust={"code_request": "deny"})

    assert isinstance(done.exception, UsageError)


@pytest.mark.long
def test_a_request_that_is_held_waits_once_and_runs_when_it_is_approved(trusting, monkeypatch):
    monkeypatch.setattr("runner.serve.scheduler.APPROVAL_RECHECK_S", 0.0)
    run = trusting.ask()
    another = trusting.ask(preset="installed")
    hold = {"unapproved": "hold"}

    assert trusting.answer(run, **hold) is None
    assert trusting.result(another).state is wire.State.SUCCEEDED
    trusting.ran.unlink()
    status = run.status()
    assert status.state is wire.State.REQUESTED
    assert status.detail.startswith("waits for approval by the runner's operator: it is not signed")

    tip = status.tip
    trusting.answer(run, **hold)
    assert run.status().tip == tip
    assert not trusting.ran.exists()

    approve(trusting, run.commit, trust=hold)
    assert trusting.answer(run, **hold).state is wire.State.SUCCEEDED
    assert trusting.ran.exists()
    assert run.verify().holds


def test_a_request_that_is_held_can_be_cancelled(trusting):
    run = trusting.ask()
    trusting.answer(run, unapproved="hold")
    run.cancel()

    assert trusting.answer(run, unapproved="hold").state is wire.State.CANCELLED
    assert not trusting.ran.exists()


def test_a_request_that_is_held_expires(trusting, monkeypatch):
    run = trusting.ask()
    trusting.answer(run, unapproved="hold")
    monkeypatch.setattr("runner.serve.scheduler.APPROVAL_RECHECK_S", 0.0)
    rules = trusting.policy(unapproved="hold") | {"limits": {"max_age_s": 60, "clock_skew_s": 0}}
    monkeypatch.setattr("runner.admit.admission.datetime", Later)

    trusting.keyed.handle(**rules)

    assert trusting.result(run).reason.code == "expired"
    assert not trusting.ran.exists()


def test_an_approval_that_is_withdrawn_while_the_request_is_claimed_stops_it(trusting, monkeypatch):
    run = trusting.ask()
    approve(trusting, run.commit)
    advance = Lease.advance

    def withdraw_then_advance(lease, state, **more):
        if state is wire.State.CLAIMED:
            approve(trusting, run.commit, "--withdraw")
        return advance(lease, state, **more)

    monkeypatch.setattr(Lease, "advance", withdraw_then_advance)

    assert "not signed" in trusting.refused(run)


def test_a_poll_with_something_held_goes_on_to_what_is_not(trusting):
    trusting.ask()
    with trusting.keyed.context(**trusting.policy(unapproved="hold")) as context:
        poller = Composer(context).poller()
        assert poller.poll() is False
        run = trusting.ask(signed_by="alice")
        assert poller.poll() is True

    assert trusting.result(run).state is wire.State.SUCCEEDED
